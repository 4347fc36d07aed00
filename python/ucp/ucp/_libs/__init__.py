# SPDX-License-Identifier: BSD-3-Clause
"""The lower half of `ucp`: workers, endpoints and requests with callbacks, without a loop."""
