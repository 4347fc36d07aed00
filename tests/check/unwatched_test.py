#!/usr/bin/python3
"""What the end of a report says was not watched: nothing where the hooks of free are in front, the library that is missing, the allocator that is in front of them. Behind them an allocator may be any.

Usage: unwatched_test.py BUILD
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

BUILD = pathlib.Path(sys.argv[1]).resolve()
PLANTED = BUILD / "tests" / "check" / "planted"
VERBS, HOOKS, OWN = BUILD / "libropeway-verbs.so.0", BUILD / "libropeway-check.so.0", BUILD / "tests" / "check" / "libown_free.so"


def report(folder, *preload):
    """The rules found in a program that frees memory in flight, and the end of the report."""
    file = folder / "report.jsonl"
    file.unlink(missing_ok=True)
    env = dict(os.environ, LD_PRELOAD=":".join(map(str, preload)), ROPEWAY_CHECK=f"rules=all:log={file}", ROPEWAY_DEVICES="lo")
    subprocess.run([PLANTED, "mr-in-use", "bad"], env=env, check=True, timeout=100)
    unwatched = [line["unwatched"] for line in map(json.loads, file.read_text().splitlines()) if line["kind"] == "end"]
    file.unlink()
    subprocess.run([PLANTED, "memory-freed", "bad"], env=env, check=True, timeout=100)
    rules = {line.get("rule") for line in map(json.loads, file.read_text().splitlines())} if file.exists() else set()
    return unwatched, "memory-freed" in rules


def main():
    cases = (
        ("the hooks are in front", (VERBS, HOOKS), "", True),
        ("no hooks", (VERBS,), "libropeway-check.so.0", False),
        ("another allocator in front of the hooks", (OWN, VERBS, HOOKS), f"free was not watched: the program's is that of {OWN}", False),
        ("another allocator behind the hooks", (VERBS, HOOKS, OWN), "", True),
    )
    failed = 0
    with tempfile.TemporaryDirectory() as tmp:
        for i, (name, preload, sentence, found) in enumerate(cases, 1):
            unwatched, seen = report(pathlib.Path(tmp), *preload)
            good = len(unwatched) == 1 and (sentence in unwatched[0] if sentence else not unwatched[0]) and seen == found
            failed += not good
            print(f"{'ok' if good else 'not ok'} {i} - {name}{'' if good else f': unwatched {unwatched}, memory-freed found: {seen}'}")
    print(f"1..{len(cases)}")
    sys.exit(1 if failed else 0)


main()
