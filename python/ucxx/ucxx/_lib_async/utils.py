# SPDX-License-Identifier: BSD-3-Clause
"""The event loop that a call is about, and the hash that tags are made with."""

from __future__ import annotations

import asyncio
import hashlib


def get_event_loop() -> asyncio.AbstractEventLoop:
    """The loop that runs in this thread; where none does, a new one, which nothing runs yet."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.new_event_loop()


def hash64bits(*args: object) -> int:
    """The first 16 hexadecimal digits of the SHA-1 of what `args` looks like, as a number."""
    return int(hashlib.sha1(repr(args).encode()).hexdigest()[:16], 16)
