# SPDX-License-Identifier: BSD-3-Clause
"""Addresses of this host's interfaces, and what benchmark programs print with."""

import contextlib
import os

from ropeway._ucx.host import best_address, ipv4_of

try:
    from nvtx import annotate as nvtx_annotate
except ImportError:

    @contextlib.contextmanager
    def nvtx_annotate(message=None, color=None, domain=None):
        """Stands in for nvtx.annotate where nvtx is not installed: marks nothing."""
        yield


# In order of preference, by the beginnings of their names.
INTERFACE_KINDS = ("ib", "eth", "en", "docker")


def get_address(ifname=None):
    """The IPv4 address of a network interface.

    ifname: the interface's name. None: the one that the environment's UCXPY_IFNAME names, or
    else the first that has an address of those named ib*, eth*, en*, docker*, in this order.

    Gives text, such as "10.0.0.1". OSError: there is no such interface, or it has no address.
    RuntimeError: none of the interfaces has one.
    """
    ifname = ifname or os.environ.get("UCXPY_IFNAME")
    if ifname is not None:
        return ipv4_of(ifname)
    found = best_address(INTERFACE_KINDS, others=False)
    if found is not None:
        return found
    raise RuntimeError(
        "no interface named "
        + ", ".join(f"{kind}*" for kind in INTERFACE_KINDS)
        + " has an IPv4 address: name one in the environment variable UCXPY_IFNAME"
    )


try:
    from dask.utils import format_bytes, format_time, parse_bytes
except ImportError:
    parse_bytes = None

    def format_time(x):
        """Seconds as text with a unit that fits."""
        for unit, factor in (("ns", 1e9), ("us", 1e6), ("ms", 1e3)):
            if x * factor < 1e3:
                return f"{x * factor:.3f} {unit}"
        return f"{x:.3f} s"

    def format_bytes(x):
        """Bytes as text with a unit that fits."""
        if x < 1024:
            return f"{x} B"
        for power, unit in enumerate(("KiB", "MiB", "GiB", "TiB"), 1):
            if x < 1024 ** (power + 1) or unit == "TiB":
                return f"{x / 1024**power:.2f} {unit}"


def print_separator(separator="-", length=80):
    """A line of one character."""
    print(separator * length)


def print_key_value(key, value, key_length=25):
    """A key, and its value in the second column."""
    print(f"{key: <{key_length}} | {value}")


def print_multi(values, key_length=25):
    """A row of a table: at least two values."""
    assert isinstance(values, (tuple, list)) and len(values) > 1
    print("".join(f"{value: <{key_length}} | " for value in values[:-1]) + values[-1])
