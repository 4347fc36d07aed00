# SPDX-License-Identifier: BSD-3-Clause
"""The asyncio layer: a context for each loop, connect and listen, ends in order."""

from __future__ import annotations

import asyncio
import collections
import os
import weakref
from enum import IntEnum, IntFlag

from . import _core as core
from ._errors import Error, Status


class Access(IntFlag):
    """What peers may do with registered memory."""

    NONE = 0
    WRITE = 1
    READ = 2
    ATOMIC = 4


class Protection(IntEnum):
    """Of what goes over a path. NONE: who is between the two can read and change it. KERNEL:
    shared memory, which the kernel opens only to this user. TLS: TLS 1.3, there is a key."""

    NONE = 0
    KERNEL = 1
    TLS = 2


class Record:
    """Values by name, that do not change. (A dataclass would take a third of the import.)"""

    __slots__ = ()

    def __init__(self, *values):
        for name, value in zip(self.__slots__, values, strict=True):
            object.__setattr__(self, name, value)

    def __setattr__(self, name, value):
        raise AttributeError(f"{type(self).__name__} does not change")

    __delattr__ = __setattr__

    def _values(self):
        return tuple(getattr(self, name) for name in self.__slots__)

    def __eq__(self, other):
        return self._values() == other._values() if type(other) is type(self) else NotImplemented

    def __hash__(self):
        return hash(self._values())

    def __repr__(self):
        pairs = zip(self.__slots__, self._values())
        return f"{type(self).__name__}({', '.join(f'{n}={v!r}' for n, v in pairs)})"

    def __reduce__(self):
        return type(self), self._values()


class Info(Record):
    """Which path an endpoint has, and why: transport ("shm", "verbs", "tcp", "ncclnet"; "" before
    it is connected), path, why, peer (texts), connected, status (why it ended), eager_bytes_max,
    protection."""

    __slots__ = (
        "transport",
        "path",
        "why",
        "peer",
        "connected",
        "status",
        "eager_bytes_max",
        "protection",
    )


class Statistics(Record):
    """What a context has done: messages of all kinds and bytes since it was made. `unexpected`
    came before their receive, unexpected_bytes of them are held now; endpoints, listeners and
    requests (operations under way) are those of now. unsent is not 0 while something is still to
    go out."""

    __slots__ = (
        "sent",
        "received",
        "bytes_sent",
        "bytes_received",
        "unexpected",
        "unexpected_bytes",
        "waited_for_room",
        "strangers_refused",
        "path_changes",
        "endpoints",
        "listeners",
        "requests",
        "unsent",
    )


def info_of(ep):
    transport, path, why, peer, connected, status, eager, protection = ep._info()
    return Info(
        transport, path, why, peer, connected, Status(status), eager, Protection(protection)
    )


class MemoryDoor:
    """Context.memory: memory that peers can reach."""

    def __init__(self, context):
        self._context = context

    def register(self, buf, access=Access.WRITE | Access.READ | Access.ATOMIC):
        """Registers memory of the program's (writable where peers may write), which is held until
        the Memory is closed. access: what peers may do, who have its rkey()."""
        return self._context._register(buf, access)

    def allocate(self, size, access=Access.WRITE | Access.READ | Access.ATOMIC):
        """`size` zeroed bytes that peers on this host can map: put and get are plain copies then.
        The Memory is a writable buffer: numpy.asarray(memory), memoryview(memory)."""
        return self._context._allocate(size, access)


class Endpoint(core.Endpoint):
    """One end of a connection: `async with await ropeway.connect(...) as ep` ends in order."""

    __slots__ = ()

    def info(self):
        """Which path it has and why, as Info. Error (INVALID) after close()."""
        return info_of(self)

    async def __aenter__(self):
        return self

    async def __aexit__(self, kind, error, trace):
        try:
            if kind is None and not self.closed:
                async with asyncio.timeout(SHUTDOWN_S):
                    await self.shutdown()
        except (Error, TimeoutError):
            pass  # the peer has gone, or does not answer: there is nobody to tell
        finally:
            self.close()


SHUTDOWN_S = 5.0


class Listener:
    """Waits for peers: `async for ep in listener`, or its callback. Ends with close(), `async
    with`, or when nobody holds it any more."""

    def __init__(self, context, address, callback):
        self._context = context
        self._ready = collections.deque()
        self._waiters = collections.deque()
        self._tasks = set()
        self._callback = callback
        me = weakref.ref(self)

        def accepted(ep):
            listener = me()
            if listener is not None:
                listener._accepted(ep)

        self._core = context._listen(address, accepted)

    def _accepted(self, ep):
        if self._callback is None:
            self._ready.append(ep)
            self._wake()
            return
        r = self._callback(ep)
        if asyncio.iscoroutine(r):
            task = self._context.loop.create_task(r)
            self._tasks.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task):
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._context.loop.call_exception_handler(
                {
                    "message": "the callback of a listener failed",
                    "exception": task.exception(),
                    "task": task,
                }
            )

    def _wake(self):
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    @property
    def port(self):
        """The TCP port, 1 to 65535."""
        return self._core.port

    @property
    def address(self):
        """Text that connect() takes in any process, on any host: all addresses it is at."""
        return self._core.address

    @property
    def closed(self):
        """True after close()."""
        return self._core.closed

    def close(self):
        """Ends it, and the iteration. Accepted endpoints stay; those that nobody took close."""
        self._core.close()
        self._ready.clear()
        waiters, self._waiters = self._waiters, collections.deque()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def accept(self):
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

    def __aiter__(self):
        return self

    async def __anext__(self):
        try:
            return await self.accept()
        except Error as e:
            if e.status == Status.CANCELED:
                raise StopAsyncIteration from None
            raise

    async def __aenter__(self):
        return self

    async def __aexit__(self, *exc):
        self.close()


class Context(core.Context):
    """All that one loop has: listeners, endpoints, operations. It belongs to one thread at a time.

    loop                  None: it has none, and operations are waited for by Operation.wait
    transports            "shm,verbs,tcp" in order of preference, also "ncclnet:PATH[@vN]"; None:
                          $ROPEWAY_TRANSPORT, or all but that
    key_file              pre-shared key; None: $ROPEWAY_KEY_FILE, or none. Both sides need the same
    unexpected_bytes_max  of messages that come before their receive; 0: 64 MiB
    eager_bytes_max       messages up to this go at once; 0: as measured for each transport
    rdma_devices          "mlx5_0,mlx5_1": verbs uses these, and no others
    polled                see rpw_context_options in ropeway.h
    spin_us               0 to 20: how long an await looks itself before the loop goes to sleep,
                          where no other task is ready
    """

    __slots__ = ("__weakref__", "_door")

    def __init__(self, loop=None, transports=None, key_file=None, **options):
        super().__init__(loop, transports, key_file, **options)
        self.endpoint_class = Endpoint
        self._door = None

    @property
    def memory(self):
        """Memory that peers can reach: register and allocate."""
        return MemoryDoor(self)

    def statistics(self):
        """What it has done, as Statistics."""
        return Statistics(*self._statistics())

    async def connect(self, address, *, transports=None, timeout=10.0, retry=True):
        """See ropeway.connect."""
        ep, connected = self._connect(address, transports, timeout, retry)
        try:
            await connected
        except BaseException:
            ep.close()
            raise
        return ep

    def listen(self, address="127.0.0.1:0", callback=None):
        """See ropeway.listen."""
        return Listener(self, address, callback)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()


# loop -> weak reference of its context, which the loop itself holds by its reader
_contexts: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()
os.register_at_fork(after_in_child=_contexts.clear)


def context(loop=None):
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


async def connect(address, *, transports=None, timeout=10.0, retry=True, context=None):
    """Connects to a listener; gives an Endpoint on the best path there is.

    address     "host:port", "[v6]:port", or a listener's .address
    transports  as of Context, for this endpoint
    timeout     seconds; the limit for retries
    retry       False: where nobody listens, that is final once every address was tried
    context     None: the running loop's

    Raises ropeway.Error: UNREACHABLE, TIMEOUT (ropeway.Timeout: somebody is there, and silent),
    REFUSED (another key, another version), INVALID (the address, and what is wrong with it)."""
    c = context if context is not None else globals()["context"]()
    return await c.connect(address, transports=transports, timeout=timeout, retry=retry)


def listen(address="127.0.0.1:0", callback=None, *, context=None):
    """Waits for peers: an async iterator of Endpoints, and an async context manager.

    address   "host:port", ":port" (all addresses), "host:0" (any free port)
    callback  function or coroutine function of an Endpoint, called for each; the iterator has
              none of them then
    context   None: the running loop's

    Raises ropeway.Error: SYSTEM (the port is in use), INVALID (the address)."""
    c = context if context is not None else globals()["context"]()
    return c.listen(address, callback)
