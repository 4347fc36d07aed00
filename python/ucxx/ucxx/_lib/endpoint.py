# SPDX-License-Identifier: BSD-3-Clause
"""UCXEndpoint: one end of a connection, without asyncio."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Callable

from ropeway._ucx.calls import Feature, needs

from .._connection import Connection, Promise, connect
from ..exceptions import UCXCloseError, UCXError, of_end
from .address import UCXAddress
from .arr import Array
from .context import Numbered, UCXContext, handles
from .request import TagProbeResult, UCXBufferRequests, UCXRequest, recv_taken
from .tag import UCXXTag, UCXXTagMask, UCXXTagMaskFull

if TYPE_CHECKING:
    from .listener import UCXListener
    from .worker import UCXWorker


def _abandon(connection: Connection) -> None:
    """Whoever had the endpoint has dropped it."""
    if not connection.closed:
        connection.home.run(connection.close, True)


class UCXEndpoint(Numbered):
    """One end of a connection to another worker."""

    def __init__(self) -> None:
        raise TypeError("UCXEndpoint cannot be instantiated directly.")

    @classmethod
    def _of(cls, connection: Connection, context: UCXContext, worker_handle: int) -> UCXEndpoint:
        self = object.__new__(cls)
        self.connection = connection
        self.handle = next(handles)
        self.worker_handle = worker_handle
        self._features = context.features
        self._finalizer = weakref.finalize(self, _abandon, connection)
        return self

    @classmethod
    def _connect(cls, worker: UCXWorker, address: str, timeout: float) -> UCXEndpoint:
        home = worker.home()
        connection, op = home.run(connect, home, address, timeout)
        self = cls._of(connection, worker._context, worker.handle)
        #: Done when the connection stands.
        self.connected = op
        return self

    @classmethod
    def create(
        cls,
        worker: UCXWorker,
        ip_address: str,
        port: int,
        endpoint_error_handling: bool = True,
        connect_timeout: float = 10.0,
    ) -> UCXEndpoint:
        """Begins to connect to a listener; what is posted meanwhile waits."""
        host = f"[{ip_address}]" if ":" in ip_address else ip_address
        return cls._connect(worker, f"{host}:{port}", connect_timeout)

    @classmethod
    def create_from_worker_address(
        cls,
        worker: UCXWorker,
        address: UCXAddress,
        endpoint_error_handling: bool = True,
        connect_timeout: float = 10.0,
    ) -> UCXEndpoint:
        """Begins to connect to a worker."""
        return cls._connect(worker, address._text(), connect_timeout)

    @classmethod
    def create_from_conn_request(
        cls, listener: UCXListener, conn_request: int, endpoint_error_handling: bool = True
    ) -> UCXEndpoint:
        """The endpoint of a connection that a listener has told of."""
        return listener._claim(conn_request)

    @property
    def ucxx_worker_ptr(self) -> int:
        return self.worker_handle

    @property
    def alive(self) -> bool:
        """Neither side has closed it."""
        return self.connection.alive

    def raise_on_error(self) -> None:
        """Raises the error that the endpoint has ended with, if its peer has ended it."""
        ended = self.connection.ended
        if ended is not None:
            raise of_end(*ended)

    # ---- its end ----

    def set_close_callback(
        self, cb_func: Callable, cb_args: tuple | None = None, cb_kwargs: dict | None = None
    ) -> None:
        """Has `cb_func` called once, when either side has closed; at once if one already has."""
        args, kwargs = cb_args or (), cb_kwargs or {}
        self._run(self.connection.set_callback, lambda: cb_func(*args, **kwargs))

    def remove_close_callback(self) -> None:
        self.connection.set_callback(None)

    def close(self) -> UCXRequest:
        """Closes it; the request is done when the peer has all that was sent."""
        return UCXRequest(self.connection.home, self._run(self.connection.close))

    def close_blocking(self, period: int = 0, max_attempts: int = 1) -> None:
        """Closes it abruptly: what is under way is canceled, what has been sent arrives.

        Outside of a loop it waits until the peer has that, `period` ns at most.
        """
        home = self.connection.home
        if self.connection.closed:
            return
        if home.gone:
            self.connection.closed = True
            return
        self._run(self.connection.close, True)
        if home.loop is None and period:
            home.run(home.drain, min(period * 1e-9, 1.0))

    def _run(self, fn: Callable, *args: Any) -> Any:
        return self.connection.home.run(fn, *args)

    def _post(
        self,
        fn: Callable,
        *args: Any,
        is_recv: bool = False,
        room: int | None = None,
        exactly: bool = False,
    ) -> UCXRequest:
        home = self.connection.home
        if home.gone:
            return UCXRequest(home, error=UCXCloseError("Endpoint closed"))
        try:
            op = home.run(fn, *args)
        except UCXError as error:
            return UCXRequest(home, error=error)
        if not isinstance(op, Promise):
            self._run(self.connection.watch, op, not is_recv)
        return UCXRequest(home, op, is_recv=is_recv, room=room, exactly=exactly)

    # ---- tagged messages ----

    def tag_send(self, arr: Array, tag: UCXXTag) -> UCXRequest:
        needs(Feature.TAG, self._features)
        return self._post(self.connection.send, arr.buffer, int(tag))

    def tag_recv(
        self, arr: Array, tag: UCXXTag, tag_mask: UCXXTagMask = UCXXTagMaskFull
    ) -> UCXRequest:
        needs(Feature.TAG, self._features)
        return self._post(
            self.connection.recv,
            arr.buffer,
            int(tag),
            int(tag_mask),
            is_recv=True,
            room=arr.nbytes,
        )

    def tag_recv_with_handle(self, arr: Array, probe_result: TagProbeResult) -> UCXRequest:
        """Receives a message that the worker's `tag_probe` has taken out of the queue."""
        needs(Feature.TAG, self._features)
        return recv_taken(self.connection.home, arr, probe_result)

    def tag_send_multi(self, arrays: tuple[Array, ...], tag: UCXXTag) -> UCXBufferRequests:
        """Sends several buffers in one posting."""
        for a in arrays:
            if not isinstance(a, Array):
                raise ValueError("All elements of the `arrays` should be of `Array` type")
        home = self.connection.home
        try:
            op = self._run(self.connection.send_multi, arrays, int(tag))
        except UCXError as error:
            return UCXBufferRequests(home, error=error)
        self._run(self.connection.watch, op, True)
        return UCXBufferRequests(home, op)

    def tag_recv_multi(
        self, tag: UCXXTag | int, tag_mask: UCXXTagMask = UCXXTagMaskFull
    ) -> UCXBufferRequests:
        """Receives what one `tag_send_multi` has sent, into memory that is made for it."""
        home = self.connection.home
        promise = self._run(self.connection.begin_recv_multi, int(tag))
        return UCXBufferRequests(home, promise, is_recv=True)

    # ---- streams: bytes without a tag, in the order sent ----

    def _check_stream(self, arr: Array) -> None:
        needs(Feature.STREAM, self._features)
        if arr.nbytes == 0:
            raise RuntimeError("A stream has no messages: there is nothing to send or receive")

    def stream_send(self, arr: Array) -> UCXRequest:
        self._check_stream(arr)
        return self._post(self.connection.stream_send, arr.buffer)

    def stream_recv(self, arr: Array) -> UCXRequest:
        self._check_stream(arr)
        return self._post(
            self.connection.stream_recv, arr.buffer, is_recv=True, room=arr.nbytes, exactly=True
        )

    # ---- active messages ----

    def am_probe(self) -> bool:
        """Is there an active message?"""
        return self.connection.am_probe()

    def am_send(self, arr: Array) -> UCXRequest:
        needs(Feature.AM, self._features)
        return self._post(self.connection.am_send, arr)

    def am_recv(self) -> UCXRequest:
        """The next active message; the request's `recv_buffer` has it."""
        needs(Feature.AM, self._features)
        home = self.connection.home
        return UCXRequest(home, self._run(self.connection.am_recv), is_recv=True)
