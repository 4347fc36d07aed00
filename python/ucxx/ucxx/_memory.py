# SPDX-License-Identifier: BSD-3-Clause
"""Memory of what is received without a buffer of the program's: NumPy arrays, where NumPy is."""

from __future__ import annotations

from typing import Any

try:
    import numpy
except ImportError:
    numpy = None


def allocate(nbytes: int) -> Any:
    """Writable memory for `nbytes`; not initialized, where NumPy gives it."""
    if numpy is not None:
        return numpy.empty(nbytes, dtype="u1")
    return bytearray(nbytes)


def viewed(view: Any) -> Any:
    """The bytes of a view, where they lie; it is given back when nothing refers to them."""
    return memoryview(view) if numpy is None else numpy.frombuffer(view, dtype="u1")


def copied(data: bytes | memoryview) -> Any:
    """The same bytes in writable memory of their own."""
    if numpy is not None:
        return numpy.frombuffer(data, dtype="u1").copy() if len(data) else allocate(0)
    return bytearray(data)
