# SPDX-License-Identifier: BSD-3-Clause
"""UCXContext: options and features."""

from __future__ import annotations

import itertools
import logging
import os
from typing import Iterable

import ropeway
from ropeway._ucx.calls import FEATURES, Feature

from .. import _options

logger = logging.getLogger("ucx")

#: The version of UCX whose interface this is.
_UCX_VERSION = (1, 19, 0)

#: Numbers that stand for an object in this process.
handles = itertools.count(0x10000000, 0x40)


def get_ucx_version() -> tuple[int, int, int]:
    """The version of UCX whose interface this is."""
    return _UCX_VERSION


def get_current_options() -> dict[str, str]:
    """The options that a context would have if it were made now."""
    return _options.config()


class Numbered:
    """A base for objects with a `handle`."""

    handle: int

    @property
    def ucxx_ptr(self) -> int:
        return self.handle


class UCXConfig:
    """The options, before there is a context."""

    def __init__(self, user_options: dict[str, str] | None = None) -> None:
        self.config = _options.config(user_options)


class UCXContext(Numbered):
    """Options and features; workers are made of it."""

    def __init__(
        self,
        config_dict: dict[str, str] | None = None,
        feature_flags: Iterable[Feature] = FEATURES,
    ) -> None:
        self.config = _options.config(config_dict)
        _options.transports(self.config["TLS"])
        self.features = frozenset(feature_flags)
        self.feature_flags = sum(f.value for f in self.features)
        self.handle = next(handles)
        logger.info("UCP initiated using config: ")
        for name, value in self.config.items():
            logger.info("  %s, %s", name, value)

    @property
    def cuda_support(self) -> bool:
        """Does a buffer of a GPU go by its address? Where a GPU is there, and no option forbids."""
        tls = self.config["TLS"]
        if tls.startswith("^"):
            if "cuda" in tls:
                return False
        elif tls != "all" and "cuda" not in tls:
            return False
        return _has_gpu()

    @property
    def info(self) -> str:
        lines = [f"# ropeway {ropeway.core.VERSION}, by the interface of ucxx"]
        for i, name in enumerate(sorted(_options.active(self.config["TLS"]))):
            lines.append(f"# resource {i} : md {i} dev {i} flags -- {name}/ropeway")
        return "\n".join(lines) + "\n"


def _has_gpu() -> bool:
    return os.path.exists("/dev/nvidiactl") or os.path.exists("/dev/nvidia-uvm")
