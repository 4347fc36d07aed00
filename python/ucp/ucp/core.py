# SPDX-License-Identifier: BSD-3-Clause
"""The calls of `ucp`, and the one application context that they share."""

import asyncio
import functools
import logging
import os
import weakref

import ropeway
from ropeway._ucx.calls import of_context, options_of, still_used, translated
from ropeway._ucx.endpoint import tags_of, tags_text

from ._libs import ucx_api
from ._libs.exceptions import UCXError, UCXResetError, of_connect
from .continuous_ucx_progress import BlockingMode, NonBlockingMode
from .endpoint import WORKER_RECV, Endpoint, finish, mismatch, view_of

logger = logging.getLogger("ucx")

# Made at the first call that needs it.
_ctx = None
# How long an endpoint to a worker's address is waited for, in seconds.
WORKER_CONNECT_S = 0.25
# Tasks of listeners' callbacks: a loop holds them weakly.
_tasks = set()


def _get_ctx():
    global _ctx
    if _ctx is None:
        _ctx = ApplicationContext()
    return _ctx


def _loop_now():
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class ApplicationContext:
    """Options, and a worker for each loop that runs."""

    def __init__(self, config_dict={}, blocking_progress_mode=None, connect_timeout=None):
        if blocking_progress_mode is None:
            blocking_progress_mode = "UCXPY_NON_BLOCKING_MODE" not in os.environ
        if connect_timeout is None:
            connect_timeout = float(os.environ.get("UCXPY_CONNECT_TIMEOUT", 5))
        self.blocking_progress_mode = blocking_progress_mode
        self.connect_timeout = connect_timeout
        self.context = ucx_api.UCXContext(config_dict)
        self.workers = []
        self.progress_tasks = []
        self.continuous_ucx_progress()

    # ---- loops ----

    @property
    def worker(self):
        """The worker of the loop that runs; without one, of this thread."""
        loop = _loop_now()
        for worker in self.workers:
            if loop is not None and worker.loop is loop:
                return worker
        return self._take(loop)

    def _take(self, loop):
        for worker in self.workers:
            if worker.is_free():
                break
        else:
            worker = ucx_api.UCXWorker(self.context)
            self.workers.append(worker)
        if loop is not None:
            self._tie(worker, loop)
        return worker

    def _tie(self, worker, loop):
        tasks = [t for t in self.progress_tasks if t.weakref_worker() is not worker]
        kind = BlockingMode if self.blocking_progress_mode else NonBlockingMode
        self.progress_tasks[:] = [*tasks, kind(worker, loop)]

    def move(self, worker):
        """The loop that runs takes a worker over whose own loop does not run any more."""
        loop = asyncio.get_running_loop()
        if worker.loop is loop:
            return
        if not worker.is_free():
            raise RuntimeError(
                "this endpoint belongs to another event loop, which is running: "
                "use it there (asyncio.run_coroutine_threadsafe)"
            )
        self._tie(worker, loop)

    def continuous_ucx_progress(self, event_loop=None):
        """Ties a worker to a loop, which moves it from then on. Listeners and endpoints do so by
        themselves.

        event_loop: None: the loop that runs; without one nothing happens.
        """
        loop = event_loop or _loop_now()
        if loop is None:
            self.worker
        elif not any(worker.loop is loop for worker in self.workers):
            self._take(loop)

    # ---- connections ----

    def create_listener(
        self, callback_func, port=0, endpoint_error_handling=True, *, guarantee_msg_order=None
    ):
        """Listens at a port, and calls back with an Endpoint for each client.

        callback_func: a function or a coroutine function of one argument.
        port: None or 0: a free one. `listener.port` tells.
        endpoint_error_handling: False: an endpoint whose peer has gone does not say so.

        Gives a Listener. It listens as long as it is referenced, or until its close().
        UCXError "Device is busy": somebody listens there.
        """
        port = port or 0
        logger.info("create_listener() - Start listening on port %d", port)
        return Listener(
            ucx_api.UCXListener(
                worker=self.worker,
                port=port,
                cb_func=_listener_handler,
                cb_args=(callback_func, self, endpoint_error_handling),
            )
        )

    async def create_endpoint(
        self, ip_address, port, endpoint_error_handling=True, *, guarantee_msg_order=None
    ):
        """Connects to a listener.

        ip_address, port: where it listens: text and a number.
        endpoint_error_handling: False: the endpoint does not say that its peer has gone.

        Gives an Endpoint. UCXNotConnected: nobody listens there. TimeoutError: somebody does, and
        stays silent for connect_timeout. UCXUnreachable: no transport of the two does.
        """
        worker = self.worker
        text = ucx_api.host_port(ip_address, port)
        core = await _connected(worker, text, self.connect_timeout)
        low = ucx_api.UCXEndpoint(worker, core, endpoint_error_handling)
        ep = Endpoint(low, self, tags_of(core))
        _log_tags("create_endpoint() client", ep, endpoint_error_handling)
        return ep

    async def create_endpoint_from_worker_address(self, address, endpoint_error_handling=True):
        """Connects to a worker.

        address: what get_worker_address() gave there, or get_ucx_address_from_buffer() made of it.

        Gives an Endpoint whose send() and recv() need a tag and force_tag=True.
        UCXError "Destination is unreachable": the worker is not there any more.
        """
        low = ucx_api.UCXEndpoint.create_from_worker_address(
            self.worker, address, endpoint_error_handling, self.connect_timeout
        )
        op = low._connecting
        if op is not None:
            try:
                # A worker that does not progress now is not waited for: messages are.
                await asyncio.wait([op], timeout=WORKER_CONNECT_S)
                if op.done():
                    op.result()
            except ropeway.Error as error:
                low.close()
                raise UCXError(f"Destination is unreachable: {error.sentence}") from error
            except BaseException:
                low.close()
                raise
        ep = Endpoint(low, self)
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug(
                "create_endpoint() client: %#x, error handling: %s",
                ep.uid,
                endpoint_error_handling,
            )
        return ep

    # ---- the worker of this loop ----

    async def recv(self, buffer, tag):
        """Receives from whoever sends with this tag (and force_tag=True)."""
        worker = self.worker
        view, size, kind, readonly = view_of(buffer, None, self.context)
        if readonly:
            raise ValueError("writing to readonly buffer!")
        name = (WORKER_RECV, (worker.handle, tag, size, kind))
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug(name[0], *name[1])
        got = await finish(None, worker.core.recv(view, tag), name)
        if got[0] != size:
            raise mismatch(name[0] % name[1], got[0], size)
        return True

    async def flush(self):
        """Done when all that was sent on any endpoint of this loop is done on the peers' side."""
        ops = [endpoint.flush_op() for endpoint in self.worker.live()]
        for op in ops:
            if op is not None:
                await finish(None, op, ("[Flush] worker: %#x", (self.worker.handle,)))
        return True

    def fence(self):
        """What is posted from now on takes effect after what was posted before."""
        self.worker.fence()

    def get_ucp_worker(self):
        """A number for the worker of this loop."""
        return self.worker.handle

    def get_worker_address(self):
        """The address of this loop's worker, for create_endpoint_from_worker_address()."""
        return self.worker.get_address()

    def get_config(self):
        """All options, by name."""
        return self.context.get_config()

    def ucp_context_info(self):
        """The transports: text."""
        return self.context.info()

    def ucp_worker_info(self):
        """The worker of this loop, and its endpoints: text."""
        return self.worker.info()

    def register_am_allocator(self, allocator, allocator_type):
        """Who gives the memory of active messages.

        allocator: called with a size in bytes, gives a writable buffer of that size.
        allocator_type: "host", or "cuda" for messages of a GPU's memory, which have none at first.
        """
        kind = {"host": ucx_api.AllocatorType.HOST, "cuda": ucx_api.AllocatorType.CUDA}.get(
            allocator_type, ucx_api.AllocatorType.UNSUPPORTED
        )
        self.worker.register_am_allocator(allocator, kind)


async def _connected(worker, text, timeout):
    with translated(of_connect):
        core, op = worker.core._connect(text, None, timeout, retry=False)
        core.user = ucx_api.Inbox()  # active messages may come before anybody here goes on
        try:
            await op
        except BaseException:
            core.close()
            raise
    return core


def _log_tags(what, ep, endpoint_error_handling):
    if logger.isEnabledFor(logging.DEBUG):
        logger.debug("%s: %s", what, tags_text(ep.uid, ep._ep._core, endpoint_error_handling))


def _listener_handler(conn_request, callback_func, ctx, endpoint_error_handling):
    """A client has connected: its endpoint is made now, the callback runs as a task."""
    worker = ctx.worker
    low = ucx_api.UCXEndpoint.create_from_conn_request(
        worker, conn_request, endpoint_error_handling
    )
    ep = Endpoint(low, ctx, tags_of(low._core))
    _log_tags("_listener_handler() server", ep, endpoint_error_handling)
    worker.spawn(_serve(callback_func, ep), _tasks)


async def _serve(func, ep):
    if asyncio.iscoroutinefunction(func):
        await func(ep)
    else:
        func(ep)


class Listener:
    """Listens until close(), or until nobody refers to it. create_listener() gives them."""

    def __init__(self, backend):
        assert backend.initialized
        self._b = backend

    def closed(self):
        """Whether it has stopped to listen."""
        return not self._b.initialized

    @property
    def ip(self):
        """The address that it listens at."""
        return self._b.ip

    @property
    def port(self):
        """The port that it listens at."""
        return self._b.port

    def close(self):
        """Stops. Endpoints that it has made stay."""
        self._b.close()


def init(
    options={},
    env_takes_precedence=False,
    blocking_progress_mode=None,
    connect_timeout=None,
):
    """Sets options. Otherwise the first call that needs to does it, with the environment's.

    options: by their names without "UCX_", each a str: {"TLS": "tcp"}.
    env_takes_precedence: True: UCX_* of the environment win.
    blocking_progress_mode: True: the loop sleeps while nothing happens. False: it asks again and
        again. None: True, unless the environment has UCXPY_NON_BLOCKING_MODE.
    connect_timeout: how long a silent server is waited for, in seconds. None: the environment's
        UCXPY_CONNECT_TIMEOUT, or 5.

    RuntimeError: it was done already; reset() undoes it. UCXConfigError: a value that an option
    cannot have.
    """
    global _ctx
    options = options_of(_ctx, options, env_takes_precedence)
    _ctx = ApplicationContext(options, blocking_progress_mode, connect_timeout)


def reset():
    """Ends everything; the next call begins anew.

    UCXResetError, which is a RuntimeError and a UCXError: endpoints or listeners are in use. They
    go on; what is made from now on has nothing to do with them.
    """
    global _ctx
    if _ctx is None:
        return
    weak = weakref.ref(_ctx)
    _ctx = None
    text = still_used(weak)
    if text is not None:
        raise UCXResetError(text)


def get_ucx_version():
    """The version of UCX whose behavior programs may count on, as (major, minor, release)."""
    return ucx_api.get_ucx_version()


def progress():
    """Moves things on, where no loop does. Not from callbacks."""
    return _get_ctx().worker.progress()


def get_config():
    """All options, by name: in force, or as they would be if the first call came now."""
    return ucx_api.get_current_options() if _ctx is None else _ctx.get_config()


_call = functools.partial(of_context, _get_ctx)
create_listener = _call(ApplicationContext.create_listener)
create_endpoint = _call(ApplicationContext.create_endpoint)
create_endpoint_from_worker_address = _call(ApplicationContext.create_endpoint_from_worker_address)
continuous_ucx_progress = _call(ApplicationContext.continuous_ucx_progress)
register_am_allocator = _call(ApplicationContext.register_am_allocator)
recv = _call(ApplicationContext.recv)
get_ucp_worker = _call(ApplicationContext.get_ucp_worker)
get_worker_address = _call(ApplicationContext.get_worker_address)


def get_ucx_address_from_buffer(buffer):
    """A worker's address from bytes that came from its process."""
    return ucx_api.UCXAddress.from_buffer(buffer)


def get_ucp_context_info():
    """The transports that may be used: text."""
    return _get_ctx().ucp_context_info()


def get_ucp_worker_info():
    """The worker of this loop, and its endpoints with their paths: text."""
    return _get_ctx().ucp_worker_info()


def get_active_transports():
    """The names, as UCX has them, of the transports that may be used: a set."""
    return set(_get_ctx().context.names())


async def flush():
    """Done when all that was sent on any endpoint of this loop is done on the peers' side."""
    if _ctx is not None:
        return await _ctx.flush()
    return await asyncio.sleep(0)


def fence():
    """What is posted from now on takes effect after what was posted before."""
    if _ctx is not None:
        _ctx.fence()
