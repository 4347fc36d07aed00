#!/usr/bin/python3
"""Programs of others under ROPEWAY_CHECK: they pass as without it, and every error and warning about one of them stands in docs/check-findings.md.

Usage: programs.py [--only SET[:REGEX]]... [--keep FILE] [--report FILE]... [--write]
  --only     these sets (perftest, cm, pyverbs, packages, ucx, wheels, nccl); with REGEX, of the set's own cases those that match
  --keep     the report stays in FILE, which grows: so a set can be run in parts
  --report   no program is run: the lines of these reports are read
  --write    puts the table of programs into docs/check-findings.md: of all that this run has, or these reports have
The last line is "N passed, N failed, N skipped".
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
PAGE = ROOT / "docs" / "check-findings.md"
BEGIN, END = "<!-- programs: tests/check/programs.py --write -->\n", "<!-- end of the programs -->\n"
PYTHON = ["/usr/bin/python3", "-B"]
DEBIAN = ROOT / "tests" / "debian"


def here(script):
    """A script of tests/debian that is in no quick row, with what this machine has."""
    return [*PYTHON, "-c", f"import sys; sys.path.insert(0, {str(DEBIAN)!r}); import run; sys.exit(run.enter(None, ['/usr/bin/python3', '-B', {str(DEBIAN / script)!r}]).returncode)"]


# What runs them. Those without a count of their own end with 0, or with 77 if they cannot run here.
SETS = {
    "perftest": [ROOT / "tests/programs/perftest.sh"],
    "cm": [*PYTHON, ROOT / "tests/programs/cm.py"],
    "pyverbs": [*PYTHON, ROOT / "tests/pyverbs/run.py"],
    "packages": [*PYTHON, DEBIAN / "run.py", "--here"],
    "ucx": here("ucx.py"),
    "wheels": [*PYTHON, ROOT / "tests/wheels/run.py", "--only", "mpich"],
    "nccl": here("nccl.py"),
}
PARTS = {"perftest": "--only", "cm": "--only", "packages": "--only", "pyverbs": "-k"}
# Where a program is known by another name than its file: by its set and its path.
NAMES = {
    r"/nccl_ib$": ("NCCL's IB transport", "2.22.3"),
    r"^pyverbs:.*/python3": ("rdma-core's pyverbs tests", "python3-pyverbs"),
    r"^wheels:.*/python3": ("MPICH, of PyPI", "5.0.2"),
    r"/mpi_pattern$": ("Open MPI, by UCX and libfabric", "libopenmpi3"),
    r"/lun_hash$": ("libiscsi (a program of ours)", "libiscsi7"),
    r"/cm_cases$": ("rdma_cm, case by case (a program of ours)", "librdmacm1"),
    r"/rpma_check$": ("librpma (a program of ours)", "librpma0"),
}


# ---- reports ----

class Program:
    def __init__(self):
        self.path, self.processes, self.found = "", 0, {}  # found: {(rule, severity): [text of the first, those processes]}


def programs_of(reports):
    """{name: Program}"""
    programs, running, of = collections.OrderedDict(), {}, ""
    for report in reports:
        for line in report.read_text(errors="replace").splitlines():
            entry = json.loads(line)
            if entry["kind"] == "set":
                of = entry["name"]
            elif entry["kind"] == "begin":
                path = f"{of}:{entry['program']}"
                program = programs.setdefault(name_of(path)[0], Program())
                program.path = path
                program.processes += 1
                running[entry["pid"]] = program, program.processes
            elif entry["kind"] == "finding":
                program, process = running[entry["pid"]]
                told = program.found.setdefault((entry["rule"], entry["severity"]), [entry["text"], set()])
                told[1].add(process)
    return programs


def name_of(path):
    """(what the page calls it, its Debian package or its version)"""
    for pattern, known in NAMES.items():
        if re.search(pattern, path):
            return known
    return pathlib.Path(path).name, None


def version_of(path):
    package = name_of(path)[1]
    if package and package[0].isdigit():
        return package
    path = path.partition(":")[2]
    for name in () if package else (path, path.removeprefix("/usr")):
        owner = subprocess.run(["dpkg-query", "-S", name], capture_output=True, text=True).stdout
        package = package or owner.partition(":")[0]
    shown = subprocess.run(["dpkg-query", "-W", "-f", "${source:Package} ${Version}", package or "-"], capture_output=True, text=True)
    return shown.stdout if not shown.returncode else "?"


# ---- the page ----

def known():
    """{(program, rule)} of the table of findings: | program ... | rule | what happens | why |"""
    found = set()
    for program, rule in re.findall(r"^\| (.+?) \| `([a-z0-9-]+)` \| .+ \| .+ \|$", PAGE.read_text(), re.M):
        found |= {(name, rule) for name in re.findall(r"`([^`]+)`", program)}
    return found


def table(programs):
    rows = ["| program | version | processes | errors | warnings | notes |", "|---|---|---|---|---|---|"]
    for name, program in sorted(programs.items(), key=lambda item: item[0].lower()):
        cells = [", ".join(f"`{rule}` {len(processes)}" for (rule, severity), (_, processes) in sorted(program.found.items()) if severity == wanted) or "0" for wanted in ("error", "warning", "note")]
        rows.append(f"| `{name}` | {version_of(program.path)} | {program.processes} | {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def write(programs):
    text = PAGE.read_text()
    before, found, rest = text.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not found or not ended:
        sys.exit(f"{PAGE}: no place for the table of programs")
    PAGE.write_text(before + BEGIN + table(programs) + END + after)


# ---- running ----

def run(name, part, report):
    """(passed, failed, skipped)"""
    print(f"{name}{' ' + part if part else ''}, under ROPEWAY_CHECK", flush=True)
    with report.open("a") as out:  # a line of ours: which set the next ones are of
        out.write(json.dumps({"kind": "set", "name": name}) + "\n")
    words = [*map(str, SETS[name]), *([PARTS[name], part] if part else [])]
    ran = subprocess.run(words, env=dict(os.environ, ROPEWAY_CHECK=f"log={report}"), cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    counts = re.findall(r"^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?", ran.stdout, re.M)
    for line in ran.stdout.splitlines():
        if re.match(r"\s*(not ok|FAIL|SKIPPED|failed )", line):
            print("  " + line)
    if counts:
        passed, failed, skipped = (int(n or 0) for n in counts[-1])
        failed += bool(ran.returncode not in (0, 77) and not failed)
    else:
        passed, failed, skipped = ran.returncode == 0, ran.returncode not in (0, 77), ran.returncode == 77
    if failed:
        print(ran.stdout[-6000:])
    return passed, failed, skipped


def judge(programs):
    """(passed, failed): a line for each rule of each program."""
    told, passed, failed = known(), 0, 0
    for name, program in programs.items():
        for (rule, severity), (text, processes) in program.found.items():
            fine = severity == "note" or (name, rule) in told
            print(f"{'ok' if fine else 'not ok'} - {name}: {severity} {rule}, in {len(processes)} of {program.processes} processes: {text}")
            passed, failed = passed + fine, failed + (not fine)
        if not program.found:
            print(f"ok - {name}: nothing, in {program.processes} processes")
            passed += 1
    return passed, failed


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", action="append")
    options.add_argument("--keep", type=pathlib.Path)
    options.add_argument("--report", type=pathlib.Path, action="append", default=[])
    options.add_argument("--write", action="store_true")
    asked = options.parse_args()
    counts = [0, 0, 0]
    sets = [one.partition(":") for one in asked.only or SETS]
    for name, _, part in sets:
        if name not in SETS or (part and name not in PARTS):
            options.error(f"unknown set '{name}'" if name not in SETS else f"{name} has no parts")
    with tempfile.TemporaryDirectory() as tmp:
        report = (asked.keep or pathlib.Path(tmp, "report.jsonl")).resolve()
        for name, _, part in [] if asked.report else sets:
            counts = [have + more for have, more in zip(counts, run(name, part, report))]
        reports = asked.report or [report]
        programs = programs_of(path for path in reports if path.exists())
    if not programs:
        print("expected a report, got none: was anything checked?")
        counts[1] += 1
    passed, failed = judge(programs)
    if asked.write:
        write(programs)
    print(f"{counts[0] + passed} passed, {counts[1] + failed} failed, {counts[2]} skipped")
    sys.exit(1 if counts[1] + failed else 0)


main()
