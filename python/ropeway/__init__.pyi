# SPDX-License-Identifier: BSD-3-Clause
from asyncio import AbstractEventLoop
from collections.abc import AsyncIterator, Awaitable, Callable
from enum import IntEnum, IntFlag
from types import TracebackType
from typing import Any

from . import _core as core, blocking as blocking
from ._core import Memory as Memory, Operation as Operation
from ._core import Received as Received, RemoteKey as RemoteKey
from ._types import Buffer

__version__: str
ALL: int

class Status(IntEnum):
    OK = 0
    IN_PROGRESS = 1
    INVALID = -1
    NO_MEMORY = -2
    TIMEOUT = -3
    CANCELED = -4
    TRUNCATED = -5
    UNREACHABLE = -6
    REFUSED = -7
    PEER_GONE = -8
    ACCESS = -9
    PROTOCOL = -10
    NOT_SUPPORTED = -11
    LIMIT = -12
    SYSTEM = -13
    EXPIRED = -14

class Access(IntFlag):
    NONE = 0
    WRITE = 1
    READ = 2
    ATOMIC = 4

class Protection(IntEnum):
    NONE = 0
    KERNEL = 1
    TLS = 2

class Error(Exception):
    status: Status
    sentence: str  # what was expected, what came, what to do
    peer: str | None  # "host:pid 10.0.0.2:4711"
    length: int | None  # TRUNCATED: bytes of the whole message
    def __init__(
        self,
        status: int,
        sentence: str = "",
        peer: str | None = None,
        length: int | None = None,
    ) -> None: ...

class Timeout(Error, TimeoutError):
    """Status TIMEOUT (the peer was silent) or EXPIRED (a wait of this side ran out of time)."""

class Info:
    @property
    def transport(self) -> str: ...  # "shm", "verbs", "tcp", "ncclnet"; "" before it is connected
    @property
    def path(self) -> str: ...
    @property
    def why(self) -> str: ...
    @property
    def peer(self) -> str: ...
    @property
    def connected(self) -> bool: ...
    @property
    def status(self) -> Status: ...
    @property
    def eager_bytes_max(self) -> int: ...
    @property
    def protection(self) -> Protection: ...

class Statistics:
    @property
    def sent(self) -> int: ...
    @property
    def received(self) -> int: ...
    @property
    def bytes_sent(self) -> int: ...
    @property
    def bytes_received(self) -> int: ...
    @property
    def unexpected(self) -> int: ...
    @property
    def unexpected_bytes(self) -> int: ...
    @property
    def waited_for_room(self) -> int: ...
    @property
    def strangers_refused(self) -> int: ...
    @property
    def path_changes(self) -> int: ...
    @property
    def endpoints(self) -> int: ...
    @property
    def listeners(self) -> int: ...
    @property
    def requests(self) -> int: ...
    @property
    def unsent(self) -> int: ...

class MemoryDoor:
    def register(self, buf: Buffer, access: Access | int = ...) -> Memory: ...
    def allocate(self, size: int, access: Access | int = ...) -> Memory: ...

class Endpoint(core.Endpoint):
    async def __aenter__(self) -> Endpoint: ...
    # An orderly end (shutdown, 5 s at most), unless there was an exception; then close().
    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
    def info(self) -> Info: ...

class Context(core.Context):
    @property
    def memory(self) -> MemoryDoor: ...
    def statistics(self) -> Statistics: ...
    async def connect(
        self,
        address: str,
        *,
        transports: str | None = None,
        timeout: float = 10.0,
        retry: bool = True,
    ) -> Endpoint: ...
    def listen(
        self,
        address: str = "127.0.0.1:0",
        callback: Callable[[Endpoint], object] | Callable[[Endpoint], Awaitable[object]] | None = None,
    ) -> Listener: ...
    def __enter__(self) -> Context: ...
    def __exit__(self, *exc: object) -> None: ...

class Listener:
    @property
    def port(self) -> int: ...
    @property
    def address(self) -> str: ...
    @property
    def closed(self) -> bool: ...
    def close(self) -> None: ...  # ends the iteration; accepted endpoints stay
    async def accept(self) -> Endpoint: ...
    def __aiter__(self) -> AsyncIterator[Endpoint]: ...
    async def __anext__(self) -> Endpoint: ...
    async def __aenter__(self) -> Listener: ...
    async def __aexit__(self, *exc: object) -> None: ...

# The context of the running loop (or of `loop`), made when first asked for. It closes with its loop.
def context(loop: AbstractEventLoop | None = None) -> Context: ...
async def connect(
    address: str,
    *,
    transports: str | None = None,
    timeout: float = 10.0,
    retry: bool = True,
    context: Context | None = None,
) -> Endpoint: ...
def listen(
    address: str = "127.0.0.1:0",
    callback: Callable[[Endpoint], object] | Callable[[Endpoint], Awaitable[object]] | None = None,
    *,
    context: Context | None = None,
) -> Listener: ...
