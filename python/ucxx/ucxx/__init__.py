# SPDX-License-Identifier: BSD-3-Clause
"""ucxx on ropeway: the interface of RAPIDS' ucxx, without UCX, CUDA or a GPU.

listener = ucxx.create_listener(callback, port)
ep = await ucxx.create_endpoint(host, port)
await ep.send(array)
await ep.recv(array)
"""

from __future__ import annotations


def _refuse_original() -> None:
    """Two packages with this name in one environment overwrite each other's files."""
    import os

    for entry in os.listdir(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))):
        if entry.startswith(("ucxx-", "ucxx_cu")) and entry.endswith(".dist-info"):
            name = entry[: -len(".dist-info")].replace("_", "-")
            raise ImportError(
                f"ropeway-ucxx and {name} are both installed here, and both are the module ucxx: "
                "uninstall both, and install the one that you want"
            )


_refuse_original()
del _refuse_original

from . import exceptions, testing, types  # noqa: E402
from ._lib import libucxx  # noqa: E402
from . import core  # noqa: E402
from .core import *  # noqa: E402, F403
from ._lib_async import Endpoint, Listener  # noqa: E402
from ._version import __git_commit__, __version__  # noqa: E402
from .utils import get_address, get_ucxpy_logger  # noqa: E402

logger = get_ucxpy_logger()

__ucx_min_version__ = "1.19.0"
__ucx_version__ = "%d.%d.%d" % libucxx.get_ucx_version()

__all__ = [
    "exceptions",
    "types",
    "testing",
    "libucxx",
    *core.__all__,
    "__git_commit__",
    "__version__",
    "get_address",
]
