# SPDX-License-Identifier: BSD-3-Clause
"""UCXX's objects without asyncio: contexts, workers, endpoints, listeners, requests.

A worker is progressed by hand (`progress`, `progress_worker_event`) or by a thread of its own
(`start_progress_thread`), and in an event loop by the loop. What `ucxx` offers to coroutines is made
of these.
"""

from __future__ import annotations

import asyncio
import enum
import itertools
import logging
import threading
import weakref
from typing import Any, Awaitable, Callable, Iterable

import ropeway

from .. import _multi, _options
from .._connection import (
    AM_ID,
    Connection,
    Promise,
    connect,
    outcome,
    take_am,
    worker_address,
)
from .._home import Home
from .._memory import allocate
from ..exceptions import *  # noqa: F403
from ..exceptions import (
    UCXCanceled,
    UCXCanceledError,
    UCXCloseError,
    UCXError,
    UCXMsgTruncated,
    UCXNoMemoryError,
    of_end,
    of_failure,
)
from .arr import Array
from .tag import UCXXTag, UCXXTagMask, UCXXTagMaskFull

__all__ = [
    "Array", "Feature", "PythonRequestNotifierWaitState", "TagProbeResult", "UCXAddress",
    "UCXBufferRequest", "UCXBufferRequests", "UCXCanceled", "UCXConfig", "UCXContext",
    "UCXEndpoint", "UCXListener", "UCXMsgTruncated", "UCXRequest", "UCXWorker", "UCXXTag",
    "UCXXTagMask", "UCXXTagMaskFull", "get_current_options", "get_ucx_version",
]

logger = logging.getLogger("ucx")

#: The version of UCX whose interface this is.
_UCX_VERSION = (1, 19, 0)

_handles = itertools.count(0x10000000, 0x40)


class Feature(enum.Enum):
    """What a context is asked to be able to do."""

    TAG = 1
    RMA = 2
    AMO32 = 4
    AMO64 = 8
    WAKEUP = 16
    STREAM = 32
    AM = 64


class PythonRequestNotifierWaitState(enum.Enum):
    Ready = 0
    Timeout = 1
    Shutdown = 2


def get_ucx_version() -> tuple[int, int, int]:
    """The version of UCX whose interface this is."""
    return _UCX_VERSION


def get_current_options() -> dict[str, str]:
    """The options that a context would have if it were made now."""
    return _options.config()


class UCXConfig:
    """The options, before there is a context."""

    def __init__(self, user_options: dict[str, str] | None = None) -> None:
        self.config = _options.config(user_options)


class UCXContext:
    """Options and features; workers are made of it."""

    def __init__(
        self,
        config_dict: dict[str, str] | None = None,
        feature_flags: Iterable[Feature] = (
            Feature.TAG, Feature.WAKEUP, Feature.STREAM, Feature.AM, Feature.RMA,
        ),
    ) -> None:
        self.config = _options.config(config_dict)
        _options.transports(self.config["TLS"])
        self.feature_flags = 0
        for flag in feature_flags:
            self.feature_flags |= flag.value
        self.handle = next(_handles)
        logger.info("UCP initiated using config: ")
        for name, value in self.config.items():
            logger.info("  %s, %s", name, value)

    @property
    def ucxx_ptr(self) -> int:
        return self.handle

    @property
    def cuda_support(self) -> bool:
        """Does a buffer of a GPU go by its address? Where a GPU is there, and no option forbids."""
        tls = self.config["TLS"]
        if tls.startswith("^"):
            if "cuda" in tls:
                return False
        elif tls != "all" and "cuda" not in tls:
            return False
        return _has_gpu()

    @property
    def info(self) -> str:
        lines = [f"# ropeway {ropeway.core.VERSION}, by the interface of ucxx"]
        for i, name in enumerate(sorted(_options.active(self.config["TLS"]))):
            lines.append(f"# resource {i} : md {i} dev {i} flags -- {name}/ropeway")
        return "\n".join(lines) + "\n"


def _has_gpu() -> bool:
    import os

    return os.path.exists("/dev/nvidiactl") or os.path.exists("/dev/nvidia-uvm")


class UCXAddress(bytes):
    """Where a worker is reached by `create_from_worker_address`, in any process on any host.

    It is bytes: it has the buffer protocol, and is compared, hashed and pickled as they are.
    """

    def __new__(cls, *args: Any) -> UCXAddress:
        raise TypeError("UCXAddress cannot be instantiated directly.")

    @classmethod
    def create_from_worker(cls, worker: UCXWorker) -> UCXAddress:
        return worker.address

    @classmethod
    def create_from_buffer(cls, buffer: Any) -> UCXAddress:
        """From the bytes of an address; zeros behind it are left out."""
        return bytes.__new__(cls, memoryview(buffer).tobytes())

    @property
    def length(self) -> int:
        return len(self)

    @property
    def address(self) -> int:
        return Array(self).ptr

    @property
    def ucxx_ptr(self) -> int:
        return id(self)

    def tobytes(self) -> bytes:
        return bytes(memoryview(self))

    def _text(self) -> str:
        try:
            return self.tobytes().rstrip(b"\0").decode("ascii")
        except UnicodeDecodeError:
            raise UCXInvalidAddrError("Invalid address: no address of a worker") from None  # noqa: F405

    def __bytes__(self) -> bytes:
        return self.tobytes()

    def __reduce_ex__(self, protocol: Any) -> tuple:
        if protocol >= 5:
            from pickle import PickleBuffer

            return UCXAddress.create_from_buffer, (PickleBuffer(self),)
        return UCXAddress.create_from_buffer, (self.tobytes(),)


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
        expected: int | None = None,
    ) -> None:
        self._home = home
        self._op = op
        self._error = error
        self._is_recv = is_recv
        self._expected = expected

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
        return outcome(self._op, self._is_recv, self._expected)

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


class UCXWorker:
    """What sends and receives: a home for each event loop that uses it, and one without a loop."""

    def __init__(
        self,
        context: UCXContext,
        enable_delayed_submission: bool = False,
        enable_python_future: bool = False,
    ) -> None:
        self._context = context
        self.enable_delayed_submission = bool(enable_delayed_submission)
        self.enable_python_future = bool(enable_python_future)
        self.handle = next(_handles)
        self._homes = _Homes(context.config)
        self._thread_callback: Callable[[], Any] | None = None
        weakref.finalize(self, _Homes.close, self._homes)

    @property
    def ucxx_ptr(self) -> int:
        return self.handle

    @property
    def cuda_buffer_type(self) -> str:
        return "none"

    @property
    def info(self) -> str:
        lines = [f"# worker of ropeway {ropeway.core.VERSION}, {len(self._homes)} contexts"]
        for home in self._homes:
            lines.append(f"#   {'a loop' if home.loop else 'no loop'}: {home.describe()}")
        return "\n".join(lines) + "\n"

    # ---- progress ----

    def home(self) -> Home:
        """Where this call belongs: the home of the loop that runs, else the one without a loop."""
        return self._homes.here()

    def progress(self) -> None:
        self.home().progress()

    def progress_once(self) -> bool:
        return self.home().progress() > 0

    def progress_worker_event(self, epoll_timeout: int = -1) -> None:
        """Blocks until something has happened, for `epoll_timeout` milliseconds (-1: no limit)."""
        self.home().wait(None if epoll_timeout < 0 else epoll_timeout / 1000)

    def init_blocking_progress_mode(self) -> None:
        """Nothing to prepare."""

    @property
    def epoll_file_descriptor(self) -> int:
        """Readable when there is something to do, after `arm` has given True."""
        return self.home().ctx.fd

    def arm(self) -> bool:
        return self.home().arm()

    def set_progress_thread_start_callback(
        self, cb_func: Callable, cb_args: tuple | None = None, cb_kwargs: dict | None = None
    ) -> None:
        args, kwargs = cb_args or (), cb_kwargs or {}
        self._thread_callback = lambda: cb_func(*args, **kwargs)

    def start_progress_thread(self, polling_mode: bool = False, epoll_timeout: int = -1) -> None:
        self._homes.loopless().start_pump(polling_mode, self._thread_callback)

    def stop_progress_thread(self) -> None:
        home = self._homes.loopless_if_any()
        if home is not None:
            home.stop_pump()

    def cancel_inflight_requests(self, period: int = 0, max_attempts: int = 1) -> int:
        """Cancels what is under way on its endpoints. Gives how many operations that were."""
        return sum(
            home.run(connection.cancel_pending) or 0
            for home in self._homes
            for connection in list(home.connections)
        )

    # ---- notifier: there is none, results are set where the loop runs ----

    def stop_request_notifier_thread(self) -> None:
        """There is no such thread."""

    def wait_request_notifier(self, period_ns: int = 0) -> PythonRequestNotifierWaitState:
        return PythonRequestNotifierWaitState.Shutdown

    def run_request_notifier(self) -> None:
        """There is nothing to notify."""

    def populate_python_futures_pool(self) -> None:
        """Futures are made when they are asked for."""

    def clear_python_futures_pool(self) -> None:
        """No future is kept."""

    # ---- endpoints ----

    @property
    def address(self) -> UCXAddress:
        home = self.home()
        return bytes.__new__(UCXAddress, home.run(worker_address, home).encode("ascii"))

    def create_endpoint_from_hostname(
        self, ip_address: str, port: int, endpoint_error_handling: bool
    ) -> UCXEndpoint:
        return UCXEndpoint.create(self, ip_address, port, endpoint_error_handling)

    def create_endpoint_from_worker_address(
        self, address: UCXAddress, endpoint_error_handling: bool
    ) -> UCXEndpoint:
        return UCXEndpoint.create_from_worker_address(self, address, endpoint_error_handling)

    # ---- messages from any endpoint ----

    def _check_tag(self) -> None:
        _check_feature(self._context.feature_flags, Feature.TAG)

    def tag_probe(
        self, tag: UCXXTag, tag_mask: UCXXTagMask = UCXXTagMaskFull, remove: bool = False
    ) -> TagProbeResult:
        """Is there a message with this tag? With `remove` it is taken out of the queue."""
        home = self.home()
        return home.run(_probe, home, int(UCXXTag(tag)), int(tag_mask), remove)

    def tag_recv(
        self, arr: Array, tag: UCXXTag, tag_mask: UCXXTagMask = UCXXTagMaskFull
    ) -> UCXRequest:
        self._check_tag()
        home = self.home()
        op = home.run(home.ctx.recv, arr.buf, int(tag), int(tag_mask))
        return UCXRequest(home, op, is_recv=True, expected=arr.nbytes)

    def tag_recv_with_handle(self, arr: Array, probe_result: TagProbeResult) -> UCXRequest:
        """Receives a message that `tag_probe` has taken out of the queue."""
        self._check_tag()
        return _recv_taken(self.home(), arr, probe_result)

    def close(self) -> None:
        """Ends all of it."""
        self._homes.close()


class _Homes:
    """The homes of a worker."""

    def __init__(self, config: dict[str, str]) -> None:
        self._config = config
        self._lock = threading.Lock()
        self._of_loop: dict[int, Home] = {}
        self._loopless: Home | None = None

    def __len__(self) -> int:
        return len(self._of_loop) + (self._loopless is not None)

    def __iter__(self):
        return iter([h for h in [*self._of_loop.values(), self._loopless] if h is not None])

    def here(self) -> Home:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return self.loopless()
        return self.of_loop(loop)

    def of_loop(self, loop: asyncio.AbstractEventLoop) -> Home:
        home = self._of_loop.get(id(loop))
        if home is not None and home.loop is loop and not home.closed:
            return home
        self.prune()
        home = self._made(loop)
        with self._lock:
            self._of_loop[id(loop)] = home
        return home

    def loopless(self) -> Home:
        if self._loopless is None or self._loopless.closed:
            self._loopless = self._made(None)
        return self._loopless

    def loopless_if_any(self) -> Home | None:
        return self._loopless

    def _made(self, loop: asyncio.AbstractEventLoop | None) -> Home:
        home = Home(self._config, loop)
        home.ctx.on_am(AM_ID, take_am)
        return home

    def prune(self) -> None:
        """Closes the homes of loops that are closed."""
        with self._lock:
            dead = [k for k, h in self._of_loop.items() if h.closed or h.loop.is_closed()]
            homes = [self._of_loop.pop(k) for k in dead]
        for home in homes:
            home.close()

    def close(self) -> None:
        with self._lock:
            homes = [h for h in [*self._of_loop.values(), self._loopless] if h is not None]
            self._of_loop.clear()
            self._loopless = None
        for home in homes:
            home.close()


def _check_feature(flags: int, feature: Feature) -> None:
    if not flags & feature.value:
        raise ValueError(f"UCXContext must be created with `Feature.{feature.name}`")


def _probe(home: Home, tag: int, mask: int, remove: bool) -> TagProbeResult:
    found = home.ctx.probe(tag, mask)
    if found is None:
        return TagProbeResult()
    if not remove:
        return TagProbeResult(found)
    buffer = allocate(found.length)
    return TagProbeResult(found, home.ctx.recv(buffer, tag, mask), buffer)


def _recv_taken(home: Home, arr: Array, probe_result: TagProbeResult) -> UCXRequest:
    if not probe_result.matched or probe_result._taken is None:
        raise ValueError("TagProbeResult must be matched, by a probe with remove=True")
    taken, buffer = probe_result._taken, probe_result._buffer
    promise = Promise()

    def done(op: Any) -> None:
        error = outcome(op, True, arr.nbytes)
        if error is not None:
            promise.fail(error)
            return
        memoryview(arr.buf).cast("B")[:] = memoryview(buffer).cast("B")
        promise.set(None)

    if taken.done():
        done(taken)
    else:
        taken.add_done_callback(done)
    return UCXRequest(home, promise, is_recv=True)


def _abandon(connection: Connection) -> None:
    """Whoever had the endpoint has dropped it."""
    if not connection.closed:
        connection.home.run(connection.close)


class UCXEndpoint:
    """One end of a connection to another worker."""

    def __init__(self) -> None:
        raise TypeError("UCXEndpoint cannot be instantiated directly.")

    @classmethod
    def _of(cls, connection: Connection, context: UCXContext, worker_handle: int) -> UCXEndpoint:
        self = object.__new__(cls)
        self.connection = connection
        self.handle = next(_handles)
        self.worker_handle = worker_handle
        self._flags = context.feature_flags
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
    def ucxx_ptr(self) -> int:
        return self.handle

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
        """Has `cb_func` called once, when either side has closed; at once if that was so already."""
        args, kwargs = cb_args or (), cb_kwargs or {}
        self._run(self.connection.set_callback, lambda: cb_func(*args, **kwargs))

    def remove_close_callback(self) -> None:
        self.connection.set_callback(None)

    def close(self) -> UCXRequest:
        """Closes it; the request is done when the peer has all that was sent."""
        return UCXRequest(self.connection.home, self._run(self.connection.close))

    def close_blocking(self, period: int = 0, max_attempts: int = 1) -> None:
        """Closes it. Outside of a loop: waits until the peer has all, `period` ns at most."""
        home = self.connection.home
        if self.connection.closed:
            return
        self._run(self.connection.close)
        if home.loop is None and period:
            home.run(home.drain, min(period * 1e-9, 1.0))

    def _run(self, fn: Callable, *args: Any) -> Any:
        return self.connection.home.run(fn, *args)

    def _post(
        self, fn: Callable, *args: Any, is_recv: bool = False, expected: int | None = None
    ) -> UCXRequest:
        home = self.connection.home
        if home.closed:
            return UCXRequest(home, error=UCXCloseError("Endpoint closed"))
        try:
            op = home.run(fn, *args)
        except UCXError as error:
            return UCXRequest(home, error=error)
        if not isinstance(op, Promise):
            self._run(self.connection.watch, op)
        return UCXRequest(home, op, is_recv=is_recv, expected=expected)

    # ---- tagged messages ----

    def tag_send(self, arr: Array, tag: UCXXTag) -> UCXRequest:
        _check_feature(self._flags, Feature.TAG)
        return self._post(self.connection.send, arr.buf, int(tag))

    def tag_recv(
        self, arr: Array, tag: UCXXTag, tag_mask: UCXXTagMask = UCXXTagMaskFull
    ) -> UCXRequest:
        _check_feature(self._flags, Feature.TAG)
        return self._post(
            self.connection.recv, arr.buf, int(tag), int(tag_mask),
            is_recv=True, expected=arr.nbytes,
        )

    def tag_recv_with_handle(self, arr: Array, probe_result: TagProbeResult) -> UCXRequest:
        """Receives a message that the worker's `tag_probe` has taken out of the queue."""
        _check_feature(self._flags, Feature.TAG)
        return _recv_taken(self.connection.home, arr, probe_result)

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
        self._run(self.connection.watch, op)
        return UCXBufferRequests(home, op)

    def tag_recv_multi(
        self, tag: UCXXTag | int, tag_mask: UCXXTagMask = UCXXTagMaskFull
    ) -> UCXBufferRequests:
        """Receives what one `tag_send_multi` has sent, into memory that is made for it."""
        home = self.connection.home
        promise = self._run(self.connection.recv_multi, int(tag))
        return UCXBufferRequests(home, promise, is_recv=True)

    # ---- streams: bytes without a tag, in the order sent ----

    def _check_stream(self, arr: Array) -> None:
        _check_feature(self._flags, Feature.STREAM)
        if arr.nbytes == 0:
            raise RuntimeError("A stream has no messages: there is nothing to send or receive")

    def stream_send(self, arr: Array) -> UCXRequest:
        self._check_stream(arr)
        return self._post(self.connection.stream_send, arr.buf)

    def stream_recv(self, arr: Array) -> UCXRequest:
        self._check_stream(arr)
        return self._post(
            self.connection.stream_recv, arr.buf, is_recv=True, expected=arr.nbytes
        )

    # ---- active messages ----

    def am_probe(self) -> bool:
        """Is there an active message?"""
        return self.connection.am_probe()

    def am_send(self, arr: Array) -> UCXRequest:
        _check_feature(self._flags, Feature.AM)
        return self._post(self.connection.am_send, arr.buf, arr.nbytes)

    def am_recv(self) -> UCXRequest:
        """The next active message; the request's `recv_buffer` has it."""
        _check_feature(self._flags, Feature.AM)
        home = self.connection.home
        return UCXRequest(home, self._run(self.connection.am_recv), is_recv=True)


class UCXListener:
    """Takes connections at a port, until it is dropped."""

    def __init__(self) -> None:
        raise TypeError("UCXListener cannot be instantiated directly.")

    @classmethod
    def create(
        cls,
        worker: UCXWorker,
        port: int,
        cb_func: Callable,
        cb_args: tuple | None = None,
        cb_kwargs: dict | None = None,
        deliver_endpoint: bool = False,
    ) -> UCXListener:
        """Begins to listen.

        Parameters
        ----------
        port
            0: any free one.
        cb_func
            Called for each connection with a number, which `create_endpoint_from_conn_request`
            takes; with the endpoint, where `deliver_endpoint` is true. `cb_args` and `cb_kwargs`
            follow it.
        """
        self = object.__new__(cls)
        self._worker_handle = worker.handle
        self._context = worker._context
        self._home = home = worker.home()
        self.enable_python_future = worker.enable_python_future
        self._requests: dict[int, Connection] = {}
        self.handle = next(_handles)
        args, kwargs = cb_args or (), cb_kwargs or {}
        me = weakref.ref(self)

        def accepted(core: ropeway.core.Endpoint) -> None:
            listener = me()
            if listener is None:
                core.close()
                return
            listener._accepted(core, deliver_endpoint, cb_func, args, kwargs)

        self._listener = home.run(home.listen, port, accepted)
        weakref.finalize(self, _stop_listening, home, self._listener, self._requests)
        return self

    def _accepted(
        self, core: ropeway.core.Endpoint, deliver: bool, fn: Callable, args: tuple, kwargs: dict
    ) -> None:
        connection = Connection(self._home, core)
        number = next(_handles)
        self._requests[number] = connection
        what = self._claim(number) if deliver else number
        try:
            fn(what, *args, **kwargs)
        except Exception as error:
            logger.error("%s when calling listener callback: %s", type(error), error)

    def _claim(self, number: int) -> UCXEndpoint:
        connection = self._requests.pop(number, None)
        if connection is None:
            raise ValueError(f"{number} is no connection of this listener that is still to be taken")
        return UCXEndpoint._of(connection, self._context, self._worker_handle)

    def create_endpoint_from_conn_request(
        self, conn_request: int, endpoint_error_handling: bool = True
    ) -> UCXEndpoint:
        return self._claim(conn_request)

    @property
    def ucxx_ptr(self) -> int:
        return self.handle

    @property
    def port(self) -> int:
        return self._listener.port

    @property
    def ip(self) -> str:
        """The address that it is bound to; "0.0.0.0": all of them."""
        return _options.listen_host(self._home.config["NET_DEVICES"]) or "0.0.0.0"


def _stop_listening(home: Home, listener: Any, requests: dict[int, Connection]) -> None:
    def stop() -> None:
        listener.close()
        for connection in requests.values():
            connection.close()
        requests.clear()

    try:
        home.run(stop)
    except ropeway.Error as error:
        logger.debug("the end of a listener: %s", error)
