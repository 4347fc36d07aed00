# SPDX-License-Identifier: BSD-3-Clause
"""What runs in workers: a module that they can import."""

import gc


def paths(dask_worker=None):
    """The transports of this worker's endpoints."""
    import ucp

    found = [o for o in gc.get_objects() if type(o) is ucp.Endpoint and not o.closed()]
    return sorted({o.ucx_info().split("path: ")[1].split(":")[0] for o in found})
