# SPDX-License-Identifier: BSD-3-Clause
"""UCXX for coroutines."""

from .application_context import ApplicationContext
from .endpoint import Endpoint
from .listener import Listener

__all__ = ["ApplicationContext", "Endpoint", "Listener"]
