# SPDX-License-Identifier: BSD-3-Clause
"""Listener: connections that come are given to a callback, as endpoints."""

from __future__ import annotations

import asyncio
import inspect
import logging
import traceback
import weakref
from typing import Any, Callable

from .._lib.libucxx import UCXEndpoint, UCXListener

logger = logging.getLogger("ucx")


class _Handlers:
    """The callbacks of a listener that run."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task] = set()

    @property
    def active_count(self) -> int:
        return len(self._tasks)

    def start(self, coroutine: Any, loop: asyncio.AbstractEventLoop) -> None:
        task = loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def wait(self, progress: Callable[[], Any] | None = None) -> None:
        """Waits until all that were started so far have ended."""
        while self._tasks:
            if progress is not None:
                progress()
            await asyncio.wait(list(self._tasks), timeout=0.001 if progress else None)
            await asyncio.sleep(0)


class Listener:
    """Takes connections until `close` is called, or nobody has it any more."""

    def __init__(self, listener: UCXListener, handlers: _Handlers, ctx: Any) -> None:
        if not isinstance(listener, UCXListener):
            raise ValueError("listener must be an instance of UCXListener")
        self._listener: UCXListener | None = listener
        self._handler_tracker = handlers
        self._port = listener.port
        self._ip = listener.ip
        self._ctx = ctx
        weakref.finalize(self, _warn_of, handlers)

    @property
    def closed(self) -> bool:
        return self._listener is None

    @property
    def ip(self) -> str:
        """The address that it is bound to; "0.0.0.0": all of them."""
        return self._ip

    @property
    def port(self) -> int:
        return self._port

    @property
    def active_clients(self) -> int:
        """How many callbacks run."""
        return self._handler_tracker.active_count

    async def _wait_for_active_clients(self, progress: Callable[[], Any] | None = None) -> None:
        await self._handler_tracker.wait(progress=progress)

    def close(self) -> None:
        """Ends it. Endpoints that it has given stay."""
        self._listener = None
        self._ctx = None


def _warn_of(handlers: _Handlers) -> None:
    if handlers.active_count:
        logger.warning(
            "Listener object is being destroyed, but %d client handler(s) is(are) still alive. "
            "This usually indicates the Listener was prematurely destroyed.",
            handlers.active_count,
        )


def accepted(
    endpoint: UCXEndpoint,
    callback: Callable,
    ctx_ref: weakref.ref,
    handlers: _Handlers,
) -> None:
    """A connection has come: its callback runs as a task."""
    handlers.start(_handle(endpoint, callback, ctx_ref), asyncio.get_running_loop())


async def _handle(endpoint: UCXEndpoint | None, callback: Any, ctx_ref: weakref.ref) -> None:
    ctx = ctx_ref()
    if ctx is None:
        return
    try:
        ep = ctx._endpoint_of(endpoint)
        endpoint = ctx = None
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug("_listener_handler() server: %s", ep._tags_text())
        result = callback(ep)
        del ep
        if inspect.isawaitable(result):
            await result
    except Exception:
        # As text: a traceback would keep the endpoint, and so the context.
        logger.error("Uncaught listener callback error\n%s", traceback.format_exc().rstrip())
