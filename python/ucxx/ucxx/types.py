# SPDX-License-Identifier: BSD-3-Clause
"""Types of ucxx's public calls."""

from ._lib.tag import UCXXTag, UCXXTagMask, UCXXTagMaskFull

Tag = UCXXTag
TagMask = UCXXTagMask
TagMaskFull = UCXXTagMaskFull

__all__ = ["Tag", "TagMask", "TagMaskFull"]
