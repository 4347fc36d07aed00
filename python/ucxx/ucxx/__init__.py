# SPDX-License-Identifier: BSD-3-Clause
"""ucxx on ropeway: the interface of RAPIDS' ucxx, without UCX, CUDA or a GPU.

listener = ucxx.create_listener(callback, port)
ep = await ucxx.create_endpoint(host, port)
await ep.send(array)
await ep.recv(array)
"""

from __future__ import annotations

import os as _os

from ropeway._ucx.beside import refuse as _refuse

# Two wheels with one module overwrite each other's files: they are in one folder.
_refuse("ucxx", "ropeway-ucxx", ("ucxx-", "ucxx_cu"), [_os.path.dirname(__path__[0])])

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
