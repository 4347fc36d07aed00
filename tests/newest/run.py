#!/usr/bin/python3
"""The newest rdma-core (Debian unstable's) on the software device: its programs, the calls that are newer than our headers, its own pyverbs suite.

  run.py [--suite sid]      in a tree that is made once, below ~/.cache/ropeway; root

The device is the one built here, preloaded. Versions are printed. Fails where a program fails, a call ends its process, or a test of the suite fails or ends; what the suite skips is counted.
"""
import argparse
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "tests/release"))
import trees  # noqa: E402
from answers import OURS, PACKAGES  # noqa: E402

LIBRARY = ROOT / "build/libropeway-verbs.so.0"
ENV = {"LD_PRELOAD": str(LIBRARY)}
VERSIONED = {"LD_LIBRARY_PATH": str(ROOT / "build/src/library")}
# (server, client): loopback, both end with 0, and the client says this.
PAIRS = [(f"ibv_{kind}_pingpong -d rpw_lo -g 1 -n 500", f"ibv_{kind}_pingpong -d rpw_lo -g 1 -n 500 127.0.0.1", "500 iters") for kind in ("rc", "uc", "ud", "srq")] + [
    ("rping -s -a 127.0.0.1 -C 10 -V", "rping -c -a 127.0.0.1 -C 10 -V -v", "rdma-ping-9"),
    ("ucmatose -c 3", "ucmatose -s 127.0.0.1 -c 3", "return status 0"),
    ("ib_write_bw -d rpw_lo -n 500", "ib_write_bw -d rpw_lo -n 500 127.0.0.1", "65536"),
    ("ib_send_lat -d rpw_lo -n 500", "ib_send_lat -d rpw_lo -n 500 127.0.0.1", "t_typical"),
]
# Of one vendor's hardware; they skip everything elsewhere.
VENDOR = ("test_mlx5", "test_efa", "test_cuda", "test_mana", "test_irdma")

passed = failed = 0


def told(ok, what, text=""):
    global passed, failed
    passed, failed = passed + ok, failed + (not ok)
    print(f"{'ok' if ok else 'FAILED'}  {what}" + ("" if ok else "\n    " + "\n    ".join(text.strip().splitlines()[-12:])), flush=True)


def run(tree, words, limit=120, env=None):
    try:
        return trees.enter(tree, ["sh", "-c", words], env=ENV if env is None else env, alone=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(words, 124, f"it had not ended after {limit} s")


def pair(tree, server, client, says, env=None, how=""):
    done = attempt(tree, server, client, env)
    if done.returncode == 124 and client.startswith("rping "):
        # One run in about 40 of rdma-core 65's rping does not end: its event thread polls the channel and then waits in rdma_get_cm_event,
        # while rdma_destroy_id of the main thread takes the event away.
        done = attempt(tree, server, client, env)
    told(not done.returncode and says in done.stdout, client + how, done.stdout)


def attempt(tree, server, client, env):
    return run(tree, f"{server} >/tmp/server 2>&1 & sleep 1; {client}; rc=$?; wait $! || {{ echo the server: $?; cat /tmp/server; rc=1; }}; exit $rc", 60, env)


def calls(tree):
    done = run(tree, f"env -u LD_PRELOAD gcc {HERE}/calls.c -o /tmp/calls -libverbs && /tmp/calls rpw_lo")
    found = dict(line.split(": ", 1) for line in done.stdout.splitlines() if ": " in line)
    told(not done.returncode, "no newer call ends its process", done.stdout)
    for name, answer in OURS.items():
        told(found.get(name) == answer, f"{name}: {answer}", f"got {found.get(name)}")


def repoll(tree):
    """What rsockets has for epoll is all librdmacm's, and works on the device as it is."""
    for env, how in ((ENV, ""), (VERSIONED, ", by the versioned library")):
        build = f"env -u LD_PRELOAD -u LD_LIBRARY_PATH gcc {HERE}/repoll.c -o /tmp/repoll -lrdmacm"
        done = run(tree, f"{build} && /tmp/repoll", env=env)
        told(not done.returncode and "each way, equal" in done.stdout, f"repoll{how}", done.stdout)


def suite(tree):
    unpack = "mkdir -p /tmp/s/tests && cd /usr/share/doc/rdma-core/tests && for f in *; do case $f in *.gz) zcat $f >/tmp/s/tests/${f%.gz};; *) cp $f /tmp/s/tests/;; esac; done && cd /tmp/s/tests && ls test_*.py"
    names = re.findall(r"^(test_\w+)\.py$", run(tree, f"ls /usr/share/doc/rdma-core/tests | sed 's/.gz$//'", env={}).stdout, re.M)
    told(len(names) > 15, f"{len(names)} modules of the suite")
    for name in names:
        if name.startswith(VENDOR):
            continue
        done = run(tree, f"({unpack}) >/dev/null && cd /tmp/s/tests && python3 run_tests.py --dev rpw_lo --gid 1 tests.{name}", 200)
        ran = re.search(r"^Ran (\d+) tests?", done.stdout, re.M)
        skipped = re.search(r"skipped=(\d+)", done.stdout)
        told(bool(not done.returncode and ran), f"pyverbs {name}: {ran[1] if ran else 0} tests" + (f", {skipped[1]} skipped" if skipped else ""), done.stdout)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--suite", default="sid")
    args = parser.parse_args()
    try:
        tree = trees.ready(args.suite, "newest", PACKAGES, build=False)
    except trees.Skipped as e:
        print(f"SKIPPED: the newest rdma-core: {e}\n0 passed, 0 failed, 1 skipped")
        return 0
    except trees.Failed as e:
        print(f"{e}\n0 passed, 1 failed")
        return 1
    print(run(tree, "dpkg-query -W -f '${Package} ${Version}\\n' libibverbs1 librdmacm1 perftest python3-pyverbs libc6", env={}).stdout, end="")
    done = run(tree, "ibv_devinfo -v -d rpw_lo")
    told(not done.returncode and "PORT_ACTIVE" in done.stdout, "ibv_devinfo -v", done.stdout)
    for row in PAIRS:
        pair(tree, *row)
    # They ask for symbol versions up to IBVERBS_1.17; ibv_devinfo and perftest also for IBVERBS_PRIVATE_65, which the library does not have.
    for row in PAIRS[:6]:
        pair(tree, *row, VERSIONED, ", by the versioned library")
    calls(tree)
    repoll(tree)
    suite(tree)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
