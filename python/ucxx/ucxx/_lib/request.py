# SPDX-License-Identifier: BSD-3-Clause
"""Requests: operations that are under way or done, and what a probe has found."""

from __future__ import annotations

import asyncio
from typing import Any

from .._connection import Promise, outcome
from .._home import Home
from .._memory import allocate
from ..exceptions import UCXError, length_mismatch
from .arr import Array
from .tag import UCXXTag


class TagProbeResult:
    """Whether a message is there, and what it is."""

    def __init__(self, found: Any = None, taken: Any = None, buffer: Any = None) -> None:
        self._found = found
        self._taken = taken
        self._buffer = buffer

    @property
    def matched(self) -> bool:
        return self._found is not None

    def _check(self) -> None:
        if self._found is None:
            raise AttributeError("No message was matched")

    @property
    def sender_tag(self) -> UCXXTag:
        self._check()
        return UCXXTag(self._found.tag)

    @property
    def length(self) -> int:
        """Of the message, in bytes."""
        self._check()
        return self._found.length

    @property
    def handle(self) -> int | None:
        """What stands for a message that the probe has taken out of the queue; else None."""
        self._check()
        return id(self._taken) if self._taken is not None else None

    def __bool__(self) -> bool:
        return self.matched

    def __repr__(self) -> str:
        if not self.matched:
            return "TagProbeResult(matched=False)"
        handle = self.handle
        tail = "" if handle is None else f", handle={handle}"
        return (
            f"TagProbeResult(matched=True, sender_tag={self.sender_tag}, "
            f"length={self.length}{tail})"
        )


class UCXRequest:
    """An operation under way, or done."""

    def __init__(
        self,
        home: Home,
        op: Any = None,
        error: UCXError | None = None,
        is_recv: bool = False,
        room: int | None = None,
        exactly: bool = False,
    ) -> None:
        self._home = home
        self._op = op
        self._error = error
        self._is_recv = is_recv
        self._room = room
        self._exactly = exactly

    @property
    def ucxx_ptr(self) -> int:
        return id(self)

    @property
    def completed(self) -> bool:
        return self._op is None or self._op.done()

    def _outcome(self) -> BaseException | None:
        if self._op is None:
            return self._error
        if isinstance(self._op, Promise):
            return self._op.error
        return outcome(self._op, self._is_recv, self._room, self._exactly)

    @property
    def status(self) -> int:
        """0: done; 1: under way; negative: it failed."""
        if not self.completed:
            return 1
        return 0 if self._outcome() is None else -1

    @property
    def recv_buffer(self) -> Any:
        """What an active message brought; None for other requests."""
        return self._op.value if isinstance(self._op, Promise) else None

    def check_error(self) -> None:
        """Raises the error that it ended with, if it did."""
        if self.completed:
            error = self._outcome()
            if error is not None:
                raise error

    @property
    def future(self) -> asyncio.Future:
        """A future of the running loop, done when the request is."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()

        def tell(_: Any) -> None:
            if future.done():
                return
            error = self._outcome()
            if error is None:
                future.set_result(True)
            else:
                future.set_exception(error)

        if self.completed:
            tell(None)
        else:
            self._op.add_done_callback(lambda op: loop.call_soon_threadsafe(tell, op))
        return future

    async def wait_yield(self) -> None:
        while not self.completed:
            if self._home.loop is None:
                self._home.progress()
            await asyncio.sleep(0)
        self.check_error()

    async def wait(self) -> None:
        if self.completed:
            self.check_error()
        elif self._home.loop is None:
            await self.wait_yield()
        else:
            await self.future


class UCXBufferRequest:
    """One buffer of several that are received together."""

    def __init__(self, request: UCXRequest, buffer: Any) -> None:
        self.request = request
        self.py_buffer = buffer


class UCXBufferRequests(UCXRequest):
    """Several buffers that are sent or received together."""

    @property
    def all_completed(self) -> bool:
        return self.completed

    @property
    def requests(self) -> tuple[UCXRequest, ...]:
        return (UCXRequest(self._home, self._op, self._error, self._is_recv),)

    @property
    def py_buffers(self) -> list[Any]:
        """The buffers that have been received."""
        if not self.completed:
            raise RuntimeError("Some requests are not completed yet")
        self.check_error()
        return list(self._op.value) if isinstance(self._op, Promise) else []


def probe(home: Home, tag: int, mask: int, remove: bool) -> TagProbeResult:
    found = home.ctx.probe(tag, mask)
    if found is None:
        return TagProbeResult()
    if not remove:
        return TagProbeResult(found)
    buffer = allocate(found.length)
    return TagProbeResult(found, home.ctx.recv(buffer, tag, mask), buffer)


def recv_taken(home: Home, arr: Array, probe_result: TagProbeResult) -> UCXRequest:
    if not probe_result.matched or probe_result._taken is None:
        raise ValueError("TagProbeResult must be matched, by a probe with remove=True")
    taken, buffer = probe_result._taken, probe_result._buffer
    promise = Promise()

    def done(op: Any) -> None:
        error = outcome(op, True)
        length = probe_result.length
        if error is None and length > arr.nbytes:
            error = length_mismatch(length, arr.nbytes)
        if error is not None:
            promise.fail(error)
            return
        arr.buffer.cast("B")[:length] = memoryview(buffer).cast("B")
        promise.set(None)

    if taken.done():
        done(taken)
    else:
        taken.add_done_callback(done)
    return UCXRequest(home, promise, is_recv=True)
