# SPDX-License-Identifier: BSD-3-Clause
"""The calls of `ucxx`, on one ApplicationContext, which is made when it is first needed."""

from __future__ import annotations

import functools
import logging
import weakref
from typing import Any

from ropeway._ucx.calls import of_context, options_of, still_used

from . import _options
from ._lib import libucxx as ucx_api
from ._lib.libucxx import UCXAddress
from ._lib_async import ApplicationContext
from ._lib_async.endpoint import Endpoint  # noqa: F401
from ._lib_async.listener import Listener  # noqa: F401
from .exceptions import UCXError

logger = logging.getLogger("ucx")

_ctx: ApplicationContext | None = None


def _get_ctx() -> ApplicationContext:
    global _ctx
    if _ctx is None:
        _ctx = ApplicationContext()
    return _ctx


def init(
    options: dict[str, str] = {},
    env_takes_precedence: bool = False,
    progress_mode: str | None = None,
    enable_delayed_submission: bool | None = None,
    enable_python_future: bool | None = None,
    connect_timeout: float | None = None,
) -> None:
    """Makes the context, with options. Without it the first call that needs one does.

    Parameters
    ----------
    options
        UCX's, without "UCX_" before their names.
    env_takes_precedence
        Whether the environment's ``UCX_*`` win over them.
    progress_mode
        "blocking", "polling", "thread" or "thread-polling"; None: ``$UCXPY_PROGRESS_MODE``, or
        "thread". The event loop makes progress in each of them.
    enable_delayed_submission, enable_python_future
        Accepted; None: ``$UCXPY_ENABLE_DELAYED_SUBMISSION``, ``$UCXPY_ENABLE_PYTHON_FUTURE``.
    connect_timeout
        How long connecting may take, in seconds; None: ``$UCXPY_CONNECT_TIMEOUT``, or 5.

    Raises
    ------
    RuntimeError
        There is a context already.
    UCXInvalidParamError, UCXUnsupportedError
        An option has a value that it cannot have.
    """
    global _ctx
    _ctx = ApplicationContext(
        options_of(_ctx, options, env_takes_precedence),
        progress_mode=progress_mode,
        enable_delayed_submission=enable_delayed_submission,
        enable_python_future=enable_python_future,
        connect_timeout=connect_timeout,
    )


def reset() -> None:
    """Ends the context. The next call that needs one makes a new one.

    Raises
    ------
    UCXError
        Somebody still has an endpoint or a listener that is not closed.
    """
    global _ctx
    stop_notifier_thread()
    if _ctx is None:
        return
    ref = weakref.ref(_ctx)
    _ctx = None
    text = still_used(ref)
    if text is not None:
        raise UCXError(text)


def stop_notifier_thread() -> None:
    """There is no notifier thread; accepted, since programs for ucxx stop it before they end."""
    if _ctx is not None:
        _ctx.stop_notifier_thread()


def get_ucx_version() -> tuple[int, int, int]:
    """The version of UCX whose interface this is. Makes no context."""
    return ucx_api.get_ucx_version()


def progress() -> None:
    """Moves things on by hand. Not from a callback."""
    _get_ctx().worker.progress()


def get_config() -> dict[str, str]:
    """All options; before there is a context, those that it would have. Makes none."""
    return ucx_api.get_current_options() if _ctx is None else _ctx.config


_call = functools.partial(of_context, _get_ctx)
create_listener = _call(ApplicationContext.create_listener)
create_endpoint = _call(ApplicationContext.create_endpoint)
create_endpoint_from_worker_address = _call(ApplicationContext.create_endpoint_from_worker_address)
continuous_ucx_progress = _call(ApplicationContext.continuous_ucx_progress)
recv = _call(ApplicationContext.recv)


def get_ucp_context_info() -> str:
    """What the context is, as text."""
    return _get_ctx().ucp_context_info


def get_ucp_worker_info() -> str:
    """What the worker has done, as text."""
    return _get_ctx().ucp_worker_info


def get_active_transports() -> set[str]:
    """UCX's names of the transports that the options allow."""
    return _options.active(_get_ctx().config["TLS"])


def get_ucp_worker() -> int:
    """A number that stands for the worker."""
    return _get_ctx().ucp_worker


def get_ucxx_worker() -> int:
    """A number that stands for the worker."""
    return _get_ctx().ucxx_worker


def get_worker_address() -> UCXAddress:
    """Where other processes connect to this one by `create_endpoint_from_worker_address`."""
    return _get_ctx().worker_address


def get_ucx_address_from_buffer(buffer: Any) -> UCXAddress:
    """An address from its bytes."""
    return UCXAddress.create_from_buffer(buffer)


__all__ = [
    "init",
    "reset",
    "stop_notifier_thread",
    "get_ucx_version",
    "progress",
    "get_config",
    "create_listener",
    "create_endpoint",
    "create_endpoint_from_worker_address",
    "get_ucp_context_info",
    "get_ucp_worker_info",
    "get_active_transports",
    "continuous_ucx_progress",
    "get_ucp_worker",
    "get_ucxx_worker",
    "get_worker_address",
    "get_ucx_address_from_buffer",
    "recv",
]
