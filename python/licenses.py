#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""licenses.py OUT ROOT NAME=PACKAGE=VERSION... - the licenses of the libraries that a wheel brings,
as the Debian packages below ROOT have them, and which version each is."""

import gzip
import pathlib
import re
import sys

HEAD = "This wheel contains these libraries, linked or beside its own. Their licenses follow.\n"


def version(folder, plain):
    """With Debian's revision, which says what was mended; where no changelog is installed, without."""
    for path in (folder / "changelog.Debian.gz", folder / "changelog.gz"):
        if path.exists():
            return re.match(r"\S+ \(([^)]+)\)", gzip.decompress(path.read_bytes()).decode())[1] + " of Debian"
    return plain


def main():
    out, root, *libraries = sys.argv[1:]
    names, texts = [], []
    for name, package, plain in (word.split("=") for word in libraries):
        folder = pathlib.Path(root, "usr/share/doc", package)
        if not (folder / "copyright").exists():
            sys.exit(f"licenses.py: {folder}/copyright is not there, and a wheel that others get needs it")
        names.append(f"{name} {version(folder, plain)}\n")
        texts.append(f"\n==== {name} ====\n\n" + (folder / "copyright").read_text(encoding="utf-8"))
    pathlib.Path(out).write_text(HEAD + "\n" + "".join(names) + "".join(texts), encoding="utf-8")


main()
