# SPDX-License-Identifier: BSD-3-Clause
"""Endpoint: one end of a connection, for coroutines."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Callable, Hashable

import ropeway
from ropeway._ucx.endpoint import Messages, tags_text

from .._connection import ALL, Connection, mapped
from .._lib.arr import Array
from .._lib.libucxx import TagProbeResult, UCXEndpoint
from .._lib.tag import UCXXTag
from ..exceptions import (
    UCXCanceledError,
    UCXCloseError,
    UCXError,
    of_end,
    of_failure,
)
from .utils import hash64bits

logger = logging.getLogger("ucx")

#: How long `close` waits for the peer to have all, in seconds; then it goes on by itself.
_CLOSE_S = 2.0


def _number(tag: Hashable) -> int:
    """What an integer tag is hashed as: its hash; others: the hash of what they look like, which,
    unlike Python's, is the same in every process."""
    return hash(tag) if isinstance(tag, int) else hash64bits(tag)


def _nbytes(buffer: Any) -> int:
    nbytes = getattr(buffer, "nbytes", None)
    if type(nbytes) is int:
        return nbytes
    if type(buffer) in (bytearray, bytes):
        return len(buffer)
    return Array(buffer).nbytes


class Endpoint(Messages):
    """One end of a connection. `create_listener` and `create_endpoint` make it."""

    _misused = UCXError

    def __init__(self, endpoint: UCXEndpoint, ctx: Any, tags: dict[str, int] | None = None) -> None:
        super().__init__()
        if not isinstance(endpoint, UCXEndpoint):
            raise ValueError("endpoint must be an instance of UCXEndpoint")
        self._ep: UCXEndpoint | None = endpoint
        self._connection: Connection = endpoint.connection
        self._core: ropeway.Endpoint = endpoint.connection.core
        self._ctx = ctx
        self._tags = tags
        self._handle = endpoint.handle
        self._send_tag = tags["msg_send"] if tags else None
        self._recv_tag = tags["msg_recv"] if tags else None

    # ---- what it is ----

    @property
    def alive(self) -> bool:
        """Neither side has closed it. What came before the end can still be received."""
        return self._connection.alive

    @property
    def closed(self) -> bool:
        """Has either side closed it?"""
        return not self._connection.alive

    @property
    def uid(self) -> int:
        """A number of its own in this process."""
        return self._handle

    @property
    def ucp_endpoint(self) -> int:
        return self._handle

    @property
    def ucxx_endpoint(self) -> int:
        return self._handle

    @property
    def ucp_worker(self) -> int:
        return self._ctx.ucp_worker

    @property
    def ucxx_worker(self) -> int:
        return self._ctx.ucxx_worker

    @property
    def cuda_support(self) -> bool:
        return self._ctx.context.cuda_support

    def info(self) -> ropeway.Info:
        """ropeway's own word on the connection: `transport`, `path`, `why`, `peer` and more."""
        return self._core.info()

    def ucx_info(self) -> str:
        """The same as text."""
        info = self.info()
        return (
            f"# endpoint {self._handle:#x}\n#   peer: {info.peer}\n"
            f"#   transport: {info.transport} ({info.path})\n#   why: {info.why}\n"
        )

    def _tags_text(self) -> str:
        return tags_text(self._handle, self._core, True)

    # ---- its end ----

    def abort(self, period: int = 10**10, max_attempts: int = 1) -> None:
        """Closes it, from any thread, without waiting.

        What is under way on this side ends with UCXCanceledError. What has been sent stays on its
        way to the peer, and can be received there.
        """
        ep, self._ep = self._ep, None
        self._ctx = None
        if ep is None:
            return
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug("Endpoint.abort(): 0x%x", self._handle)
        ep.close_blocking(period=0)

    async def close(self, period: int = 10**10, max_attempts: int = 1) -> None:
        """Closes it, and waits until the peer has what was sent, for 2 s at most.

        Receives end with UCXCanceledError. Sends that are under way go on, for 10 s at most.

        Parameters
        ----------
        period
            A shorter limit, in nanoseconds.
        """
        ep, self._ep = self._ep, None
        self._ctx = None
        if ep is None:
            return
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug("Endpoint.close(): 0x%x", self._handle)
        connection = self._connection
        op = connection.home.run(connection.close)
        if op is None or op.done():
            await asyncio.sleep(0)
            return
        limit = min(period * 1e-9, _CLOSE_S) if period else 0
        if limit:
            await asyncio.wait([op], timeout=limit)

    def set_close_callback(
        self, callback_func: Callable, cb_args: tuple | None = None, cb_kwargs: dict | None = None
    ) -> None:
        """Has `callback_func` called once, when either side has closed; at once if that was so
        already. What came before that can still be received."""
        if self._ep is None:
            raise UCXCloseError("Endpoint closed")
        self._ep.set_close_callback(callback_func, cb_args, cb_kwargs)

    # ---- waiting ----

    def _check(self) -> None:
        """Raises what makes it impossible to post."""
        if self._ep is None or self._connection.closed:
            raise UCXCloseError("Endpoint closed")
        if self._connection.ended is not None:
            raise of_end(*self._connection.ended)

    async def _wait(self, op: Any, sends: bool = False, keep: bool = False) -> Any:
        """The result of an operation that is under way; closing cancels it.

        With `keep` it goes on where only who waits is canceled.
        """
        connection = self._connection
        ops = connection.sending if sends else connection.pending
        ops.add(op)
        try:
            return await (asyncio.shield(op) if keep else op)
        except asyncio.CancelledError:
            if connection.closed and not _is_canceled():
                raise UCXCanceledError("Request canceled: the endpoint was closed") from None
            raise
        finally:
            if op.done():
                ops.discard(op)
            else:
                op.add_done_callback(ops.discard)

    async def _done(self, op: Any, sends: bool = False, keep: bool = False) -> Any:
        return op.result() if op.done() else await self._wait(op, sends, keep)

    def _tag(self, own: str, tag: Hashable, force_tag: bool) -> int:
        if tag is None:
            if self._tags is None:
                raise ValueError("An endpoint to a worker's address has no tags: give one")
            return self._tags[own]
        if isinstance(tag, UCXXTag):
            tag = tag.value
        if force_tag:
            return UCXXTag(tag).value
        if self._tags is None:
            raise ValueError("An endpoint to a worker's address needs force_tag=True")
        return hash64bits(self._tags[own], _number(tag))

    def _log(self, what: str, count: int, tag: int | None, buffer: Any) -> None:
        array_of = buffer if isinstance(buffer, Array) else Array(buffer)
        logger.debug(
            "[%s #%03d] ep: 0x%x, %snbytes: %d, type: %s",
            what,
            count,
            self._handle,
            "" if tag is None else f"tag: 0x{tag:016x}, ",
            array_of.nbytes,
            type(array_of.obj),
        )

    # ---- tagged messages ----

    async def send(self, buffer: Any, tag: Hashable = None, force_tag: bool = False) -> None:
        """Sends a message. Done when the buffer can be used again.

        Parameters
        ----------
        buffer
            An object with the buffer protocol, or with ``__cuda_array_interface__``.
        tag
            The receive has to have the same. It is hashed with the connection's own.
        force_tag
            `tag`, a number of 64 bits, is taken as it is.

        Raises
        ------
        UCXCloseError
            This side has closed the endpoint.
        UCXConnectionResetError
            The peer has, or has died.
        UCXCanceledError
            This side has closed it meanwhile.
        """
        if self._ep is None or not self._connection.alive:
            self._check()
        number = self._send_tag if tag is None else self._tag("msg_send", tag, force_tag)
        if number is None:
            self._tag("msg_send", tag, force_tag)
        if logger.isEnabledFor(logging.DEBUG):
            self._log("Send", self._send_count, number, buffer)
        self._send_count += 1
        try:
            op = self._core.send(buffer.buffer if type(buffer) is Array else buffer, number)
            if op.done():
                op.result()
            else:
                await self._wait(op, True)
        except ropeway.Error as error:
            raise of_failure(error) from None

    async def recv(self, buffer: Any, tag: Hashable = None, force_tag: bool = False) -> None:
        """Receives a message into `buffer`, which may be longer: the rest of it stays as it was.

        Parameters
        ----------
        buffer
            A writable object with the buffer protocol, or with ``__cuda_array_interface__``.
        tag, force_tag
            As for `send`.

        Raises
        ------
        UCXMessageTruncatedError
            The message is longer; it is lost then.
        UCXCanceledError
            Either side has closed, or the peer has died, before a message came.
        UCXCloseError, UCXConnectionResetError
            That was so already, and no message is left.
        """
        if type(buffer) is Array:
            buffer = buffer.buffer
        connection = self._connection
        number = self._recv_tag if tag is None else self._tag("msg_recv", tag, force_tag)
        if number is None:
            self._tag("msg_recv", tag, force_tag)
        if self._ep is None:
            raise UCXCloseError("Endpoint closed")
        if logger.isEnabledFor(logging.DEBUG):
            self._log("Recv", self._recv_count, number, buffer)
        self._recv_count += 1
        op = connection.recv(buffer, number, ALL, not force_tag or tag is None)
        try:
            op.result() if op.done() else await self._wait(op)
        except ropeway.Error as error:
            raise mapped(error, True, _nbytes(buffer)) from None
        except asyncio.CancelledError:
            if connection.ended is not None and op.cancelled() and not _is_canceled():
                raise UCXCanceledError(f"Request canceled: {connection.ended[1]}") from None
            raise
        self._received()

    def tag_probe(
        self, tag: Hashable = None, force_tag: bool = False, remove: bool = False
    ) -> TagProbeResult:
        """Is there a message for such a receive? It stays, unless `remove` takes it out of the
        queue, for `recv_with_handle`."""
        if self._ctx is None:
            raise UCXCloseError("Endpoint closed")
        return self._ctx.worker.tag_probe(
            UCXXTag(self._tag("msg_recv", tag, force_tag)), remove=remove
        )

    async def recv_with_handle(self, buffer: Any, probe_result: TagProbeResult) -> None:
        """Receives a message that `tag_probe` has taken out of the queue."""
        if self._ctx is None:
            raise UCXCloseError("Endpoint closed")
        self._recv_count += 1
        await self._ctx.recv_with_handle(buffer, probe_result)
        self._received()

    # ---- several buffers in one posting ----

    async def send_multi(
        self, buffers: list | tuple, tag: Hashable = None, force_tag: bool = False
    ) -> None:
        """Sends several buffers to `recv_multi`, all posted at once.

        Arguments and errors as for `send`.
        """
        self._check()
        if not isinstance(buffers, (list, tuple)):
            raise ValueError("The `buffers` argument must be a `list` or `tuple`")
        arrays = [b if isinstance(b, Array) else Array(b) for b in buffers]
        number = self._tag("msg_send", tag, force_tag)
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug(
                "[Send Multi #%03d] ep: 0x%x, tag: 0x%016x, nbytes: %s, type: %s",
                self._send_count,
                self._handle,
                number,
                tuple(a.nbytes for a in arrays),
                tuple(type(a.obj) for a in arrays),
            )
        self._send_count += 1
        try:
            await self._done(self._connection.send_multi(arrays, number), True)
        except ropeway.Error as error:
            raise of_failure(error) from None

    async def recv_multi(self, tag: Hashable = None, force_tag: bool = False) -> list[Any]:
        """Receives what one `send_multi` has sent: a list of buffers, made for it.

        Errors as for `recv`.
        """
        if self._ep is None:
            raise UCXCloseError("Endpoint closed")
        number = self._tag("msg_recv", tag, force_tag)
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug(
                "[Recv Multi #%03d] ep: 0x%x, tag: 0x%016x", self._recv_count, self._handle, number
            )
        self._recv_count += 1
        connection = self._connection
        try:
            buffers = await connection.recv_multi(number, not force_tag or tag is None, self._done)
        except ropeway.Error as error:
            raise mapped(error, True) from None
        except asyncio.CancelledError:
            if not connection.alive and not _is_canceled():
                raise UCXCanceledError("Request canceled: the endpoint was closed") from None
            raise
        self._received()
        return buffers

    # ---- active messages ----

    async def am_send(self, buffer: Any) -> None:
        """Sends an active message: the peer takes it whether it has asked for it or not."""
        self._check()
        a = buffer if isinstance(buffer, Array) else Array(buffer)
        if logger.isEnabledFor(logging.DEBUG):
            self._log("AM Send", self._send_count, None, a)
        self._send_count += 1
        try:
            await self._done(self._connection.am_send(a), True)
        except ropeway.Error as error:
            raise of_failure(error) from None

    async def am_recv(self) -> Any:
        """The next active message, in memory of its own."""
        if self._ep is None:
            raise UCXCloseError("Endpoint closed")
        self._recv_count += 1
        promise = self._connection.am_recv()
        if not promise.done():
            future = asyncio.get_running_loop().create_future()
            promise.add_done_callback(lambda _: future.done() or future.set_result(None))
            try:
                await future
            except asyncio.CancelledError:
                promise.fail(UCXCanceledError("Request canceled"))
                raise
        if promise.error is not None:
            raise promise.error
        buffer = promise.value
        if logger.isEnabledFor(logging.DEBUG):
            self._log("AM Recv Completed", self._recv_count, None, buffer)
        self._received()
        return buffer

    def am_probe(self) -> bool:
        """Is there an active message?"""
        return self._connection.am_probe()


def _is_canceled() -> bool:
    """Was this task canceled by somebody, rather than an operation that it waits for?"""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
