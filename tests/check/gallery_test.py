#!/usr/bin/python3
"""Each program of examples/check gives the finding that its comment promises, under `ropeway run --check` as it stands there, and the run ends with 86.

Usage: gallery_test.py BUILD FOLDER
"""
import pathlib
import re
import subprocess
import sys

BUILD, FOLDER = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])


def verdict(source):
    promised = re.search(r"\* {3}(ropeway: \w+ \d+ [a-z0-9-]+): \.\.\.", source.read_text())
    if not promised:
        return "its comment promises no finding"
    ran = subprocess.run([BUILD / "ropeway", "run", "--check", "--devices", "lo", "--", BUILD / "tests/check" / source.stem], capture_output=True, text=True, timeout=60)
    if promised[1] + ":" not in ran.stderr:
        return f"expected '{promised[1]}', got: {ran.stderr}"
    return "" if ran.returncode == 86 else f"expected exit status 86, got {ran.returncode}"


def main():
    failed = 0
    sources = sorted(path for path in FOLDER.glob("*.c") if path.stem != "pair")
    for number, source in enumerate(sources, 1):
        why = verdict(source)
        failed += bool(why)
        print(f"{'not ok' if why else 'ok'} {number} - {source.stem}")
        for line in why.splitlines():
            print("# " + line)
    print(f"1..{len(sources)}")
    sys.exit(1 if failed or len(sources) < 10 else 0)


main()
