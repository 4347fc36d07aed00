#!/usr/bin/python3
"""skipped.py TESTLOG.json: a line for each test of a meson run that was skipped, whole or in part: SKIPPED, which, and the reason that it gave."""
import json
import re
import sys

# What the kinds of tests say: our programs and scripts (of one case of unittest's, its name first), TAP, unittest by itself.
SAID = re.compile(r"^SKIPPED:? (?:test\w* \([^)]*\): )?(.*)", re.M)
TAP = re.compile(r"^(?:ok \d+[^#\n]*|1\.\.0 )# SKIP (.*)", re.M)
UNITTEST = re.compile(r"\.\.\. skipped ['\"](.*)['\"]$", re.M)


def reasons(said):
    """Each once, in the order said, with how often."""
    counts = {}
    for reason in (SAID.findall(said) or UNITTEST.findall(said)) + TAP.findall(said):
        counts[reason.strip()] = counts.get(reason.strip(), 0) + 1
    return [f"{reason} ({n} cases)" if n > 1 else reason for reason, n in counts.items()]


def main(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            tests = [json.loads(line) for line in f if line.strip()]
    except OSError:
        return  # meson ran nothing
    for test in tests:
        found = reasons((test.get("stdout") or "") + "\n" + (test.get("stderr") or ""))
        whole = test["result"] == "SKIP"
        if whole and not found:
            found = ["it gave no reason"]
        for reason in found:
            print(f"SKIPPED {test['name'].split(' / ')[-1]}{'' if whole else ', in part'}: {reason}")


if __name__ == "__main__":
    main(sys.argv[1])
