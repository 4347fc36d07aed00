# SPDX-License-Identifier: BSD-3-Clause
"""The same without a loop: every operation blocks until it is done, `timeout` seconds at most.

    with ropeway.blocking.Context() as c:
        ep = c.connect("127.0.0.1:7400")
        ep.send(b"hello", tag=1)

An operation whose time is up is withdrawn, and raises ropeway.Timeout (status EXPIRED): its buffer
is the program's again as soon as no byte moves. `ep.start` has the same calls without waiting.
"""

from __future__ import annotations

# mypy: disable-error-code="override, assignment"
import collections
import time
from typing import TYPE_CHECKING, TypeVar, overload

from . import _core as core
from ._aio import LOAN_LOOK_S, ContextBase, Info, ListenerBase, info_of
from ._core import ALL
from ._errors import Error, Status, Timeout
from ._types import text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from types import TracebackType
    from typing import Any

    from ._core import Received, RemoteKey
    from ._types import Address, Buffer

T = TypeVar("T")
__all__ = ["Context", "Endpoint", "Listener", "connect"]


def _finish(op: core.Operation[T], timeout: float | None) -> T:
    try:
        return op.wait(timeout)
    except Timeout as e:
        if e.status == Status.EXPIRED and not op.cancel() and op.done():
            return op.result()  # it came in the last moment
        raise


class Endpoint(core.Endpoint):
    """One end of a connection. Its calls block; see ropeway.core.Endpoint for each."""

    __slots__ = ()

    @property
    def start(self) -> core.Endpoint:
        """The same calls, begun: they give an Operation (done, wait, cancel, result)."""
        return _Start(self)  # type: ignore[return-value]

    # in one call of C's
    send = core.Endpoint._send_block
    recv = core.Endpoint._recv_block

    def send_many(
        self, bufs: Iterable[Buffer], tags: int | Sequence[int] = 0, timeout: float | None = None
    ) -> None:
        """A send of each."""
        return _finish(core.Endpoint.send_many(self, bufs, tags), timeout)

    def recv_many(
        self,
        bufs: Iterable[Buffer],
        tags: int | Sequence[int] = 0,
        mask: int = ALL,
        timeout: float | None = None,
    ) -> list[Received]:
        """A receive into each; gives a list of Received."""
        return _finish(core.Endpoint.recv_many(self, bufs, tags, mask), timeout)

    def loan(
        self, nbytes: int, writable: bool = False, timeout: float | None = None
    ) -> core.Loan:
        """Memory for one message; where all is out it waits for the peer."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            try:
                return core.Endpoint.loan(self, nbytes, writable)
            except Error as e:
                late = until is not None and time.monotonic() >= until
                if e.status != Status.LIMIT or late or nbytes > self.info().loan_bytes_max:
                    raise
            self.context.wait(LOAN_LOOK_S)

    def send_loan(
        self,
        loan: core.Loan,
        tag: int = 0,
        nbytes: int | None = None,
        timeout: float | None = None,
    ) -> None:
        """Passes it on."""
        return _finish(core.Endpoint.send_loan(self, loan, tag, nbytes), timeout)

    def recv_view(self, tag: int = 0, mask: int = ALL, timeout: float | None = None) -> core.View:
        """Gives the message where it lies."""
        return _finish(core.Endpoint.recv_view(self, tag, mask), timeout)

    def send_obj(self, buf: Buffer, timeout: float | None = None) -> None:
        """Until the receiver has taken it."""
        return _finish(core.Endpoint.send_obj(self, buf), timeout)

    @overload
    def recv_obj(self, *, timeout: float | None = None) -> bytearray: ...
    @overload
    def recv_obj(self, allocator: Callable[[int], T], timeout: float | None = None) -> T: ...
    def recv_obj(self, allocator: Any = bytearray, timeout: float | None = None) -> Any:
        """Gives what the allocator gave, filled."""
        return _finish(core.Endpoint.recv_obj(self, allocator), timeout)

    def am_send(
        self, id: int, data: Buffer, header: Buffer = b"", timeout: float | None = None
    ) -> None:
        """Until `data` can be used again."""
        return _finish(core.Endpoint.am_send(self, id, data, header), timeout)

    def put(self, rkey: RemoteKey, offset: int, buf: Buffer, timeout: float | None = None) -> None:
        """Until the buffer can be used again."""
        return _finish(core.Endpoint.put(self, rkey, offset, buf), timeout)

    def put_notify(
        self, rkey: RemoteKey, offset: int, buf: Buffer, data: int, timeout: float | None = None
    ) -> None:
        """Likewise; the peer learns of it."""
        return _finish(core.Endpoint.put_notify(self, rkey, offset, buf, data), timeout)

    def get(self, rkey: RemoteKey, offset: int, buf: Buffer, timeout: float | None = None) -> None:
        """Until the bytes are here."""
        return _finish(core.Endpoint.get(self, rkey, offset, buf), timeout)

    def fetch_add(
        self, rkey: RemoteKey, offset: int, add: int, timeout: float | None = None
    ) -> int:
        """Gives the value that was there."""
        return _finish(core.Endpoint.fetch_add(self, rkey, offset, add), timeout)

    def compare_swap(
        self, rkey: RemoteKey, offset: int, compare: int, swap: int, timeout: float | None = None
    ) -> int:
        """Gives the value that was there."""
        return _finish(core.Endpoint.compare_swap(self, rkey, offset, compare, swap), timeout)

    def flush(self, timeout: float | None = None) -> None:
        """Until everything posted before is done on the peer's side."""
        return _finish(core.Endpoint.flush(self), timeout)

    def shutdown(self, timeout: float | None = None) -> None:
        """The orderly end."""
        return _finish(core.Endpoint.shutdown(self), timeout)

    def info(self) -> Info:
        """Which path it has and why, as ropeway.Info."""
        return info_of(self)

    def __enter__(self) -> Endpoint:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None and not self.closed:
                self.shutdown(timeout=5.0)
        except Error:
            pass  # the peer has gone, or does not answer
        finally:
            self.close()


class _Start:
    """The calls of core.Endpoint on an endpoint whose own calls block."""

    __slots__ = ("_ep",)

    def __init__(self, ep: Endpoint) -> None:
        self._ep = ep

    def __getattr__(self, name: str) -> Any:
        return getattr(core.Endpoint, name).__get__(self._ep)


class Listener(ListenerBase):
    """Waits for peers: accept(timeout)."""

    def __init__(self, context: Context, address: Address) -> None:
        self._context = context
        self._ready: collections.deque[Endpoint] = collections.deque()
        self._core = context._listen(text_of(address), self._ready.append)  # type: ignore[arg-type]

    def accept(self, timeout: float | None = None) -> Endpoint:
        """The next endpoint; ropeway.Timeout (EXPIRED) where none came within `timeout` seconds."""
        from time import monotonic

        until = None if timeout is None else monotonic() + timeout
        while not self._ready:
            if self._core.closed:
                raise Error(Status.CANCELED, "the listener was closed")
            left = None if until is None else max(0.0, until - monotonic())
            if not self._context.wait(left) and not self._ready and left is not None:
                if monotonic() >= until:
                    raise Timeout(Status.EXPIRED, f"nobody connected within {timeout} s")
        return self._ready.popleft()

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class Context(ContextBase):
    """All that one thread has; arguments as of ropeway.Context, without a loop."""

    __slots__ = ()

    def __init__(
        self, transports: str | None = None, key_file: str | None = None, **options: Any
    ) -> None:
        super().__init__(None, transports, key_file, **options)
        self.endpoint_class = Endpoint

    def connect(
        self,
        address: Address,
        *,
        transports: str | None = None,
        timeout: float = 10.0,
        retry: bool = True,
    ) -> Endpoint:
        """Connects to a listener; gives an Endpoint. Errors as of ropeway.connect."""
        ep, connected = self._connect(text_of(address), transports, timeout, retry)
        try:
            connected.wait(None)
        except BaseException:
            ep.close()
            raise
        return ep  # type: ignore[return-value]  # of endpoint_class

    def listen(self, address: Address = "127.0.0.1:0") -> Listener:
        """Waits for peers."""
        return Listener(self, address)

    def recv(
        self, buf: Buffer, tag: int = 0, mask: int = ALL, timeout: float | None = None
    ) -> Received:
        """From any endpoint; Received.endpoint says from which."""
        return _finish(core.Context.recv(self, buf, tag, mask), timeout)

    def recv_view(self, tag: int = 0, mask: int = ALL, timeout: float | None = None) -> core.View:
        """From any endpoint."""
        return _finish(core.Context.recv_view(self, tag, mask), timeout)

    def recv_many(
        self,
        bufs: Iterable[Buffer],
        tags: int | Sequence[int] = 0,
        mask: int = ALL,
        timeout: float | None = None,
    ) -> list[Received]:
        """From any endpoint."""
        return _finish(core.Context.recv_many(self, bufs, tags, mask), timeout)

    @overload
    def recv_obj(self, *, timeout: float | None = None) -> bytearray: ...
    @overload
    def recv_obj(self, allocator: Callable[[int], T], timeout: float | None = None) -> T: ...
    def recv_obj(self, allocator: Any = bytearray, timeout: float | None = None) -> Any:
        """From any endpoint."""
        return _finish(core.Context.recv_obj(self, allocator), timeout)

    def __enter__(self) -> Context:
        return self


def connect(
    address: Address,
    *,
    transports: str | None = None,
    timeout: float = 10.0,
    retry: bool = True,
    **options: Any,
) -> Endpoint:
    """An endpoint with a context of its own, which lives as long as the endpoint."""
    return Context(**options).connect(address, transports=transports, timeout=timeout, retry=retry)
