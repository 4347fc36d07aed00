# SPDX-License-Identifier: BSD-3-Clause
"""The event loop that a call is about, and the hash that tags are made with."""

from ropeway._ucx.host import get_event_loop, hash64bits

__all__ = ["get_event_loop", "hash64bits"]
