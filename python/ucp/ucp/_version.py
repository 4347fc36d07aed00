# SPDX-License-Identifier: BSD-3-Clause
"""Versions: of UCX-Py's interface that this module has, of UCX's behavior that programs may
count on, and of the distribution."""

__version__ = "0.45.0"
__git_commit__ = ""
__ucx_version_info__ = (1, 18, 0)
__ropeway_ucp_version__ = "0.1.0"
