#!/usr/bin/python3
"""Lines of C sources: at most 100 columns (a tab is 8, a Chinese sign 2), the licence in the first, and of a test at most 700.
What we ship prints no address by %p and no other "(nil)": RPWI_AT does it.

Usage: check_lines.py FILE... Prints one line for each that is wrong; exit status 0 when there is none.
"""
import pathlib
import re
import sys
import unicodedata

COLUMNS = 100
TEST_LINES = 700
# Not a name of a file, in which %p is the process ID.
ADDRESS = re.compile(r'^(?!.*(strstr\(|A %p in FILE|^ \*|/\*)).*"[^"]*((?<!%)%p|\(nil\))')
LICENCE = "/* SPDX-License-Identifier: BSD-3-Clause */"


def width(line):
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line.expandtabs(8))


def wrong_lines(path):
    lines = path.read_text().splitlines()
    if path.name.endswith("_test.c") and len(lines) > TEST_LINES:
        yield len(lines), f"{TEST_LINES} lines are the most that a test has: split it by subject"
    for number, line in enumerate(lines, 1):
        if number == 1 and line != LICENCE:
            yield number, f"the first line is not {LICENCE}"
        if path.parts[0] == "src" and ADDRESS.search(line):
            yield number, 'an address by %p, or a "(nil)": give RPWI_AT(address) to a %s'
        if width(line) > COLUMNS:
            yield number, f"{width(line)} columns, {COLUMNS} are the most"


def main():
    paths = [pathlib.Path(a) for a in sys.argv[1:]]
    wrong = [(p, n, why) for p in paths for n, why in wrong_lines(p)]
    for path, number, why in wrong:
        print(f"{path}:{number}: {why}")
    print(f"lines: {len(paths)} files, {len(wrong)} wrong")
    return 1 if wrong or not paths else 0


if __name__ == "__main__":
    sys.exit(main())
