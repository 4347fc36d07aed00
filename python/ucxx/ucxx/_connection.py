# SPDX-License-Identifier: BSD-3-Clause
"""Connection: an endpoint of ropeway, and what ucxx has to know of it beside.

It posts; it remembers what is pending, so that closing cancels it; it knows whether the peer has
gone, and tells who asked for that; it keeps active messages until they are asked for. It is used in
its home's turn only (Home.run). Requests and logs are its callers'.
"""

from __future__ import annotations

import asyncio
import logging
import os
import struct
import weakref
from typing import Any, Callable, Sequence

import ropeway
from ropeway._ucx.calls import translated
from ropeway._ucx.inbox import Inbox

from . import _multi
from ._home import Home
from ._lib.arr import Array
from ._memory import allocate, copied, viewed
from .exceptions import (
    UCXCanceledError,
    UCXCloseError,
    UCXError,
    length_mismatch,
    of_end,
    of_failure,
    of_pending_recv,
)

logger = logging.getLogger("ucx")

ALL = (1 << 64) - 1
#: The tag of a connection's stream; only receives of that connection look for it.
_STREAM_TAG = 0x7563787853545245

#: The id of ropeway's active messages that ucxx takes for its own.
AM_ID = 85
#: Up to this many bytes go in the active message itself; more in a tagged message, announced by it.
AM_INLINE_MAX = 8192
_AM_INLINE = b"\x00"
_AM_ANNOUNCED = struct.Struct("<BQQ")
_AM_FOLLOWS, _AM_LENT = 1, 2

#: From here on a buffer for memory that the receiver makes goes in a loan, over shared memory.
LOAN_BYTES_MIN = 1 << 20


class Promise:
    """The end of an operation that is made of several: done once, with a value or an error."""

    __slots__ = ("_callbacks", "_done", "error", "value")

    def __init__(self) -> None:
        self._callbacks: list[Callable[[Promise], Any]] = []
        self._done = False
        self.error: BaseException | None = None
        self.value: Any = None

    def done(self) -> bool:
        return self._done

    def set(self, value: Any) -> None:
        self.end(value, None)

    def fail(self, error: BaseException) -> None:
        self.end(None, error)

    def end(self, value: Any, error: BaseException | None) -> None:
        if self._done:
            return
        self.value, self.error, self._done = value, error, True
        callbacks, self._callbacks = self._callbacks, []
        for fn in callbacks:
            fn(self)

    def add_done_callback(self, fn: Callable[[Promise], Any]) -> None:
        if self._done:
            fn(self)
        else:
            self._callbacks.append(fn)


def outcome(
    op: ropeway.Operation, is_recv: bool, room: int | None = None, exactly: bool = False
) -> UCXError | None:
    """With which exception of ucxx an operation has ended; None: it has done what it was to do.

    `room` is that of a receive's buffer, which a message may leave unfilled, but not `exactly`.
    """
    if op.cancelled():
        return UCXCanceledError("Request canceled")
    error = op.exception()
    if error is None:
        if not exactly or room is None:
            return None
        got = op.result().length
        return None if got == room else length_mismatch(got, room)
    if not isinstance(error, ropeway.Error):
        return UCXError(str(error))
    return mapped(error, is_recv, room)


def mapped(error: ropeway.Error, is_recv: bool, room: int | None = None) -> UCXError:
    """ucxx's exception for ropeway's, of an operation that was pending."""
    if error.status == ropeway.Status.TRUNCATED and room is not None:
        return length_mismatch(error.length or 0, room)
    return of_pending_recv(error) if is_recv else of_failure(error)


def driven(coroutine: Any) -> Promise:
    """Runs a coroutine that awaits only operations, without a loop: their ends continue it."""
    promise = Promise()

    def step(_: Any = None) -> None:
        try:
            op = coroutine.send(None)
        except StopIteration as end:
            promise.set(end.value)
        except asyncio.CancelledError:
            promise.fail(UCXCanceledError("Request canceled"))
        except ropeway.Error as error:
            promise.fail(mapped(error, True))
        except (UCXError, MemoryError) as error:
            promise.fail(error)
        else:
            op._asyncio_future_blocking = False
            op.add_done_callback(step)

    step()
    return promise


class _Inbox(Inbox):
    __slots__ = ()
    canceled = UCXCanceledError

    @staticmethod
    def error_of(op: ropeway.Operation) -> UCXError | None:
        return outcome(op, True)

    @staticmethod
    def buffer_of(buffer: Any, op: ropeway.Operation) -> Any:
        return viewed(op.result()) if buffer is None else buffer


class Connection:
    """One end of a connection."""

    def __init__(self, home: Home, core: ropeway.core.Endpoint) -> None:
        self.home = home
        self.core = core
        #: Status and sentence of the end that came from the peer's side, or from the path.
        self.ended: tuple[int, str] | None = None
        #: This side has closed it.
        self.closed = False
        #: Under way: receives, and sends.
        self.pending: set[Any] = set()
        self.sending: set[Any] = set()
        self._from_any: set[Any] = set()
        self._callback: Callable[[], None] | None = None
        self.inbox = _Inbox()
        home.connections.add(self)
        me = weakref.ref(self)
        core.user = me
        core.on_close(lambda status, text: _tell_end(me, status, text))

    # ---- its state ----

    @property
    def alive(self) -> bool:
        return not self.closed and self.ended is None

    def check(self) -> None:
        """Raises what makes it impossible to send."""
        if self.closed:
            raise UCXCloseError("Endpoint closed")
        if self.ended is not None:
            raise of_end(*self.ended)

    def end(self, status: int, text: str) -> None:
        """The peer's end has gone, the path is lost, or the connection did not come up."""
        if self.ended is not None or self.closed:
            return
        self.ended = status, text
        for op in list(self._from_any):
            op.cancel()
        self.inbox.end(f"Request canceled: {text}")
        self._call_back()

    def set_callback(self, fn: Callable[[], None] | None) -> None:
        """Who is told of its end, once; at once where that has been."""
        self._callback = fn
        if fn is not None and not self.alive:
            self._call_back()

    def _call_back(self) -> None:
        fn, self._callback = self._callback, None
        if fn is None:
            return
        try:
            fn()
        except Exception as error:
            logger.error("%s when calling endpoint close callback: %s", type(error), error)

    # ---- tagged messages ----

    def send(self, buf: Any, tag: int) -> ropeway.Operation:
        """Posts a send. Raises UCXError where that cannot be."""
        self.check()
        try:
            return self.core.send(buf, tag)
        except ropeway.Error as error:
            raise of_failure(error) from None

    def recv(self, buf: Any, tag: int, mask: int = ALL, own: bool = False) -> ropeway.Operation:
        """Posts a receive. With a tag of this connection's own (`own`) for what this peer sends,
        else for whatever comes to the context until this endpoint ends: in UCX tags are a matter of
        the worker."""
        try:
            if (own or tag == self.core.message_tag) and mask == ALL and not self.closed:
                return self.core.recv(buf, tag)
            if self.alive:
                op = self.home.ctx.recv(buf, tag, mask)
                if not op.done():
                    self._from_any.add(op)
                    op.add_done_callback(self._from_any.discard)
                return op
            if self.home.closed or self.home.ctx.probe(tag, mask) is None:
                self.check()
            return self.home.ctx.recv(buf, tag, mask)
        except ropeway.Error as error:
            if self.ended is not None:
                raise of_end(*self.ended) from None
            raise of_failure(error) from None

    def watch(self, op: Any, sends: bool = False) -> None:
        """Has closing cancel the operation, as long as it is under way."""
        if not op.done():
            ops = self.sending if sends else self.pending
            ops.add(op)
            op.add_done_callback(ops.discard)

    def cancel_pending(self) -> int:
        """Cancels what is under way. Gives how many operations that were."""
        ops = [*self.pending, *self.sending, *self._from_any]
        for op in ops:
            op.cancel()
        return len(ops)

    # ---- large buffers, where the receiver makes the memory: copied once, by their sender ----

    def _lend(self, array: Array, tag: int) -> bool:
        """Copies a buffer into a loan and passes this on; the peer reads it where it lies. False:
        it is to be sent as it is."""
        if array.cuda or array.nbytes < LOAN_BYTES_MIN or not array.buffer.c_contiguous:
            return False
        if self.core.info().transport != "shm":
            return False
        try:
            loan = self.core.loan(array.nbytes, True)
        except ropeway.Error:  # the peer keeps all that it has
            return False
        with memoryview(loan) as room:
            room[:] = array.buffer.cast("B")
        with translated(of_failure):
            self.watch(self.core.send_loan(loan, tag), True)
        return True

    # ---- several buffers at once ----

    def send_multi(self, arrays: Sequence[Array], tag: int) -> ropeway.Operation:
        """Posts the send of several buffers."""
        self.check()
        loans = _multi.tag_of_loans(tag)
        lent = {i for i, a in enumerate(arrays) if self._lend(a, loans)}
        bufs, tags = _multi.pack(arrays, tag, lent)
        with translated(of_failure):
            if len(bufs) == 1:
                return self.core.send(bufs[0], tag)
            return self.core.send_many(bufs, tags)

    async def recv_multi(self, tag: int, own: bool, wait: Callable[..., Any]) -> list[Any]:
        """Receives what one `send_multi` has sent: the buffers.

        `wait` is called with each operation. An operation to `keep` goes on after a cancel: its
        message belongs to one that has arrived.
        """
        head = bytearray(_multi.HEAD_BYTES_MAX)
        other = _multi.tag_of_buffers(tag)
        received = await wait(self.recv(head, tag, ALL, own))
        arrival = _multi.Arrival(memoryview(head)[: received.length])
        if arrival.table is not None:
            await wait(self.recv(arrival.table, other), keep=True)
            arrival.take_table()
        views = [self.core.recv_view(_multi.tag_of_loans(tag)) for _ in arrival.lent]
        following = arrival.following()
        if following:
            await wait(self.core.recv_many(following, other), keep=True)
        for i, view in zip(arrival.lent, views):
            arrival.buffers[i] = viewed(await wait(view, keep=True))
        return arrival.buffers

    def begin_recv_multi(self, tag: int) -> Promise:
        """The same, as a promise of the buffers."""

        async def wait(op: ropeway.Operation, keep: bool = False) -> Any:
            self.watch(op)
            return await op

        return driven(self.recv_multi(tag, False, wait))

    # ---- a stream: messages on a tag of the connection's own ----

    def stream_send(self, buf: Any) -> ropeway.Operation:
        self.check()
        return self.core.send(buf, _STREAM_TAG)

    def stream_recv(self, buf: Any) -> ropeway.Operation:
        self.check()
        return self.core.recv(buf, _STREAM_TAG)

    # ---- active messages ----

    def am_send(self, array: Array) -> ropeway.Operation:
        """Posts an active message. The receiver takes it whether it has asked or not."""
        self.check()
        buf, nbytes = array.buffer, array.nbytes
        try:
            if nbytes <= AM_INLINE_MAX:
                return self.core.am_send(AM_ID, buf, _AM_INLINE)
            tag = int.from_bytes(os.urandom(8), "little")
            if self._lend(array, tag):
                return self.core.am_send(AM_ID, b"", _AM_ANNOUNCED.pack(_AM_LENT, tag, nbytes))
            announced = _AM_ANNOUNCED.pack(_AM_FOLLOWS, tag, nbytes)
            self.watch(self.core.am_send(AM_ID, b"", announced), True)
            return self.core.send(buf, tag)
        except ropeway.Error as error:
            raise of_failure(error) from None

    def take_am(self, header: bytes, data: bytes | memoryview) -> None:
        """An active message has come."""
        if header == _AM_INLINE:
            self.inbox.put(copied(data))
            return
        try:
            kind, tag, nbytes = _AM_ANNOUNCED.unpack(header)
            buffer = None if kind == _AM_LENT else allocate(nbytes)
            op = self.core.recv_view(tag) if buffer is None else self.core.recv(buffer, tag)
        except (struct.error, MemoryError, ropeway.Error) as error:
            logger.error("an active message could not be taken: %s", error)
            return
        self.watch(op)
        self.inbox.put(buffer, None, op)

    def am_probe(self) -> bool:
        return len(self.inbox.ready) > len(self.inbox.waiting)

    def am_recv(self) -> Promise:
        """The next active message: a promise of its buffer."""
        promise = Promise()
        if not self.inbox.ready and not self.alive:
            try:
                self.check()
            except UCXError as error:
                promise.fail(error)
                return promise

        def take(buffer: Any, error: BaseException | None) -> None:
            if promise.done():  # whoever waited has been canceled
                self.inbox.put_back(buffer, error)
            else:
                promise.end(buffer, error)

        self.inbox.get(take)
        return promise

    # ---- its end ----

    def close(self, abruptly: bool = False) -> ropeway.Operation | None:
        """Closes it: receives are canceled, and sends that are under way go on; but `abruptly`.

        Gives the operation that is done when the peer has all; None: nothing to wait for.
        """
        if self.closed:
            return None
        self.closed = True
        for op in [*self.pending, *self._from_any, *(self.sending if abruptly else ())]:
            op.cancel()
        self.inbox.cancel("Request canceled")
        self.inbox.ready.clear()
        if self.ended is None:
            self._call_back()
        self.core.on_close(None)
        return self.home.linger(self.core)


def _tell_end(me: weakref.ref[Connection], status: int, text: str) -> None:
    connection = me()
    if connection is not None:
        connection.end(status, text)


def take_am(core: ropeway.core.Endpoint, header: bytes, data: bytes | memoryview) -> None:
    """An active message has come from an endpoint; one that nobody has is dropped."""
    me = core.user
    connection = me() if me is not None else None
    if connection is not None and not connection.closed:
        connection.take_am(header, data)


def connect(home: Home, address: str, timeout: float) -> tuple[Connection, ropeway.Operation]:
    """Begins to connect: the connection, and the operation that is done when it stands."""
    with translated(of_failure):
        # What nobody listens at is an error at once in UCX.
        core, op = home.ctx._connect(address, timeout=timeout, retry=False)
    connection = Connection(home, core)
    me = weakref.ref(connection)

    def connected(op: ropeway.Operation) -> None:
        error = None if op.cancelled() else op.exception()
        if isinstance(error, ropeway.Error):
            _tell_end(me, error.status, str(error))

    op.add_done_callback(connected)
    return connection, op


def worker_address(home: Home) -> str:
    """Where other workers connect to this one without a listener of the program's."""
    if home.door is None:
        guests: set[ropeway.core.Endpoint] = set()

        def accepted(core: ropeway.core.Endpoint) -> None:
            guests.add(core)
            core.on_close(lambda status, text: (guests.discard(core), core.close()))

        home.door = home.listen(0, accepted)

        def close() -> None:
            for core in list(guests):
                home.linger(core)

        home.on_close.append(close)
    return home.door.address
