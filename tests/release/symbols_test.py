#!/usr/bin/python3
"""debian/*.symbols against what the libraries of a build export: the packages do not build where these differ.

  symbols_test.py BUILD_DIR             exit status 1 where a line is missing, or has no symbol
  symbols_test.py BUILD_DIR --write     puts new symbols in, with the version of meson.build. What is gone is yours to remove: it breaks programs
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIBRARIES = {"libropeway0": "libropeway.so.0", "ropeway-verbs": "libropeway-verbs.so.0"}


def exported(library):
    """NAME@NODE, as dpkg-gensymbols has them; Base: without a version."""
    lines = subprocess.run(["nm", "-D", "--defined-only", "--with-symbol-versions", library], capture_output=True, text=True, check=True).stdout.splitlines()
    names = [line.split()[-1].replace("@@", "@") for line in lines]
    return {name if "@" in name else f"{name}@{name}" if " A " in line else f"{name}@Base" for name, line in zip(names, lines)}


def main():
    build, version = pathlib.Path(sys.argv[1]), re.search(r"^\s*version: '([^']+)'", (ROOT / "meson.build").read_text(), re.M)[1]
    wrong = 0
    for package, library in LIBRARIES.items():
        path = ROOT / f"debian/{package}.symbols"
        lines = path.read_text().splitlines()
        told = {line.split()[0] for line in lines if line.startswith(" ")}
        there = exported(build / library)
        if "--write" in sys.argv:
            rows = sorted([line for line in lines if line.startswith(" ")] + [f" {name} {version}" for name in there - told])
            path.write_text("\n".join([line for line in lines if not line.startswith(" ")] + rows) + "\n")
            told |= there
        for name in sorted(there - told):
            print(f"debian/{package}.symbols has no line for {name}: tests/release/symbols_test.py {build} --write")
        for name in sorted(told - there):
            print(f"debian/{package}.symbols has {name}, which {library} does not export: that breaks programs; remove the line if it is meant")
        wrong += len(there ^ told)
        print(f"{package}: {len(there)} symbols")
    return 1 if wrong else 0


sys.exit(main())
