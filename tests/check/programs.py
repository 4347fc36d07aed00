#!/usr/bin/python3
"""The stages perftest and cm under ROPEWAY_CHECK: they pass as without it, and every finding about a program that is not ours stands in docs/check-findings.md.

Usage: programs.py [--only perftest|cm] [--report FILE]     --report: no program is run, the lines of a run before are read
The last line is "N passed, N failed".
"""
import argparse
import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
STAGES = {"perftest": [ROOT / "tests/programs/perftest.sh"], "cm": ["/usr/bin/python3", "-B", ROOT / "tests/programs/cm.py"]}
KNOWN = ROOT / "docs/check-findings.md"


def known():
    """{(program, rule)} of the table's rows: | program | rule | ... |"""
    rows = re.findall(r"^\| `([^`|]+)` [^|]*\| `?([a-z0-9-]+)`? \|", KNOWN.read_text(), re.M) if KNOWN.exists() else []
    return set(rows)


def findings(report):
    """{(program, rule, severity): [text of the first, how many processes]}"""
    programs, found = {}, collections.OrderedDict()
    for line in report.read_text().splitlines():
        entry = json.loads(line)
        if entry["kind"] == "begin":
            programs[entry["pid"]] = pathlib.Path(entry["program"]).name
        elif entry["kind"] == "finding":
            key = programs.get(entry["pid"], "?"), entry["rule"], entry["severity"]
            found.setdefault(key, [entry["text"], 0])[1] += 1
    return found


def run(stage, report):
    print(f"{stage}, under ROPEWAY_CHECK", flush=True)
    ran = subprocess.run(STAGES[stage], env=dict(os.environ, ROPEWAY_CHECK=f"log={report}"), cwd=ROOT, capture_output=True, text=True, errors="replace")
    counts = re.findall(r"^(\d+) passed, (\d+) failed", ran.stdout, re.M)
    for line in ran.stdout.splitlines():
        if re.match(r"(not ok|FAILED|\s*FAIL)", line):
            print("  " + line)
    if not counts:
        print(ran.stdout[-3000:] + ran.stderr[-3000:])
        return 0, 1
    return int(counts[-1][0]), int(counts[-1][1])


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", choices=STAGES)
    options.add_argument("--report", type=pathlib.Path)
    asked = options.parse_args()
    passed = failed = 0
    with tempfile.TemporaryDirectory() as tmp:
        report = asked.report or pathlib.Path(tmp) / "report.jsonl"
        for stage in () if asked.report else [asked.only] if asked.only else STAGES:
            good, bad = run(stage, report)
            passed, failed = passed + good, failed + bad
        told = known()
        found = findings(report) if report.exists() else {}
        if not found and not asked.only:
            print("expected a report with notes at least, got none: was anything checked?")
            failed += 1
        for (program, rule, severity), (text, processes) in found.items():
            fine = severity == "note" or (program, rule) in told
            print(f"{'ok' if fine else 'not ok'} - {program}: {severity} {rule}, in {processes} processes: {text}")
            passed, failed = passed + fine, failed + (not fine)
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


main()
