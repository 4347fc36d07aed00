# SPDX-License-Identifier: BSD-3-Clause
"""The asyncio layer: a context for each loop, connect and listen, ends in order."""

from __future__ import annotations

import asyncio
import collections
import os
import time
import weakref
from enum import IntEnum, IntFlag
from typing import TYPE_CHECKING, NamedTuple

from . import _core as core
from ._errors import Error, Status
from ._types import text_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Any

    from ._types import Address, Buffer


class Access(IntFlag):
    """What peers may do with registered memory."""

    NONE = 0
    WRITE = 1
    READ = 2
    ATOMIC = 4


FULL_ACCESS = Access.WRITE | Access.READ | Access.ATOMIC


class Protection(IntEnum):
    """Of what goes over a path. NONE: who is between the two can read and change it. KERNEL:
    shared memory, which the kernel opens only to this user. TLS: TLS 1.3, there is a key."""

    NONE = 0
    KERNEL = 1
    TLS = 2


class Info(NamedTuple):
    """Which path an endpoint has, and why."""

    transport: str  # "shm", "verbs", "tcp", "ncclnet"; "" before it is connected
    path: str
    why: str
    peer: str
    connected: bool
    status: Status  # why it ended
    eager_bytes_max: int
    protection: Protection
    loan_bytes: int  # on loan now: held by this program, or by the peer
    loan_bytes_max: int
    view_bytes: int  # of the peer's loans, in views of this program


class Statistics(NamedTuple):
    """What a context has done: messages of all kinds and bytes since it was made."""

    sent: int
    received: int
    bytes_sent: int
    bytes_received: int
    unexpected: int  # came before their receive
    unexpected_bytes: int  # of them, held now
    waited_for_room: int
    strangers_refused: int
    path_changes: int
    endpoints: int  # now, as listeners and requests (operations under way)
    listeners: int
    requests: int
    unsent: int  # not 0 while something is still to go out


def info_of(ep: core.Endpoint) -> Info:
    transport, path, why, peer, connected, status, eager, protection, *loans = ep._info()
    return Info(
        transport, path, why, peer, connected, Status(status), eager, Protection(protection), *loans
    )


class MemoryDoor:
    """Context.memory: memory that peers can reach."""

    def __init__(self, context: core.Context) -> None:
        self._context = context

    def register(self, buf: Buffer, access: int = FULL_ACCESS) -> core.Memory:
        """Registers memory of the program's (writable where peers may write), which is held until
        the Memory is closed. access: what peers may do, who have its rkey()."""
        return self._context._register(buf, access)

    def allocate(self, size: int, access: int = FULL_ACCESS) -> core.Memory:
        """`size` zeroed bytes that peers on this host can map: put and get are plain copies then.
        The Memory is a writable buffer: numpy.asarray(memory), memoryview(memory)."""
        return self._context._allocate(size, access)


class Endpoint(core.Endpoint):
    """One end of a connection: `async with await ropeway.connect(...) as ep` ends in order."""

    __slots__ = ()

    def info(self) -> Info:
        """Which path it has and why, as Info. Error (INVALID) after close()."""
        return info_of(self)

    async def wait_loan(
        self, nbytes: int, writable: bool = False, timeout: float | None = None
    ) -> core.Loan:
        """As loan(), but where all is out it waits for the peer, `timeout` seconds at most."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            try:
                return self.loan(nbytes, writable)
            except Error as e:
                late = until is not None and time.monotonic() >= until
                if e.status != Status.LIMIT or late or nbytes > self.info().loan_bytes_max:
                    raise
            await asyncio.sleep(LOAN_LOOK_S)  # nobody is woken when a loan comes back

    async def __aenter__(self) -> Endpoint:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """An orderly end (shutdown, 5 s at most), unless there was an exception; then close()."""
        try:
            if kind is None and not self.closed:
                async with asyncio.timeout(SHUTDOWN_S):
                    await self.shutdown()
        except (Error, TimeoutError):
            pass  # the peer has gone, or does not answer: there is nobody to tell
        finally:
            self.close()


SHUTDOWN_S = 5.0
LOAN_LOOK_S = 0.001


class ListenerBase:
    """What listeners with and without a loop have."""

    _core: core.Listener
    _ready: collections.deque[Any]

    @property
    def port(self) -> int:
        """The TCP port, 1 to 65535."""
        return self._core.port

    @property
    def address(self) -> str:
        """Text that connect() takes in any process, on any host: all addresses it is at."""
        return self._core.address

    @property
    def closed(self) -> bool:
        """True after close()."""
        return self._core.closed

    def close(self) -> None:
        """Ends it; accepted endpoints stay, those that nobody took close."""
        self._core.close()
        self._ready.clear()


class ContextBase(core.Context):
    """What contexts with and without a loop have."""

    __slots__ = ("__weakref__",)

    @property
    def memory(self) -> MemoryDoor:
        """Memory that peers can reach: register and allocate."""
        return MemoryDoor(self)

    def statistics(self) -> Statistics:
        """What it has done, as Statistics."""
        return Statistics(*self._statistics())

    def __exit__(self, *exc: object) -> None:
        self.close()


class Listener(ListenerBase):
    """Waits for peers: `async for ep in listener`, or its callback. Ends with close(), `async
    with`, or when nobody holds it any more."""

    def __init__(
        self, context: Context, address: Address, callback: Callable[[Endpoint], object] | None
    ) -> None:
        self._context = context
        self._ready: collections.deque[Endpoint] = collections.deque()
        self._waiters: collections.deque[asyncio.Future[None]] = collections.deque()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._callback = callback
        me = weakref.ref(self)

        def accepted(ep: Any) -> None:
            listener = me()
            if listener is not None:
                listener._accepted(ep)

        self._core = context._listen(text_of(address), accepted)

    def _accepted(self, ep: Endpoint) -> None:
        if self._callback is None:
            self._ready.append(ep)
            self._wake()
            return
        r = self._callback(ep)
        if asyncio.iscoroutine(r):
            task = self._context.loop.create_task(r)
            self._tasks.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._context.loop.call_exception_handler(
                {
                    "message": "the callback of a listener failed",
                    "exception": task.exception(),
                    "task": task,
                }
            )

    def _wake(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def close(self) -> None:
        """Ends it, and the iteration. Accepted endpoints stay; those that nobody took close."""
        super().close()
        waiters, self._waiters = self._waiters, collections.deque()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def accept(self) -> Endpoint:
        """The next endpoint. Error (CANCELED) when the listener is closed."""
        if self._callback is not None:
            raise Error(Status.INVALID, "this listener has a callback, which takes its endpoints")
        while not self._ready:
            if self._core.closed:
                raise Error(Status.CANCELED, "the listener was closed")
            waiter = self._context.loop.create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if self._ready and not waiter.cancelled():
                    self._wake()  # it was for us; for the next one now
                raise
        return self._ready.popleft()

    def __aiter__(self) -> Listener:
        return self

    async def __anext__(self) -> Endpoint:
        try:
            return await self.accept()
        except Error as e:
            if e.status == Status.CANCELED:
                raise StopAsyncIteration from None
            raise

    async def __aenter__(self) -> Listener:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.close()


class Context(ContextBase):
    """All that one loop has: listeners, endpoints, operations. It belongs to one thread at a time.

    loop                  None: it has none, and operations are waited for by Operation.wait
    transports            "shm,verbs,tcp" in order of preference, also "ncclnet:PATH[@vN]"; None:
                          $ROPEWAY_TRANSPORT, or all but that
    key_file              pre-shared key; None: $ROPEWAY_KEY_FILE, or none. Both sides need the same
    unexpected_bytes_max  of messages that come before their receive; 0: 64 MiB
    eager_bytes_max       messages up to this go at once; 0: as measured for each transport
    rdma_devices          "mlx5_0,mlx5_1": verbs uses these, and no others
    polled                see rpw_context_options in ropeway.h
    loan_bytes_max        of loans, for each endpoint; 0: 1 GiB
    spin_us               0 to 20: how long an await looks itself before the loop goes to sleep,
                          where no other task is ready
    """

    __slots__ = ()

    if not TYPE_CHECKING:  # its arguments are core.Context's

        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            self.endpoint_class = Endpoint

    async def connect(
        self,
        address: Address,
        *,
        transports: str | None = None,
        timeout: float = 10.0,
        retry: bool = True,
    ) -> Endpoint:
        """See ropeway.connect."""
        ep, connected = self._connect(text_of(address), transports, timeout, retry)
        try:
            await connected
        except BaseException:
            ep.close()
            raise
        return ep  # type: ignore[return-value]  # of endpoint_class

    def listen(
        self, address: Address = "127.0.0.1:0", callback: Callable[[Endpoint], object] | None = None
    ) -> Listener:
        """See ropeway.listen."""
        return Listener(self, address, callback)

    def __enter__(self) -> Context:
        return self


# loop -> weak reference of its context, which the loop itself holds by its reader
_contexts: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, weakref.ref[Context]]
_contexts = weakref.WeakKeyDictionary()
os.register_at_fork(after_in_child=_contexts.clear)


def context(loop: asyncio.AbstractEventLoop | None = None) -> Context:
    """The context of the running loop (or of `loop`), made when it is first asked for. It closes
    with its loop."""
    if loop is None:
        loop = asyncio.get_running_loop()
    ref = _contexts.get(loop)
    c = ref() if ref is not None else None
    if c is None or c.closed:
        c = Context(loop)
        _contexts[loop] = weakref.ref(c)
    return c


async def connect(
    address: Address,
    *,
    transports: str | None = None,
    timeout: float = 10.0,
    retry: bool = True,
    context: Context | None = None,
) -> Endpoint:
    """Connects to a listener; gives an Endpoint on the best path there is.

    address     "host:port", "[v6]:port", (host, port), or a listener's .address
    transports  as of Context, for this endpoint
    timeout     seconds; the limit for retries
    retry       False: where nobody listens, that is final once every address was tried
    context     None: the running loop's

    Raises ropeway.Error: UNREACHABLE, TIMEOUT (ropeway.Timeout: somebody is there, and silent),
    REFUSED (another key, another version), INVALID (the address, and what is wrong with it)."""
    c: Context = context if context is not None else globals()["context"]()
    return await c.connect(address, transports=transports, timeout=timeout, retry=retry)


def listen(
    address: Address = "127.0.0.1:0",
    callback: Callable[[Endpoint], object] | None = None,
    *,
    context: Context | None = None,
) -> Listener:
    """Waits for peers: an async iterator of Endpoints, and an async context manager.

    address   "host:port", ":port" (all addresses), "host:0" (any free port), or (host, port)
    callback  function or coroutine function of an Endpoint, called for each; the iterator has
              none of them then
    context   None: the running loop's

    Raises ropeway.Error: SYSTEM (the port is in use), INVALID (the address)."""
    c: Context = context if context is not None else globals()["context"]()
    return c.listen(address, callback)
