#!/usr/bin/python3
"""Holds the contract tests against include/ropeway.h: each public call is named by at least one case, and made in the tests; each status is asked for somewhere.

Usage: table.py HEADER CONTRACT_PROGRAM [--print]

--print writes the table: for each call the cases that are about it, and the functional tests of tests/msg that make it.
"""
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
FUNCTIONAL = HERE.parent / "msg"


def code(text):
    """Without comments."""
    return re.sub(r"/\*.*?\*/", " ", text, flags=re.S)


def declared(header):
    """The functions that the header exports, and the statuses that it names."""
    text = code(header)
    functions = set(re.findall(r"^RPW_API\b[^;(]*?\b(rpw_\w+)\s*\(", text, flags=re.M))
    statuses = set(re.findall(r"\b(RPW_ERR_\w+)\s*=", text))
    return functions, statuses


def cases(program):
    """case -> the calls that it is about."""
    out = subprocess.run([program, "--list"], check=True, capture_output=True, text=True).stdout
    table = {}
    for line in out.splitlines():
        name, _, calls = line.partition(": ")
        if name in table:
            sys.exit(f"table: two cases are called {name}")
        table[name] = calls.split()
    return table


def functions_of(path):
    """Top-level functions of a C file of this tree's style, each with its body."""
    text = code(path.read_text())
    return re.findall(r"^(?:static )?[\w \*]+?\b(\w+)\([^;{]*?\)\n\{\n(.*?)^\}", text, flags=re.M | re.S)


def functional_tests():
    """call -> the functional tests that make it."""
    table = {}
    for path in sorted(FUNCTIONAL.glob("*_test.c")) + sorted(FUNCTIONAL.glob("*.h")):
        for name, body in functions_of(path):
            for call in set(re.findall(r"\b(rpw_\w+)\s*\(", body)):
                table.setdefault(call, []).append(f"{path.stem}:{name}")
    return table


def wrong(header, table, sources):
    """What the tests lack, a line each."""
    functions, statuses = declared(header)
    named = {call for calls in table.values() for call in calls}
    made = set(re.findall(r"\b(rpw_\w+)\s*\(", sources))
    asked = set(re.findall(r"\bRPW_ERR_\w+", sources))
    lines = []
    if len(functions) < 40 or len(statuses) < 10:
        lines.append(f"only {len(functions)} calls and {len(statuses)} statuses were found in the header: this test cannot read it any more")
    lines += [f"{f}: no case of the contract is about it" for f in sorted(functions - named)]
    lines += [f"{f}: no case makes this call" for f in sorted(functions - made)]
    lines += [f"{f}: a case says that it is about it, and the header has no such call" for f in sorted(named - functions)]
    lines += [f"{s}: no case asks for this status" for s in sorted(statuses - asked)]
    return lines


def main():
    header, program = pathlib.Path(sys.argv[1]).read_text(), sys.argv[2]
    table = cases(program)
    # The names of statuses are listed in a table of their own; that one does not count.
    sources = "".join(code(p.read_text()) for p in sorted(HERE.glob("*_cases.c")) + [HERE / "contract.c"])
    sources = re.sub(r"\{RPW_ERR_\w+, \"RPW_ERR_\w+\"\}", "", sources)
    if "--print" in sys.argv:
        functional = functional_tests()
        for f in sorted(declared(header)[0]):
            about = [name for name, calls in table.items() if f in calls]
            print(f"{f}\n    contract: {', '.join(about)}\n    functional: {', '.join(functional.get(f, ['-']))}")
        return 0
    lines = wrong(header, table, sources)
    for line in lines:
        print(line)
    # A call without a test has to be seen: one that is made up, and a status.
    strange = header.replace("RPW_ERR_SYSTEM =", "RPW_ERR_MADE_UP = -99, RPW_ERR_SYSTEM =") + "\nRPW_API int rpw_made_up(void);\n"
    for part in "rpw_made_up: no case of", "rpw_made_up: no case makes", "RPW_ERR_MADE_UP: no case":
        if not any(line.startswith(part) for line in wrong(strange, table, sources)):
            print(f"table: '{part}' would not be noticed")
            return 1
    print(f"contract: {len(declared(header)[0])} calls, {len(table)} cases")
    return bool(lines)


sys.exit(main())
