# SPDX-License-Identifier: BSD-3-Clause
"""Active messages that came and those who wait for them, in the order of arrival."""

import collections
import struct

import ropeway
from ropeway._ucx import inbox

from .exceptions import UCXCanceled, UCXError, of_operation

AM_ID, STREAM_ID, HELLO_ID = 0, 1, 2
# Kind of memory (AllocatorType), and where it is not 0 the length of a payload that comes apart.
HEADER = struct.Struct("=iQ")
# Longer ones come apart: as tagged messages, right into the memory that the allocator gives.
INLINE_MAX = 1 << 16
PAYLOAD_TAG = 0x75637020616D2031


class Inbox(inbox.Inbox):
    """Of one endpoint: its active messages, and its stream."""

    __slots__ = ("uid", "stream", "stream_waiting")
    canceled = UCXCanceled

    def __init__(self):
        super().__init__()
        self.uid = None  # of the worker on the other side
        self.stream = bytearray()
        self.stream_waiting = collections.deque()  # (bytes, callback(bytes, error))

    @staticmethod
    def error_of(op):
        """Why the message's operation failed; None: it has not."""
        try:
            op.result()
        except ropeway.Error as error:
            return of_operation(error, "am_recv")
        except BaseException as error:
            return UCXCanceled(f"<am_recv>: {error!r}")
        return None

    def cancel(self, text):
        """Those who wait get UCXCanceled. How many those were."""
        n = super().cancel(text) + len(self.stream_waiting)
        while self.stream_waiting:
            self.stream_waiting.popleft()[1](None, UCXCanceled(text))
        return n

    def stream_put(self, data):
        """Bytes of the stream have come."""
        self.stream += data
        self._stream_deliver()

    def _stream_deliver(self):
        while self.stream_waiting and len(self.stream) >= self.stream_waiting[0][0]:
            n, callback = self.stream_waiting.popleft()
            data = bytes(self.stream[:n])
            del self.stream[:n]
            callback(data, None)

    def stream_get(self, n, callback):
        """Calls back with the next n bytes."""
        self.stream_waiting.append((n, callback))
        self._stream_deliver()
        if self.ended is not None:
            self.cancel(self.ended)


def take(worker, core, header, data):
    """Takes what ropeway hands over: allocates, and lays it where the endpoint finds it."""
    worker, into = worker(), core.user
    if worker is None or into is None:
        return
    try:
        kind, apart = HEADER.unpack(header)
    except struct.error:
        return  # of a program that is not ours
    size = apart or len(data)
    allocator = worker._am_allocators.get(kind)
    if allocator is None:
        error = UCXError("Unsupported memory type: no allocator of this kind is registered")
        if apart:
            # Somebody has to take it, or its sender waits.
            into.put(None, error, core.recv(bytearray(apart), PAYLOAD_TAG))
        else:
            into.put(None, error)
        return
    try:
        buffer = allocator(size)
        if apart:
            into.put(buffer, None, core.recv(buffer, PAYLOAD_TAG))
        elif size:
            memoryview(buffer).cast("B")[:] = data
            into.put(buffer)
        else:
            into.put(buffer)
    except Exception as error:
        into.put(None, UCXError(f"<am_recv>: the allocator failed: {error!r}"))
