# SPDX-License-Identifier: BSD-3-Clause
"""ApplicationContext: what `ucxx.init` makes; there is one at a time."""

from __future__ import annotations

import asyncio
import logging
import os
import weakref
from typing import Any, Callable

import ropeway
from ropeway._ucx.endpoint import tags_of

from .._connection import mapped
from .._lib.arr import Array
from .._lib.libucxx import (
    TagProbeResult,
    UCXAddress,
    UCXContext,
    UCXEndpoint,
    UCXListener,
    UCXWorker,
)
from .._lib.tag import UCXXTag
from ..exceptions import (
    UCXNotConnectedError,
    of_failure,
)
from .endpoint import Endpoint
from .listener import Listener, _Handlers, accepted

logger = logging.getLogger("ucx")

_MODES = ("blocking", "polling", "thread", "thread-polling")


def _switch(given: bool | None, variable: str, default: bool) -> bool:
    if given is not None:
        return bool(given)
    value = os.environ.get(variable)
    return default if value is None else value != "0"


class ApplicationContext:
    """Options, a worker, and how to make listeners and endpoints.

    In all progress modes the event loop that runs makes progress, when the descriptor of ropeway's
    context says that there is something to do; the mode is checked and kept, and nothing else.
    """

    def __init__(
        self,
        config_dict: dict[str, str] | None = None,
        progress_mode: str | None = None,
        enable_delayed_submission: bool | None = None,
        enable_python_future: bool | None = None,
        connect_timeout: float | None = None,
    ) -> None:
        mode = progress_mode or os.environ.get("UCXPY_PROGRESS_MODE", "thread")
        if mode not in _MODES:
            raise ValueError(
                f"Unknown progress mode '{mode}', valid modes are: 'blocking', 'polling', "
                "'thread' or 'thread-polling'"
            )
        threads = mode.startswith("thread")
        delayed = _switch(enable_delayed_submission, "UCXPY_ENABLE_DELAYED_SUBMISSION", threads)
        if delayed and not threads:
            raise ValueError(
                f"Delayed submission requested, but '{mode}' does not support it, 'thread' or "
                "'thread-polling' progress mode required."
            )
        futures = _switch(enable_python_future, "UCXPY_ENABLE_PYTHON_FUTURE", False)
        if futures and not threads:
            logger.warning(
                "Notifier thread requested, but '%s' does not support it, using Python "
                "wait_yield().",
                mode,
            )
            futures = False
        self.progress_mode = mode
        self.enable_delayed_submission = delayed
        self.enable_python_future = futures
        self.notifier_thread = None
        if connect_timeout is None:
            connect_timeout = float(os.environ.get("UCXPY_CONNECT_TIMEOUT", 5))
        self.connect_timeout = connect_timeout
        self.context = UCXContext(config_dict)
        self.worker = UCXWorker(self.context, delayed, futures)
        weakref.finalize(self, self.worker.close)

    # ---- what it is ----

    @property
    def config(self) -> dict[str, str]:
        return self.context.config

    @property
    def ucp_context_info(self) -> str:
        return self.context.info

    @property
    def ucp_worker(self) -> int:
        return self.worker.handle

    @property
    def ucxx_worker(self) -> int:
        return self.worker.ucxx_ptr

    @property
    def ucp_worker_info(self) -> str:
        return self.worker.info

    @property
    def worker_address(self) -> UCXAddress:
        return self.worker.address

    # ---- progress ----

    def continuous_ucx_progress(self, event_loop: asyncio.AbstractEventLoop | None = None) -> None:
        """Has the running loop make progress. Each loop that communicates does so by itself."""
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            return
        if event_loop is None or event_loop is running:
            self.worker.home()

    def clear_progress_tasks(self) -> None:
        """There is no task: progress ends with the loop, or with `reset`."""

    def start_notifier_thread(self) -> None:
        """There is no such thread: results are set in the loop that waits for them."""

    def stop_notifier_thread(self) -> None:
        """There is no such thread."""
        logger.debug("Notifier thread not running")

    # ---- connections ----

    def create_listener(
        self,
        callback_func: Callable[[Endpoint], Any],
        port: int | None = 0,
        endpoint_error_handling: bool = True,
        connect_timeout: float = 5.0,
    ) -> Listener:
        """Begins to listen for connections.

        Parameters
        ----------
        callback_func
            A function or a coroutine function, called with the Endpoint of each connection.
        port
            0 or None: any free one.
        endpoint_error_handling, connect_timeout
            Accepted. Errors are always handled; who connects and is silent is refused after 10 s.

        Returns
        -------
        Listener
            Which has to be kept: it ends when nobody has it any more.

        Raises
        ------
        UCXBusyError
            The port is in use.
        """
        port = port or 0
        logger.info("create_listener() - Start listening on port %d", port)
        handlers = _Handlers()
        low = UCXListener.create(
            self.worker,
            port,
            accepted,
            (callback_func, weakref.ref(self), handlers),
            deliver_endpoint=True,
        )
        return Listener(low, handlers, self)

    async def create_endpoint(
        self,
        ip_address: str,
        port: int,
        endpoint_error_handling: bool = True,
        connect_timeout: float | None = None,
    ) -> Endpoint:
        """Connects to a listener.

        Parameters
        ----------
        ip_address, port
            Its address and port.
        endpoint_error_handling
            Accepted. Errors are always handled.
        connect_timeout
            In seconds; None: what `init` was given.

        Raises
        ------
        UCXNotConnectedError
            Nobody listens there.
        UCXUnreachableError
            There is no way to that address.
        TimeoutError
            Whoever is there is silent.
        """
        timeout = self.connect_timeout if connect_timeout is None else connect_timeout
        low = UCXEndpoint.create(
            self.worker, ip_address, port, endpoint_error_handling, connect_timeout=timeout
        )
        await self._stand(low)
        ep = self._endpoint_of(low)
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug("create_endpoint() client: %s", ep._tags_text())
        return ep

    async def create_endpoint_from_worker_address(
        self, address: UCXAddress, endpoint_error_handling: bool = True
    ) -> Endpoint:
        """An endpoint to a worker: the connection is made in the background.

        What is sent waits for it, and fails with UCXEndpointTimeoutError where the worker is not
        reached in the context's connect_timeout. Messages have the tags that are given, and
        `force_tag` is needed.
        """
        low = UCXEndpoint.create_from_worker_address(
            self.worker, address, endpoint_error_handling, connect_timeout=self.connect_timeout
        )
        return Endpoint(low, self, None)

    async def _stand(self, low: UCXEndpoint) -> None:
        """Waits for a connection to come up; one that does not is closed."""
        try:
            await low.connected
        except BaseException as error:
            low.close_blocking()
            if not isinstance(error, ropeway.Error):
                raise
            text = str(error)
            if isinstance(error, ropeway.Timeout):
                raise TimeoutError(text) from None
            if error.status == ropeway.Status.UNREACHABLE and "refused" in text:
                raise UCXNotConnectedError(f"Not connected: {text}") from None
            raise of_failure(error) from None

    def _endpoint_of(self, low: UCXEndpoint) -> Endpoint:
        return Endpoint(low, self, tags_of(low.connection.core))

    # ---- messages from any endpoint ----

    def tag_probe(self, tag: Any, remove: bool = False) -> TagProbeResult:
        """Is there a message with this tag, from whatever endpoint? With `remove` it is taken out
        of the queue, for `recv_with_handle`."""
        return self.worker.tag_probe(UCXXTag(tag), remove=remove)

    async def recv(self, buffer: Any, tag: Any) -> None:
        """Receives a message with this tag from whatever endpoint.

        Errors as for `Endpoint.recv`.
        """
        a = buffer if isinstance(buffer, Array) else Array(buffer)
        number = int(UCXXTag(tag))
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug(
                "[Worker Recv] worker: 0x%x, tag: 0x%016x, nbytes: %d, type: %s",
                self.worker.handle,
                number,
                a.nbytes,
                type(a.obj),
            )
        try:
            await self.worker.home().ctx.recv(a.buffer, number)
        except ropeway.Error as error:
            raise mapped(error, True, a.nbytes) from None

    async def recv_with_handle(self, buffer: Any, probe_result: TagProbeResult) -> None:
        """Receives a message that `tag_probe` has taken out of the queue."""
        a = buffer if isinstance(buffer, Array) else Array(buffer)
        await self.worker.tag_recv_with_handle(a, probe_result).wait()
