# SPDX-License-Identifier: BSD-3-Clause
"""The shared parts of the modules `ucp` and `ucxx`, which have wheels of their own."""
