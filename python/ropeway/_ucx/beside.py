# SPDX-License-Identifier: BSD-3-Clause
"""The modules share their names with other packages, which may be installed as well."""

from __future__ import annotations

import os
from collections.abc import Iterable


def refuse(module: str, ours: str, begins: tuple[str, ...], folders: Iterable[str]) -> None:
    """Raises ImportError if another package with the same module is installed: the import would
    choose one by chance.

    begins: the names of its metadata folders begin so.
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
