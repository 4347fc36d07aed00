# SPDX-License-Identifier: BSD-3-Clause
"""Helpers of the modules' `utils`: the log, hashes, event loops, addresses of this host's
interfaces."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import logging
import os
import socket
import struct
import time
from collections.abc import Callable

SIOCGIFADDR = 0x8915


def get_event_loop() -> asyncio.AbstractEventLoop:
    """The loop that runs in this thread; where none does, a new one, which nothing runs yet."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.new_event_loop()


def hash64bits(*args: object) -> int:
    """64 bits, the same in every process: the first 16 hexadecimal digits of sha1(repr(args))."""
    return int.from_bytes(hashlib.sha1(repr(args).encode()).digest()[:8], "big")


class _Handler(logging.StreamHandler):  # type: ignore[type-arg]
    """Lines of UCX's form: the time in seconds since 1970, the host, the process."""

    def __init__(self) -> None:
        super().__init__()
        self.addFilter(self._complete)
        self.setFormatter(
            logging.Formatter(
                "[%(timestamp)s] [%(hostname)s:%(process)d] UCXPY  %(levelname)s %(message)s"
            )
        )

    @staticmethod
    def _complete(record: logging.LogRecord) -> bool:
        record.hostname = socket.gethostname()
        record.timestamp = f"{time.time():.6f}"
        return True


def get_ucxpy_logger() -> logging.Logger:
    """The logger "ucx". Its level is the environment's UCXPY_LOG_LEVEL, or WARNING. A line:

    [1585175070.291147] [host:1054] UCXPY  WARNING text
    """
    logger = logging.getLogger("ucx")
    logger.propagate = False
    if not any(isinstance(h, _Handler) for h in logger.handlers):
        logger.addHandler(_Handler())
    logger.setLevel(os.environ.get("UCXPY_LOG_LEVEL", "WARNING").upper())
    return logger


def ipv4_of(ifname: str) -> str:
    """The IPv4 address of an interface. OSError: there is no such interface, or it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        request = struct.pack("256s", ifname.encode()[:15])
        return socket.inet_ntoa(fcntl.ioctl(s.fileno(), SIOCGIFADDR, request)[20:24])


def best_address(
    kinds: tuple[str, ...], others: bool, address_of: Callable[[str], str] = ipv4_of
) -> str | None:
    """The address of the first interface that has one, in the order of `kinds`, the beginnings of
    names; then, where asked for, of the others, the loopback last. None: none has."""

    def rank(name: str) -> tuple[int, bool, str]:
        of_kind = [i for i, kind in enumerate(kinds) if name.startswith(kind)]
        return min(of_kind, default=len(kinds)), name == "lo", name

    for name in sorted((name for _, name in socket.if_nameindex()), key=rank):
        if others or name.startswith(kinds):
            with contextlib.suppress(OSError):
                return address_of(name)
    return None
