# SPDX-License-Identifier: BSD-3-Clause
"""Version of the wheel ropeway-ucxx."""

__version__ = "0.1.0"
__git_commit__ = ""
