# SPDX-License-Identifier: BSD-3-Clause
# mypy: disable-error-code="override"
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, TypeVar, overload

from . import Info, MemoryDoor, Statistics
from . import _core as core
from ._core import Received, RemoteKey
from ._types import Buffer

T = TypeVar("T")
__all__ = ["Context", "Endpoint", "Listener", "connect"]

# Each call blocks, `timeout` seconds at most (None: no limit); ropeway.Timeout where that runs out.
class Endpoint(core.Endpoint):
    @property
    def start(self) -> core.Endpoint: ...  # the same calls, begun: they give an Operation
    def send(self, buf: Buffer, tag: int = 0, timeout: float | None = None) -> None: ...
    def recv(
        self, buf: Buffer, tag: int = 0, mask: int = ..., timeout: float | None = None
    ) -> Received: ...
    def send_many(
        self, bufs: Iterable[Buffer], tags: int | Sequence[int] = 0, timeout: float | None = None
    ) -> None: ...
    def recv_many(
        self,
        bufs: Iterable[Buffer],
        tags: int | Sequence[int] = 0,
        mask: int = ...,
        timeout: float | None = None,
    ) -> list[Received]: ...
    def send_obj(self, buf: Buffer, timeout: float | None = None) -> None: ...
    @overload
    def recv_obj(self, *, timeout: float | None = None) -> bytearray: ...
    @overload
    def recv_obj(self, allocator: Callable[[int], T], timeout: float | None = None) -> T: ...
    def am_send(
        self, id: int, data: Buffer, header: Buffer = b"", timeout: float | None = None
    ) -> None: ...
    def put(
        self, rkey: RemoteKey, offset: int, buf: Buffer, timeout: float | None = None
    ) -> None: ...
    def put_notify(
        self,
        rkey: RemoteKey,
        offset: int,
        buf: Buffer,
        data: int,
        timeout: float | None = None,
    ) -> None: ...
    def get(
        self, rkey: RemoteKey, offset: int, buf: Buffer, timeout: float | None = None
    ) -> None: ...
    def fetch_add(
        self, rkey: RemoteKey, offset: int, add: int, timeout: float | None = None
    ) -> int: ...
    def compare_swap(
        self,
        rkey: RemoteKey,
        offset: int,
        compare: int,
        swap: int,
        timeout: float | None = None,
    ) -> int: ...
    def flush(self, timeout: float | None = None) -> None: ...
    def shutdown(self, timeout: float | None = None) -> None: ...
    def info(self) -> Info: ...
    def __enter__(self) -> Endpoint: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

class Listener:
    @property
    def port(self) -> int: ...
    @property
    def address(self) -> str: ...
    @property
    def closed(self) -> bool: ...
    def accept(self, timeout: float | None = None) -> Endpoint: ...
    def close(self) -> None: ...
    def __enter__(self) -> Listener: ...
    def __exit__(self, *exc: object) -> None: ...

class Context(core.Context):
    def __init__(
        self, transports: str | None = None, key_file: str | None = None, **options: Any
    ) -> None: ...
    @property
    def memory(self) -> MemoryDoor: ...
    def statistics(self) -> Statistics: ...
    def connect(
        self,
        address: str,
        *,
        transports: str | None = None,
        timeout: float = 10.0,
        retry: bool = True,
    ) -> Endpoint: ...
    def listen(self, address: str = "127.0.0.1:0") -> Listener: ...
    def recv(
        self, buf: Buffer, tag: int = 0, mask: int = ..., timeout: float | None = None
    ) -> Received: ...
    def recv_many(
        self,
        bufs: Iterable[Buffer],
        tags: int | Sequence[int] = 0,
        mask: int = ...,
        timeout: float | None = None,
    ) -> list[Received]: ...
    @overload
    def recv_obj(self, *, timeout: float | None = None) -> bytearray: ...
    @overload
    def recv_obj(self, allocator: Callable[[int], T], timeout: float | None = None) -> T: ...
    def __enter__(self) -> Context: ...
    def __exit__(self, *exc: object) -> None: ...

def connect(
    address: str,
    *,
    transports: str | None = None,
    timeout: float = 10.0,
    retry: bool = True,
    **options: Any,
) -> Endpoint: ...
