# SPDX-License-Identifier: BSD-3-Clause
"""Workers, endpoints, listeners and requests, as `ucp._libs.ucx_api` of UCX-Py has them: with
callbacks, without a loop. ucp.core puts asyncio on top.

A UCXWorker has a ropeway context: what belongs to one thread at a time. A worker's address is
that of a listener which the worker opens when the address is first asked for. Two workers that
connect to each other's address share one connection where they can; where they connect at the
same time, there are two, and what comes by either is taken for the endpoint that the program has.
"""

from .memory import (  # noqa: F401
    PackedRemoteKey,
    RemoteMemory,
    UCXIO,
    UCXMemoryHandle,
    UCXRkey,
    get_nb,
    get_nbi,
    put_nb,
    put_nbi,
)
from .address import UCXAddress  # noqa: F401
from .am import Inbox  # noqa: F401
from .endpoint import UCXEndpoint, UCXEndpointTimeout, host_port  # noqa: F401
from .exceptions import *  # noqa: F403
from .listener import UCXListener  # noqa: F401
from .objects import AllocatorType, Feature, UCXContext, UCXObject, get_current_options  # noqa: F401
from .objects import get_ucx_version  # noqa: F401
from .transfer import (  # noqa: F401
    UCXRequest,
    am_recv_nb,
    am_send_nbx,
    stream_recv_nb,
    stream_send_nb,
    tag_recv_nb,
    tag_send_nb,
)
from .utils import nvtx_annotate  # noqa: F401
from .worker import UCXWorker  # noqa: F401
