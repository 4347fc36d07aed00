#!/usr/bin/env python3
"""Two programs that poll on one core: each gives its turn to the other (src/base/turn.h), so a message takes microseconds. Without that each waits for the end of a
time slice, 20,000 round trips take over a minute, and the limit ends them. Durations are printed, not judged.

Usage: one_core.py BUILD
"""
import os
import pathlib
import subprocess
import sys
import time

BUILD = pathlib.Path(sys.argv[1]).resolve()
ROUNDS, LIMIT_S = "20000", 60
CORE = str(min(os.sched_getaffinity(0)))
ENV = {k: v for k, v in os.environ.items() if not k.startswith("ROPEWAY_") and k not in ("LD_PRELOAD", "LD_LIBRARY_PATH")}


def start(*command, **env):
    return subprocess.Popen(["taskset", "-c", CORE, *command], env={**ENV, **env}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def ends(program):
    try:
        out = program.communicate(timeout=LIMIT_S)[0]
    except subprocess.TimeoutExpired:
        program.kill()
        return f"not done after {LIMIT_S} s: {program.communicate()[0]}"
    return "" if program.returncode == 0 else f"ended with {program.returncode}: {out}"


def verbs(wire):
    command = [BUILD / "ropeway", "run", "--wire", wire, "--devices", "lo", "--", "ib_send_lat", "-d", "rpw_lo", "-x", "1", "-s", "8", "-n", ROUNDS, "-F", "-p", "18777"]
    server = start(*command)
    # it listens, or the client is refused: tried until the server is there
    deadline = time.monotonic() + 20
    while True:
        why = ends(start(*command, "127.0.0.1"))
        if not why or "Couldn't connect" not in why or time.monotonic() > deadline:
            break
        time.sleep(0.1)
    if why:
        server.kill()
    return why or ends(server)


def messages(transport):
    return ends(start(BUILD / "ropeway", "perf", "-t", transport, "-s", "8", "-m", "lat", "-n", ROUNDS, "--no-bare"))


def main():
    failed = 0
    cases = [("verbs", wire, verbs) for wire in ("auto", "udp")] + [("messages", t, messages) for t in ("shm", "tcp", "verbs")]
    for kind, how, case in cases:
        began = time.monotonic()
        why = case(how)
        failed += bool(why)
        print(f"{'FAIL' if why else 'pass'} {kind} by {how} on core {CORE}, {ROUNDS} round trips ({time.monotonic() - began:.1f} s){': ' + why if why else ''}", flush=True)
    print(f"{len(cases) - failed} passed, {failed} failed")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
