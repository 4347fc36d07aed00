# SPDX-License-Identifier: BSD-3-Clause
"""Active messages that came and those who wait for them, in the order of arrival."""

import collections
import struct

import ropeway

from .exceptions import UCXCanceled, UCXError, of_operation

AM_ID, STREAM_ID, HELLO_ID = 0, 1, 2
# Kind of memory (AllocatorType), and where it is not 0 the length of a payload that comes apart.
HEADER = struct.Struct("=iQ")
# Longer ones come apart: as tagged messages, right into the memory that the allocator gives.
INLINE_MAX = 1 << 16
PAYLOAD_TAG = 0x75637020616D2031


class Inbox:
    """Of one endpoint."""

    __slots__ = (
        "ready",
        "waiting",
        "ended",
        "uid",
        "stream",
        "stream_waiting",
        "into",
        "__weakref__",
    )

    def __init__(self):
        self.ready = collections.deque()  # (buffer, error, operation that fills it or None)
        self.waiting = collections.deque()  # callbacks(buffer, error)
        self.ended = None  # why nothing more comes
        self.uid = None  # of the worker on the other side
        self.stream = bytearray()
        self.stream_waiting = collections.deque()  # (bytes, callback(bytes, error))
        self.into = None  # the inbox that this one's messages go to

    def put(self, buffer, error=None, op=None):
        """A message has come, or has begun to come."""
        if self.into is not None:
            self.into.put(buffer, error, op)
            return
        if op is not None and op.done():
            error, op = _error_of(op), None
        entry = [buffer, error, op]
        self.ready.append(entry)
        if op is None:
            self._deliver()
        else:
            op.add_done_callback(lambda op: self._filled(entry, op))

    def _filled(self, entry, op):
        entry[1], entry[2] = _error_of(op), None
        self._deliver()

    def _deliver(self):
        while self.waiting and self.ready and self.ready[0][2] is None:
            buffer, error, _ = self.ready.popleft()
            self.waiting.popleft()(buffer, error)
        if self.ended is not None and not self.ready:
            self.cancel(self.ended)

    def get(self, callback):
        """Calls back with the next message: at once, or when it has come."""
        self.waiting.append(callback)
        self._deliver()

    def put_back(self, buffer, error):
        """Nobody wanted it after all: it is the next one's."""
        self.ready.appendleft([buffer, error, None])

    def forget(self, callback):
        """Nobody waits with this callback any more."""
        if callback in self.waiting:
            self.waiting.remove(callback)

    def cancel(self, text):
        """Those who wait get UCXCanceled. How many those were."""
        n = len(self.waiting) + len(self.stream_waiting)
        while self.waiting:
            self.waiting.popleft()(None, UCXCanceled(text))
        while self.stream_waiting:
            self.stream_waiting.popleft()[1](None, UCXCanceled(text))
        return n

    def end(self, text):
        """Nothing more comes. Those who wait still get what has begun to come."""
        self.ended = text
        self._deliver()

    def join(self, other):
        """The messages of `other`, those that came and those to come, are this one's."""
        other.into = self
        self.ready.extend(other.ready)
        other.ready.clear()
        self._deliver()

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


def _error_of(op):
    try:
        op.result()
    except ropeway.Error as error:
        return of_operation(error, "am_recv")
    except BaseException as error:
        return UCXCanceled(f"<am_recv>: {error!r}")
    return None


def take(worker, core, header, data):
    """Takes what ropeway hands over: allocates, and lays it where the endpoint finds it."""
    worker, inbox = worker(), core.user
    if worker is None or inbox is None:
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
            inbox.put(None, error, core.recv(bytearray(apart), PAYLOAD_TAG))
        else:
            inbox.put(None, error)
        return
    try:
        buffer = allocator(size)
        if apart:
            inbox.put(buffer, None, core.recv(buffer, PAYLOAD_TAG))
        elif size:
            memoryview(buffer).cast("B")[:] = data
            inbox.put(buffer)
        else:
            inbox.put(buffer)
    except Exception as error:
        inbox.put(None, UCXError(f"<am_recv>: the allocator failed: {error!r}"))
