# SPDX-License-Identifier: BSD-3-Clause
"""The modules have the names of others', whose packages may be installed, too."""

from __future__ import annotations

import os
from collections.abc import Iterable


def refuse(module: str, ours: str, begins: tuple[str, ...], folders: Iterable[str]) -> None:
    """ImportError: a package of the same module is there, and which of the two is imported is
    chance.

    begins: of the names of such packages' metadata.
    """
    for folder in folders:
        try:
            names = os.listdir(folder or ".")
        except OSError:
            continue
        for name in names:
            if name.startswith(begins) and name.endswith((".dist-info", ".egg-info")):
                other = name.rpartition(".")[0].replace("_", "-")
                raise ImportError(
                    f"{ours} and {other} ({os.path.join(folder, name)}) both are the module "
                    f"{module!r}: uninstall both, and install the one that you want",
                    name=module,
                )
