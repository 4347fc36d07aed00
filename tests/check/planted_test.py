#!/usr/bin/python3
"""Each planted program gives exactly the finding of its rule, and its twin without the mistake gives none: over the lane and over UDP.

Usage: planted_test.py BUILD [CASE...]
       planted_test.py --plugin BUILD [CASE...]     the same for callers of NCCL's plugin API, through `ropeway plugin trace`'s library
       planted_test.py --rma BUILD [CASE...]        and of one-sided operations, with the reference plugin of tests/nccl behind it
       planted_test.py --rpw BUILD [CASE...]        and for programs of the messaging library, over shm and tcp
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

PLUGIN, RPW, RMA = sys.argv[1] in ("--plugin", "--rma"), sys.argv[1] == "--rpw", sys.argv[1] == "--rma"
if PLUGIN or RPW:
    del sys.argv[1]
BUILD = pathlib.Path(sys.argv[1]).resolve()
TRACER = BUILD / "libnccl-net-ropeway-trace.so"
PLANTED = BUILD / "tests" / "check" / ("planted_rma" if RMA else "planted_plugin" if PLUGIN else "planted_rpw" if RPW else "planted")
WAYS = ("call",) if PLUGIN else ("shm", "tcp") if RPW else ("auto", "udp")
# What a process sees of a peer without the checker, by the lane between them.
LANE = {"key-bounds-asks", "key-unknown-asks"}
# Of two processes: the other one without the checker.
ALONE = ("auto alone", "udp alone")
# What befalls a case's packets (docs/faults.md).
FAULTS = {"answer-unacked": "packet sent ACK 1: delay 100 ms\n"}
# What the case brings along by its nature; the rule itself must be there with the mistake alone.
ALSO = {"mr-in-use": {"recv-late", "recv-ran-out"}, "memory-freed": {"recv-late", "recv-ran-out"}, "mw-left-region": {"destroy-order"}, "buffer-changed": {"recv-late"}, "cm-undrained": {"recv-late"}, "cq-overrun": {"cq-small"}, "rnr-forever": {"recv-late"}, "reset-drops": {"recv-ran-out"}}


def cases():
    lines = subprocess.run([PLANTED], check=True, capture_output=True, text=True).stdout.splitlines()
    return [line.split() for line in lines]


def found(case, kind, wire, folder):
    report = folder / f"{case}-{kind}-{wire.replace(' ', '-')}.jsonl"
    env = dict(os.environ, ROPEWAY_CHECK=f"rules=all:log={report}")
    if PLUGIN:
        env["ROPEWAY_TRACE_PLUGIN"] = str(BUILD / "tests" / ("nccl/librma-reference.so" if RMA else "check/libplugin_fake.so"))
    elif not RPW:
        env.update(LD_PRELOAD=f"{BUILD}/libropeway-verbs.so.0:{BUILD}/libropeway-check.so.0", ROPEWAY_WIRE=wire.split()[0], ROPEWAY_DEVICES="lo", PLANTED_PEER=wire.split()[-1])
    if case in FAULTS:
        script = folder / f"{case}.fault"
        script.write_text(FAULTS[case])
        env["ROPEWAY_FAULT"] = str(script)
    ran = subprocess.run([PLANTED] + [TRACER] * PLUGIN + [wire] * RPW + [case, kind], env=env, capture_output=True, text=True, timeout=100)
    lines = [json.loads(line) for line in report.read_text().splitlines()] if report.exists() else []
    return ran, [line for line in lines if line["kind"] == "finding"]


def verdict(case, rule, kind, wire, folder):
    ran, findings = found(case, kind, wire, folder)
    rules = sorted({f["rule"] for f in findings})
    if ran.returncode:
        return f"exit status {ran.returncode}: {ran.stderr.strip()}"
    if kind == "good":
        rules = sorted(set(rules) - ALSO.get(case, set()))
        return f"expected no finding, got {rules}: {findings[0]['text']}" if rules else ""
    if rule not in rules or set(rules) - {rule} - ALSO.get(case, set()):
        return f"expected {rule} alone, got {rules or 'nothing'}"
    site = next(f for f in findings if f["rule"] == rule).get("sites", [])
    return "" if site and site[0]["frames"][0]["module"] == str(PLANTED) else f"the first site is not in the program: {site}"


def main():
    wanted = set(sys.argv[2:])
    failed = total = 0
    with tempfile.TemporaryDirectory() as tmp:
        for case, rule in cases():
            if wanted and case not in wanted:
                continue
            for wire in WAYS[:1] if case in LANE else WAYS + ALONE * case.endswith("-apart"):
                for kind in ("bad", "good"):
                    total += 1
                    why = verdict(case, rule, kind, wire, pathlib.Path(tmp))
                    failed += bool(why)
                    print(f"{'not ok' if why else 'ok'} {total} - {case}, {kind}, {wire}{': ' + why if why else ''}")
    print(f"1..{total}")
    sys.exit(1 if failed or not total else 0)


main()
