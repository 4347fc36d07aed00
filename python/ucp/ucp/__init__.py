# SPDX-License-Identifier: BSD-3-Clause
"""ucp: the interface of UCX-Py, on ropeway. Needs no GPU, no CUDA, no UCX."""

import os as _os
import sys as _sys


def _refuse_beside_ucx_py():
    """Both packages are called ucp: with both installed, who is imported is chance."""
    for folder in _sys.path:
        try:
            names = _os.listdir(folder or ".")
        except OSError:
            continue
        for name in names:
            if name.startswith("ucx_py") and name.endswith((".dist-info", ".egg-info")):
                raise ImportError(
                    f"ropeway-ucp and {name.split('-')[0].replace('_', '-')} "
                    f"({_os.path.join(folder, name)}) both are the module 'ucp': "
                    "uninstall one of them",
                    name="ucp",
                )


_refuse_beside_ucx_py()

from . import exceptions, utils  # noqa: E402, F401
from ._libs.utils import get_address  # noqa: E402, F401
from ._version import (  # noqa: E402, F401
    __git_commit__,
    __ropeway_ucp_version__,
    __ucx_version_info__,
    __version__,
)
from .core import (  # noqa: E402, F401
    ApplicationContext,
    Endpoint,
    Listener,
    continuous_ucx_progress,
    create_endpoint,
    create_endpoint_from_worker_address,
    create_listener,
    fence,
    flush,
    get_active_transports,
    get_config,
    get_ucp_context_info,
    get_ucp_worker,
    get_ucp_worker_info,
    get_ucx_address_from_buffer,
    get_ucx_version,
    get_worker_address,
    init,
    progress,
    recv,
    register_am_allocator,
    reset,
)
from .exceptions import (  # noqa: E402, F401
    UCXCanceled,
    UCXCloseError,
    UCXError,
)
from .utils import get_ucxpy_logger  # noqa: E402

__ucx_min_version__ = "1.15.0"
__ucx_version__ = "%d.%d.%d" % __ucx_version_info__

logger = get_ucxpy_logger()
