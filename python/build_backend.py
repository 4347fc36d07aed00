# SPDX-License-Identifier: BSD-3-Clause
"""How pip builds this package: by meson-python, whose wheel then gets the tag of the oldest Python that it runs with.

meson-python tags a wheel of the stable ABI for the Python that built it: built by 3.13 it is cp313-abi3, and pip of 3.11 refuses it, though the extension is the same.
The oldest is that of requires-python, in pyproject.toml; python/meson.build compiles for the stable ABI of that one.
"""
import base64
import hashlib
import os
import pathlib
import re
import tomllib
import zipfile

from mesonpy import build_editable, build_sdist, get_requires_for_build_sdist, get_requires_for_build_wheel  # noqa: F401: hooks of PEP 517
import mesonpy

ROOT = pathlib.Path(__file__).resolve().parent.parent


def oldest_tag():
    """As in cp311-abi3."""
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    return "cp{}{}-abi3".format(*re.fullmatch(r">=(\d+)\.(\d+)", wanted).groups())


def retagged(members, tag):
    """The contents of a wheel, [(ZipInfo, bytes)] with RECORD last, under another tag. Only its files WHEEL and RECORD change."""
    changed = {}
    for info, data in members:
        if info.filename.endswith(".dist-info/WHEEL"):
            data = re.sub(rb"(?m)^Tag: cp\d+-abi3-", f"Tag: {tag}-".encode(), data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            changed[info.filename] = f"{info.filename},sha256={digest},{len(data)}"
        elif info.filename.endswith(".dist-info/RECORD"):
            data = "".join(changed.get(line.split(",")[0], line) + "\n" for line in data.decode().splitlines()).encode()
        yield info, data


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    name = mesonpy.build_wheel(wheel_directory, config_settings, metadata_directory)
    new = re.sub(r"-cp\d+-abi3-", f"-{oldest_tag()}-", name)
    if new == name:
        return name
    folder = pathlib.Path(wheel_directory)
    with zipfile.ZipFile(folder / name) as old, zipfile.ZipFile(folder / new, "w") as made:
        for info, data in retagged([(info, old.read(info)) for info in old.infolist()], oldest_tag()):
            made.writestr(info, data)
    os.remove(folder / name)
    return new
