# SPDX-License-Identifier: BSD-3-Clause
"""What the modules `ucp` and `ucxx`, in wheels of their own, both do."""
