#!/usr/bin/env python3
"""No honest peer is given up: SENDs with timeout 14 and retry 7 to a process that is stopped for one and a half times the least that these allow (0.81 s of 0.54 s), on a machine with a load.

patience.py BUILD [RUNS [LOAD]]: RUNS in all (1000), LOAD busy processes beside them (8). Not in script/test: minutes.
"""
import os
import subprocess
import sys
import time

AT_ONCE = 20


def main():
    build = sys.argv[1]
    runs = int(sys.argv[2]) if len(sys.argv) > 2 else 1000
    load = int(sys.argv[3]) if len(sys.argv) > 3 else 8
    program = os.path.join(build, "tests/device/device_nobody_test")
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(load)]
    begun = time.monotonic()
    try:
        rounds = [runs // AT_ONCE + (i < runs % AT_ONCE) for i in range(AT_ONCE)]
        all_of_them = [subprocess.Popen([program, str(n)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) for n in rounds if n]
        said = [p.communicate()[1] for p in all_of_them]
    finally:
        for p in busy:
            p.kill()
            p.wait()
    failed = [t for p, t in zip(all_of_them, said) if p.returncode]
    for t in failed:
        print(t, file=sys.stderr)
    print(f"{runs} runs beside {load} busy processes, {os.cpu_count()} cores, {time.monotonic() - begun:.0f} s: {len(failed)} of {len(all_of_them)} programs failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
