# SPDX-License-Identifier: BSD-3-Clause
"""Features of contexts, and the rules of init() and reset() for the one context of a module."""

from __future__ import annotations

import contextlib
import enum
import functools
import gc
import inspect
import logging
import os
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from .._errors import Error

logger = logging.getLogger("ucx")


class Feature(enum.Enum):
    """The abilities of a context. The values are those of UCP_FEATURE_*."""

    TAG = 1
    RMA = 2
    AMO32 = 4
    AMO64 = 8
    WAKEUP = 16
    STREAM = 32
    AM = 64


#: The default of a context.
FEATURES = (Feature.TAG, Feature.WAKEUP, Feature.STREAM, Feature.AM, Feature.RMA)


def needs(feature: Feature, flags: Any) -> None:
    """ValueError: the context was made without this feature."""
    if feature not in flags:
        raise ValueError(f"UCXContext must be created with `Feature.{feature.name}`")


@contextlib.contextmanager
def translated(make: Callable[..., BaseException], *args: Any) -> Iterator[None]:
    """Raises make(error, *args), an exception of the module, for a ropeway.Error inside."""
    try:
        yield
    except Error as error:
        raise make(error, *args) from error


def options_of(ctx: Any, options: dict[str, str], env_takes_precedence: bool) -> dict[str, str]:
    """The options given to init(), or the environment's in their place.

    RuntimeError: there is a context already.
    """
    if ctx is not None:
        raise RuntimeError(
            "UCX is already initiated. Call reset() and init() "
            "in order to re-initate UCX with new options."
        )
    chosen = dict(options)
    for name, value in options.items():
        other = os.environ.get(f"UCX_{name}")
        if other is None:
            continue
        given = f"option {name}={value}", f"environment UCX_{name}={other}"
        if env_takes_precedence:
            chosen[name] = other
        used, ignored = reversed(given) if env_takes_precedence else given
        logger.debug("Ignoring %s; using %s", ignored, used)
    return chosen


def still_used(ctx: weakref.ref[Any]) -> str | None:
    """Explains why a context exists after reset() has dropped it; None: it has ended."""
    if ctx() is not None:
        gc.collect()
    left = ctx()
    if left is None:
        return None
    text = (
        "Trying to reset UCX but not all Endpoints and/or Listeners are closed(). "
        "The following objects are still referencing ApplicationContext: "
    )
    for referrer in gc.get_referrers(left):
        text += f"\n  {str(referrer)[:200]}"
    return text


def of_context(get: Callable[[], Any], method: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a function of the module from a method of its context, which `get` returns. The
    arguments and the docstring are the method's."""
    if inspect.iscoroutinefunction(method):

        async def call(*args: Any, **kwargs: Any) -> Any:
            return await method(get(), *args, **kwargs)

    else:

        def call(*args: Any, **kwargs: Any) -> Any:
            return method(get(), *args, **kwargs)

    functools.update_wrapper(call, method)
    call.__module__, call.__qualname__ = get.__module__, method.__name__
    of_method = inspect.signature(method)
    call.__signature__ = of_method.replace(parameters=[*of_method.parameters.values()][1:])
    return call
