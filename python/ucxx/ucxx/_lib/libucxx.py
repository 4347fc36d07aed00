# SPDX-License-Identifier: BSD-3-Clause
"""UCXX's objects without asyncio: contexts, workers, endpoints, listeners, requests.

A worker is progressed by hand (`progress`, `progress_worker_event`) or by a thread of its own
(`start_progress_thread`), and in an event loop by the loop. What `ucxx` offers to coroutines is
made of these.
"""

from ..exceptions import *  # noqa: F403
from .address import UCXAddress
from .arr import Array
from .context import (
    Feature,
    UCXConfig,
    UCXContext,
    get_current_options,
    get_ucx_version,
)
from .endpoint import UCXEndpoint
from .listener import UCXListener
from .request import TagProbeResult, UCXBufferRequest, UCXBufferRequests, UCXRequest
from .tag import UCXXTag, UCXXTagMask, UCXXTagMaskFull
from .worker import PythonRequestNotifierWaitState, UCXWorker

__all__ = [
    "Array",
    "Feature",
    "PythonRequestNotifierWaitState",
    "TagProbeResult",
    "UCXAddress",
    "UCXBufferRequest",
    "UCXBufferRequests",
    "UCXConfig",
    "UCXContext",
    "UCXEndpoint",
    "UCXListener",
    "UCXRequest",
    "UCXWorker",
    "UCXXTag",
    "UCXXTagMask",
    "UCXXTagMaskFull",
    "get_current_options",
    "get_ucx_version",
]
