# SPDX-License-Identifier: BSD-3-Clause
"""The logger of ucxx, and addresses of network interfaces."""

from __future__ import annotations

import os
import socket

from ropeway._ucx.host import best_address, get_ucxpy_logger, ipv4_of

__all__ = ["get_address", "get_ucxpy_logger"]

_AF_INET6_FILE = "/proc/net/if_inet6"


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
    address_of = _ipv6_of if use_ipv6 else ipv4_of
    if ifname is None:
        ifname = os.environ.get("UCXPY_IFNAME")
    if ifname is not None:
        return address_of(ifname)
    found = best_address(("ib", "eth", "en"), True, address_of)
    if found is None:
        raise OSError("No devices found")
    return found
