# SPDX-License-Identifier: BSD-3-Clause
"""UCX's options, by their names: which are known, and what they mean to ropeway.

Only TLS and NET_DEVICES change what ropeway does: TLS chooses among its transports, NET_DEVICES the
address that listeners bind. The others are accepted, since programs for UCX set them, and shown by
get_config; sizes are checked.
"""

from __future__ import annotations

import os
import re

from .exceptions import UCXInvalidParamError, UCXUnsupportedError

_SIZES = {
    "BCOPY_THRESH": "auto",
    "RNDV_FRAG_SIZE": "host:512K,cuda:4M",
    "RNDV_THRESH": "8192",
    "SEG_SIZE": "8K",
    "ZCOPY_THRESH": "auto",
}
_TEXTS = {
    "ATOMIC_MODE": "guess",
    "KEEPALIVE_INTERVAL": "20s",
    "LOG_LEVEL": "warn",
    "MAX_RNDV_RAILS": "1",
    "MEMTYPE_CACHE": "n",
    "NET_DEVICES": "all",
    "PROTO_ENABLE": "y",
    "PROTO_INFO": "n",
    "RNDV_FRAG_MEM_TYPE": "cuda",
    "RNDV_SCHEME": "auto",
    "SOCKADDR_TLS_PRIORITY": "tcp",
    "TLS": "all",
    "UD_TIMEOUT": "5.00m",
    "WARN_UNUSED_ENV_VARS": "y",
}
_DEFAULTS = {**_SIZES, **_TEXTS}

_SIZE = re.compile(r"\d+(\.\d+)?([kmgtKMGT]?[bB]?|[kmgt]ib)", re.IGNORECASE)
_SIZE_WORDS = ("auto", "inf", "infinity")

# UCX's names of transports, and ropeway's that do the same.
_TRANSPORTS = {
    "all": ("shm", "verbs", "tcp"),
    "cma": ("shm",),
    "dc": ("verbs",),
    "dc_mlx5": ("verbs",),
    "dc_x": ("verbs",),
    "ib": ("verbs",),
    "knem": ("shm",),
    "mm": ("shm",),
    "posix": ("shm",),
    "rc": ("verbs",),
    "rc_mlx5": ("verbs",),
    "rc_v": ("verbs",),
    "rc_verbs": ("verbs",),
    "rc_x": ("verbs",),
    "rdmacm": (),
    "self": ("shm",),
    "shm": ("shm",),
    "sm": ("shm",),
    "sockcm": (),
    "sysv": ("shm",),
    "tcp": ("tcp",),
    "ud": ("verbs",),
    "ud_mlx5": ("verbs",),
    "ud_v": ("verbs",),
    "ud_verbs": ("verbs",),
    "ud_x": ("verbs",),
    "verbs": ("verbs",),
    "xpmem": ("shm",),
}


def config(options: dict[str, str] | None = None) -> dict[str, str]:
    """All options: what the program gave, else the environment's ``UCX_*``, else the default.

    Raises UCXInvalidParamError for a value that an option cannot have.
    """
    out = dict(_DEFAULTS)
    for name, value in os.environ.items():
        if name.startswith("UCX_"):
            out[name[4:]] = value
    for name, value in (options or {}).items():
        out[name] = str(value)
    for name in _SIZES:
        _check_size(name, out[name])
    return out


def _check_size(name: str, value: str) -> None:
    for part in value.split(","):
        size = part.rpartition(":")[2]
        if size in _SIZE_WORDS or size in ("y", "n") or _SIZE.fullmatch(size):
            continue
        raise UCXInvalidParamError(f"Invalid parameter: UCX_{name}={value} is no size in bytes")


def transports(tls: str) -> str | None:
    """What TLS says, as ropeway's list of transports; None: it leaves the choice to ropeway.

    Raises UCXUnsupportedError where nothing of the list is a transport of ropeway's.
    """
    names = [n.strip() for n in tls.split(",") if n.strip()]
    but = bool(names) and names[0].startswith("^")
    if but:
        names[0] = names[0][1:]
    chosen: set[str] = set()
    for name in names:
        chosen.update(_TRANSPORTS.get(name, ()))
    if but:
        chosen = set(_TRANSPORTS["all"]) - {
            t for n in names if n in ("shm", "sm", "ib", "tcp") for t in _TRANSPORTS[n]
        }
    if chosen == set(_TRANSPORTS["all"]):
        return None
    if not chosen:
        raise UCXUnsupportedError(
            f"Unsupported operation: UCX_TLS={tls} names no transport of ropeway's: sm, rc, ud, tcp"
        )
    return ",".join(t for t in _TRANSPORTS["all"] if t in chosen)


def active(tls: str) -> set[str]:
    """UCX's names of the transports that a list allows."""
    allowed = transports(tls) or ",".join(_TRANSPORTS["all"])
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
