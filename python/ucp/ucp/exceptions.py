# SPDX-License-Identifier: BSD-3-Clause
"""The exceptions of `ucp`, where programs look for them."""

from ._libs.exceptions import *  # noqa: F403
from ._libs.exceptions import __all__  # noqa: F401
