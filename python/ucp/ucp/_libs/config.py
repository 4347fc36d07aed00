# SPDX-License-Identifier: BSD-3-Clause
"""UCX's options, checked for their form, and their meaning in ropeway."""

import logging
import os
import re

from ropeway._ucx.options import ALL, DEFAULTS, in_form, in_order, merged, named

from .exceptions import UCXConfigError

logger = logging.getLogger("ucx")


def check(name, value):
    """UCXConfigError: a value that the option cannot have."""
    if not isinstance(value, str):
        raise TypeError(f"option {name}: expected str, got {type(value).__name__}")
    if not in_form(name, value):
        raise UCXConfigError(
            f"Couldn't set option {name} to {value}: Invalid parameter "
            f"(expected a value such as {DEFAULTS[name]})"
        )


def current(options=None):
    """All options as they would be now: defaults, the environment's UCX_*, `options`."""
    config = merged(DEFAULTS, options, known_only=True)
    for name, value in config.items():
        check(name, value)
    return config


def _named(text):
    return named(
        text, lambda name: logger.warning("transport %s of UCX_TLS is unknown, and left out", name)
    )


def transports(config):
    """The list for a ropeway.Context; None: its default, or $ROPEWAY_TRANSPORT's."""
    text = config["TLS"].strip()
    if text in ("all", ""):
        return None
    chosen = set(ALL) - _named(text[1:]) if text.startswith("^") else _named(text)
    return in_order(chosen) or None


UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def eager_bytes(config):
    """Sends of up to so many bytes are done at once, whatever the peer does: RNDV_THRESH, its
    first number, up to 64 KiB."""
    found = re.search(r"(?:^|:)(\d+)\s*([kmgt]?)b?(?:,|$)", config["RNDV_THRESH"].lower())
    if found is None:
        return 1 << 16 if "inf" in config["RNDV_THRESH"] else 8192
    return min(int(found.group(1)) * UNITS[found.group(2)], 1 << 16)


def rdma_devices(config):
    """The RDMA devices among UCX_NET_DEVICES, as a list; None: any."""
    names = [token.split(":")[0].strip() for token in config["NET_DEVICES"].split(",")]
    found = [name for name in names if name and os.path.isdir(f"/sys/class/infiniband/{name}")]
    return ",".join(found) or None


def cuda_support(config):
    """Whether UCX's list of transports asks for a GPU's memory."""
    text = config["TLS"].strip()
    names = {token.strip() for token in text.lstrip("^").split(",")}
    if text.startswith("^"):
        return not names & {"cuda", "cuda_copy"}
    return bool(names & {"all", "cuda", "cuda_copy", "cuda_ipc"})
