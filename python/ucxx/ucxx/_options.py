# SPDX-License-Identifier: BSD-3-Clause
"""UCX's options, by their names, and their meaning in ropeway.

Only TLS and NET_DEVICES change what ropeway does: TLS chooses among its transports, NET_DEVICES the
address that listeners bind. The others are accepted, since programs for UCX set them, and shown by
get_config; sizes are checked.
"""

from __future__ import annotations

import re

from ropeway._ucx.options import ALL, DEFAULTS, in_order, merged, named

from .exceptions import UCXInvalidParamError, UCXUnsupportedError

_SIZES = ("BCOPY_THRESH", "RNDV_FRAG_SIZE", "RNDV_THRESH", "SEG_SIZE", "ZCOPY_THRESH")
_DEFAULTS = {
    **DEFAULTS,
    "LOG_LEVEL": "warn",
    "PROTO_INFO": "n",
    "SOCKADDR_TLS_PRIORITY": "tcp",
    "UD_TIMEOUT": "5.00m",
    "WARN_UNUSED_ENV_VARS": "y",
}
_SIZE = re.compile(r"\d+(\.\d+)?([kmgt]?b?|[kmgt]ib)|auto|inf|infinity|y|n", re.IGNORECASE)


def config(options: dict[str, str] | None = None) -> dict[str, str]:
    """All options: what the program gave, else the environment's ``UCX_*``, else the default.

    Raises UCXInvalidParamError for a value that an option cannot have.
    """
    out = {n: str(v) for n, v in merged(_DEFAULTS, options, known_only=False).items()}
    for name in _SIZES:
        for part in out[name].split(","):
            if not _SIZE.fullmatch(part.rpartition(":")[2]):
                raise UCXInvalidParamError(
                    f"Invalid parameter: UCX_{name}={out[name]} is no size in bytes"
                )
    return out


def transports(tls: str) -> str | None:
    """What TLS says, as ropeway's list of transports; None: it leaves the choice to ropeway.

    Raises UCXUnsupportedError where nothing of the list is a transport of ropeway's.
    """
    names = [n.strip() for n in tls.split(",") if n.strip()]
    if names and names[0].startswith("^"):
        out = {names[0][1:], *names[1:]} & {"shm", "sm", "ib", "tcp"}
        chosen = set(ALL) - named(",".join(out))
    else:
        chosen = named(tls) | ({"shm"} if "self" in names else set())
    if chosen == set(ALL):
        return None
    if not chosen:
        raise UCXUnsupportedError(
            f"Unsupported operation: UCX_TLS={tls} names no transport of ropeway's: sm, rc, ud, tcp"
        )
    return in_order(chosen)


def active(tls: str) -> set[str]:
    """UCX's names of the transports that a list allows."""
    allowed = transports(tls) or in_order(ALL)
    names = {"shm": ("self", "posix"), "verbs": ("rc", "ud"), "tcp": ("tcp",)}
    found = {u for t in allowed.split(",") for u in names[t]}
    if tls.strip() not in ("all", "") and not tls.startswith("^"):
        asked = {n.strip() for n in tls.split(",")}
        found = {n for n in found if n in asked} or found
    return found


def listen_host(devices: str) -> str:
    """The host part of the address that listeners bind: "" for all addresses."""
    names = [n.strip() for n in devices.split(",") if n.strip()]
    if not names or "all" in names or any(":" in n for n in names):
        return ""
    from .utils import get_address

    for name in names:
        try:
            return get_address(name)
        except OSError:
            continue
    raise UCXInvalidParamError(
        f"Invalid parameter: UCX_NET_DEVICES={devices} has no device with an IPv4 address"
    )
