# SPDX-License-Identifier: BSD-3-Clause
"""ucp: the interface of UCX-Py, on ropeway. Needs no GPU, no CUDA, no UCX."""

import sys as _sys

from ropeway._ucx.beside import refuse as _refuse

_refuse("ucp", "ropeway-ucp", ("ucx_py",), _sys.path)

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
