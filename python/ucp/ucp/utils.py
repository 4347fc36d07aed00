# SPDX-License-Identifier: BSD-3-Clause
"""Hashes, the log, event loops: small things that programs take from ucp.utils."""

import asyncio
import hashlib
import logging
import multiprocessing
import os
import socket
import time

mp = multiprocessing.get_context("spawn")

LOG_FORMAT = "[%(timestamp)s] [%(hostname)s:%(process)d] UCXPY  %(levelname)s %(message)s"


def get_event_loop():
    """The loop that runs now, or a new one."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.new_event_loop()


class _Stamp(logging.Filter):
    """Adds the time, in seconds since 1970, and the host's name to a record."""

    def filter(self, record):
        record.hostname = socket.gethostname()
        record.timestamp = "%.6f" % time.time()
        return True


def get_ucxpy_logger():
    """The logger "ucx". Its level is the environment's UCXPY_LOG_LEVEL, or WARNING. A line:

    [1585175070.291147] [host:1054] UCXPY  WARNING text
    """
    logger = logging.getLogger("ucx")
    logger.propagate = False
    if not any(isinstance(f, _Stamp) for h in logger.handlers for f in h.filters):
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter(LOG_FORMAT))
        handler.addFilter(_Stamp())
        logger.addHandler(handler)
    logger.setLevel(os.environ.get("UCXPY_LOG_LEVEL", "WARNING").upper())
    return logger


def hash64bits(*args):
    """64 bits, the same in every process: the first 16 hexadecimal digits of sha1(repr(args))."""
    return int.from_bytes(hashlib.sha1(repr(args).encode()).digest()[:8], "big")


def hmean(a):
    """The harmonic mean of an array."""
    n = len(a)
    return n / sum(1 / x for x in a) if n else 0
