# SPDX-License-Identifier: BSD-3-Clause
"""Arrays made from a seed, and what tells whether they are right."""

from __future__ import annotations

import time

import numpy as np


def array(seed: int, nbytes: int) -> np.ndarray:
    """`nbytes` (a multiple of 8) that no other seed gives, no two words of it equal."""
    n = nbytes // 8
    out = np.arange(n, dtype="u8")
    out *= 0x9E3779B97F4A7C15
    out ^= (seed * 0xD1342543DE82EF95 + 1) & 0xFFFFFFFFFFFFFFFF
    return out


def is_right(got: np.ndarray, seed: int, nbytes: int) -> bool:
    """Is it `array(seed, nbytes)`? Looked at in pieces, so that no second array is needed."""
    if got.nbytes != nbytes or got.dtype != np.dtype("u8"):
        return False
    step = 1 << 20
    for at in range(0, len(got), step):
        part = np.arange(at, min(at + step, len(got)), dtype="u8")
        part *= 0x9E3779B97F4A7C15
        part ^= (seed * 0xD1342543DE82EF95 + 1) & 0xFFFFFFFFFFFFFFFF
        if not np.array_equal(got[at : at + step], part):
            return False
    return True


def slow_array(seed: int, nbytes: int) -> np.ndarray:
    """The same, made in no hurry."""
    time.sleep(0.05)
    return array(seed, nbytes)


def fold(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a ^ b


def warm(nbytes: int) -> None:
    """Has the kernel hold so much free memory that has been used before. A virtual machine may give
    free memory back to its host, and then pays seconds for the first touch of a GiB."""
    np.ones(nbytes, dtype="u1")


def paths_of_worker(dask_worker=None) -> list[tuple[str, str, str]]:
    """Which way the connections of this worker go: (peer, transport, why)."""
    import gc

    from ucxx import Endpoint

    out = []
    for o in gc.get_objects():
        if type(o) is Endpoint and o.alive:
            info = o.info()
            out.append((info.peer, info.transport, info.why))
    return out
