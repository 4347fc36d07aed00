# SPDX-License-Identifier: BSD-3-Clause
"""Array: one view of host memory (buffer protocol) and of a GPU's (__cuda_array_interface__)."""

from ropeway._ucx.array import Array, asarray

__all__ = ["Array", "asarray"]
