# SPDX-License-Identifier: BSD-3-Clause
"""Array: one view of everything that has bytes, in host memory or a GPU's."""

from ropeway._ucx.array import Array, asarray  # noqa: F401
