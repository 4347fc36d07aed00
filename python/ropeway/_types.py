# SPDX-License-Identifier: BSD-3-Clause
"""Types that annotations name."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Buffer as Buffer
else:
    Buffer = Any

__all__ = ["Buffer"]
