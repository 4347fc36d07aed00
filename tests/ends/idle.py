#!/usr/bin/python3
"""What idle processes cost: so many of them, in connected pairs, in a network namespace of this script's. Prints CPU and memory of each, wake-ups, and how long it took all of them to connect. No test: figures only. Root.

  idle.py [--build BUILD] [--seconds S] [--load N] [--open] [PROCESSES ...]      default: 2 20 200

--load N: while N processes compute. --open: the device is opened and nothing else.
"""
import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
from preload import preloadable  # noqa: E402

NAME = f"rpwi{os.getpid()}"
OPEN = "import ctypes,time; v=ctypes.CDLL('{lib}'); n=ctypes.c_int(); v.ibv_get_device_list.restype=ctypes.POINTER(ctypes.c_void_p); l=v.ibv_get_device_list(ctypes.byref(n)); v.ibv_open_device.restype=ctypes.c_void_p; c=v.ibv_open_device(ctypes.c_void_p(l[0])); print('ready', __import__('os').getpid(), flush=True); time.sleep(3600)"


def running_ns(pid):
    """Of all its threads: time on a core, and how often it got one."""
    stats = [pathlib.Path(f"/proc/{pid}/task/{t}/schedstat").read_text().split() for t in os.listdir(f"/proc/{pid}/task")]
    return sum(int(s[0]) for s in stats), sum(int(s[2]) for s in stats)


def pss_kib(pid):
    return next(int(line.split()[1]) for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines() if line.startswith("Pss:"))


def start(build, n, only_open):
    run = ["ip", "netns", "exec", NAME]
    env = {**os.environ, "LD_PRELOAD": str(preloadable(build / "libropeway-verbs.so"))}
    if only_open:
        argvs = [["/usr/bin/python3", "-c", OPEN.format(lib=build / "libropeway-verbs.so")]] * n
    else:
        argvs = [[build / "tests/ends/rc_peer", role, "127.0.0.1", str(10000 + i), "dies", "wait"] for i in range(n // 2) for role in ("serve", "connect=127.0.0.1")]
    return [subprocess.Popen([*run, *argv], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for argv in argvs]


def measure(build, n, seconds, load, only_open):
    began = time.monotonic()
    busy = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(load)]
    processes = start(build, n, only_open)
    try:
        pids, said = [], []
        for p in processes:
            line = p.stdout.readline()
            (pids.append(int(line.split()[1])) if line.startswith("ready") else said.append(line.strip()))
        took = time.monotonic() - began
        for b in busy:
            b.kill()
        print(f"{n} processes{f', load {load}' if load else ''}: {len(pids)} {'opened it' if only_open else 'connected'} in {took:.1f} s; the others: {sorted(set(said)) or 'none'}", flush=True)
        time.sleep(4)
        before = [running_ns(p) for p in pids]
        time.sleep(seconds)
        cost = [(b[0] - a[0], b[1] - a[1]) for a, b in zip(before, map(running_ns, pids))]
        shares = sorted(c[0] / 1e7 / seconds for c in cost)
        print(f"    each: {statistics.median(shares):.4f}% of a core (at most {shares[-1]:.4f}%), {statistics.median(c[1] for c in cost) / seconds:.1f} wake-ups a second, {statistics.median(map(pss_kib, pids)):.0f} KiB; "
              f"all together: {sum(shares):.2f}% of a core", flush=True)
    finally:
        for p in processes + busy:
            p.kill()
        for p in processes + busy:
            p.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build", type=pathlib.Path)
    parser.add_argument("--seconds", default=10, type=int)
    parser.add_argument("--load", default=0, type=int)
    parser.add_argument("--open", action="store_true")
    parser.add_argument("processes", nargs="*", type=int, default=[2, 20, 200])
    args = parser.parse_args()
    subprocess.run(["ip", "netns", "add", NAME], check=True)
    try:
        subprocess.run(["ip", "-n", NAME, "link", "set", "lo", "up"], check=True)
        for n in args.processes:
            measure(args.build.resolve(), n, args.seconds, args.load, args.open)
    finally:
        subprocess.run(["ip", "netns", "del", NAME], check=False)


if __name__ == "__main__":
    main()
