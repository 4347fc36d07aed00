# SPDX-License-Identifier: BSD-3-Clause
"""UCXX's interface without asyncio."""
