# SPDX-License-Identifier: BSD-3-Clause
"""The logger of ucxx, and addresses of network interfaces."""

from __future__ import annotations

import fcntl
import logging
import os
import socket
import struct
import time

_SIOCGIFADDR = 0x8915
_AF_INET6_FILE = "/proc/net/if_inet6"
_NET_CLASS = "/sys/class/net"


def get_ucxpy_logger() -> logging.Logger:
    """The logger "ucx", with a handler whose lines are of UCX's form.

    ``UCXPY_LOG_LEVEL`` is its level, WARNING by default. A line reads::

        [1585175070.291147] [dgx12:1054] UCXPY  WARNING Test
    """
    logger = logging.getLogger("ucx")
    logger.propagate = False
    logger.setLevel(os.environ.get("UCXPY_LOG_LEVEL", "WARNING").upper())
    if any(isinstance(h, _Handler) for h in logger.handlers):
        return logger
    logger.addHandler(_Handler())
    return logger


class _Handler(logging.StreamHandler):
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


def _ipv4_of(ifname: str) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        name = struct.pack("256s", ifname.encode()[:15])
        return socket.inet_ntoa(fcntl.ioctl(s.fileno(), _SIOCGIFADDR, name)[20:24])


def _ipv6_of(ifname: str) -> str:
    found = []
    try:
        with open(_AF_INET6_FILE) as f:
            for line in f:
                digits, _index, _prefix, scope, _flags, name = line.split()
                if name == ifname:
                    link_local = int(scope, 16) == 0x20
                    found.append((link_local, bytes.fromhex(digits)))
    except OSError:
        pass
    if not found:
        raise OSError(f"No such device, or it has no IPv6 address: {ifname}")
    return socket.inet_ntop(socket.AF_INET6, min(found)[1])


def get_address(ifname: str | None = None, use_ipv6: bool = False) -> str:
    """The address of a network interface.

    Parameters
    ----------
    ifname
        Its name. None: ``$UCXPY_IFNAME``, or else the first that has an address among those called
        ib*, eth*, en*, and the others that are not the loopback; the loopback where there is no
        other.
    use_ipv6
        An IPv6 address instead of an IPv4 one.

    Raises
    ------
    OSError
        There is no such interface, or it has no such address.

    Examples
    --------
    >>> get_address(ifname='lo')
    '127.0.0.1'
    """
    address_of = _ipv6_of if use_ipv6 else _ipv4_of
    if ifname is None:
        ifname = os.environ.get("UCXPY_IFNAME")
    if ifname is not None:
        return address_of(ifname)
    for name in sorted(os.listdir(_NET_CLASS), key=_preference):
        try:
            return address_of(name)
        except OSError:
            continue
    raise OSError("No devices found")


def _preference(ifname: str) -> tuple[int, str]:
    for rank, prefix in enumerate(("ib", "eth", "en")):
        if ifname.startswith(prefix):
            return rank, ifname
    return (5 if ifname == "lo" else 4), ifname
