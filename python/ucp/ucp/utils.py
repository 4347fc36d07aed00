# SPDX-License-Identifier: BSD-3-Clause
"""Hashes, the log, event loops: small things that programs take from ucp.utils."""

import multiprocessing

from ropeway._ucx.host import get_event_loop, get_ucxpy_logger, hash64bits  # noqa: F401

mp = multiprocessing.get_context("spawn")


def hmean(a):
    """The harmonic mean of an array."""
    n = len(a)
    return n / sum(1 / x for x in a) if n else 0
