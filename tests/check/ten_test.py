#!/usr/bin/python3
"""Ten programs with bugs that people reported in public (tests/check/ten), each run under the checker. Their author wrote them from the reports, and read the checker and its rules only afterwards, so what it misses is as much a
result as what it finds: docs/check-ten.md. The same program compiled with -DFIXED=1 has no bug, and must have no error and no warning. Notes are not compared.

Usage: ten_test.py BUILD [PROGRAM...]
"""
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent / "ten"
BUILD = pathlib.Path(sys.argv[1]).resolve()
PRELOAD = BUILD / "libropeway-verbs.so.0"
LIMIT_S = 60

# The rules that find each program. None: a known miss. When one is found, its row here and in docs/check-ten.md changes.
FOUND = {
    "acks_on_one_cq": {"events-unacked"},
    "cq_too_small": {"cq-small", "cq-overrun"},
    "datagram_without_grh": {"recv-short"},
    "destroyed_in_handler": {"cm-destroyed"},
    "half_an_address": {"key-bounds"},
    "partly_drained": {"polled-in-part"},
    "read_given_up": {"buffer-changed"},
    "receives_lost_in_reset": {"reset-drops", "rnr-forever"},
    "window_of_acks": {"sq-overflow"},
    "write_unseen": None,
}
# Found in those runs in which the memory changes at the right moment.
BY_CHANCE = {"write_unseen": {"buffer-changed"}}


def compiled(name, fixed, folder):
    program = folder / f"{name}-{fixed}"
    command = [os.environ.get("CC", "cc"), "-O1", "-g", "-Wall", "-Wextra", "-Werror", f"-DFIXED={fixed}", HERE / f"{name}.c", "-o", program, "-libverbs", "-lrdmacm"]
    subprocess.run(command, check=True)
    return program


def checked(program):
    """The findings that are no notes, and how the program ended. Each process has a log of its own."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("ROPEWAY_") and k not in ("LD_PRELOAD", "LD_LIBRARY_PATH")}
    ran = subprocess.run([program], env={**kept, "ROPEWAY_CHECK": f"log={program}.%p.log", "LD_PRELOAD": str(PRELOAD)}, capture_output=True, text=True, timeout=LIMIT_S)
    lines = [json.loads(line) for log in sorted(program.parent.glob(f"{program.name}.*.log")) for line in log.read_text().splitlines()]
    findings = [line for line in lines if line["kind"] == "finding" and line["severity"] != "note"]
    last = (ran.stdout + ran.stderr).strip().splitlines()[-1:]
    return findings, f"ended with {ran.returncode}, {'; '.join(last) or 'silent'}"


def judged(name, fixed, folder):
    findings, end = checked(compiled(name, fixed, folder))
    rules = {f["rule"] for f in findings}
    expected = set() if fixed else FOUND[name] or set()
    right = rules == expected or (not fixed and rules == BY_CHANCE.get(name))
    said = [f"    {f['severity']} {f['number']} {f['rule']}: {f['text']}" for f in findings]
    result = f"{'ok' if right else 'NOT OK'} {name}{' fixed' if fixed else ''}: {', '.join(sorted(rules)) or 'nothing'} found"
    return right, "\n".join([result + ("" if right else f", {', '.join(sorted(expected)) or 'nothing'} expected; {end}"), *said])


def main():
    names = sys.argv[2:] or sorted(FOUND)
    strange = {path.stem for path in HERE.glob("*.c")} ^ set(FOUND)
    if strange:
        sys.exit(f"a program without a row, or a row without a program: {', '.join(sorted(strange))}")
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(max_workers=4) as pool:
        runs = [pool.submit(judged, name, fixed, pathlib.Path(folder)) for name in names for fixed in (0, 1)]
        results = [run.result() for run in runs]
    for _, text in results:
        print(text)
    print(f"{sum(1 for name in names if FOUND[name])} of {len(names)} programs are found each time; {sum(not right for right, _ in results)} of {len(results)} runs are not as expected")
    return not all(right for right, _ in results)


if __name__ == "__main__":
    sys.exit(main())
