#!/usr/bin/python3
"""rdma-core's pyverbs test suite on the software device, held against what kernel rxe passes.

  run.py [--lib SO] [--dev rpw_lo] [--gid 1] [--all] [-k TEXT]
        Runs what rxe_pass.txt lists (--all: the whole suite; -k: only names that contain TEXT) through LD_PRELOAD and prints a table: test, rxe, ropeway, reason.
        Fails on a test that passes on rxe, does not pass here, and has no reason in exceptions.txt ("<test>: <reason>").
  run.py --measure-rxe
        Runs the whole suite on kernel rxe in the QEMU guest and rewrites rxe_pass.txt.
  run.py --suite --dev D --gid N
        Runs the suite on any device of this machine; one JSON object a line.

Each test module runs in a process of its own; one that dies or hangs costs one test, and the rest go on in a new process.
"""
import argparse
import gzip
import json
import os
import pathlib
import select
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
from preload import preloadable  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "ropeway"
DOC = pathlib.Path("/usr/share/doc/rdma-core/tests")
EXCEPTIONS = HERE / "exceptions.txt"
# Debian 12's suite on its kernel; Debian 13's on its own.
DEBIAN = next((line.strip().partition("=")[2].strip('"') for line in open("/etc/os-release") if line.startswith("VERSION_ID=")), "12")
PASS_LIST = HERE / ("rxe_pass.txt" if DEBIAN == "12" else f"rxe_pass_{DEBIAN}.txt")
# Suites for one vendor's hardware; they skip everything elsewhere.
VENDOR = ("test_mlx5", "test_efa", "test_cuda")


def suite_folder():
    """The suite, unpacked into the cache. It comes in rdma-core's documentation, which slim containers leave out: then from the package itself."""
    target = CACHE / "pyverbs"
    if (target / "run_tests.py").exists():
        return target
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as tmp:
        source = DOC
        if not (DOC / "run_tests.py").exists():
            subprocess.run(["apt-get", "download", "rdma-core"], cwd=tmp, check=True, capture_output=True)
            subprocess.run(["dpkg", "-x", str(next(pathlib.Path(tmp).glob("*.deb"))), f"{tmp}/x"], check=True)
            source = pathlib.Path(tmp) / "x" / DOC.relative_to("/")
        work = pathlib.Path(tmp) / "pyverbs"
        work.mkdir()
        for path in source.iterdir():
            if path.suffix == ".gz":
                (work / path.stem).write_bytes(gzip.decompress(path.read_bytes()))
            else:
                shutil.copy(path, work / path.name)
        shutil.rmtree(target, ignore_errors=True)
        work.rename(target)
    return target


def child_main(folder, module, dev, gid, skip):
    """In the process that runs one module: reports over descriptor 3, one JSON object a line."""
    import importlib
    import types
    import unittest
    sys.path.insert(0, folder)
    sys.argv[1:] = ["--dev", dev, "--gid", str(gid)]
    from args_parser import parser
    parser.parse_args()
    package = types.ModuleType("tests")
    package.__path__ = [folder]
    sys.modules["tests"] = package
    report = os.fdopen(3, "w", buffering=1)
    find_interfaces_by_gid(importlib.import_module("tests.base").RDMATestCase)

    class Result(unittest.TestResult):
        def tell(self, test, status, reason=""):
            report.write(json.dumps({"test": test.id(), "status": status, "reason": reason}) + "\n")

        def startTest(self, test):
            super().startTest(test)
            self.tell(test, "start")

        def addSuccess(self, test):
            self.tell(test, "ok")

        def addSkip(self, test, reason):
            self.tell(test, "skip", reason.splitlines()[0] if reason else "")

        def addFailure(self, test, err):
            self.tell(test, "FAIL", last_line(err))

        def addError(self, test, err):
            self.tell(test, "ERROR", last_line(err))

        def addSubTest(self, test, subtest, err):
            if err:
                self.tell(test, "FAIL", last_line(err))

    def last_line(err):
        import traceback
        traceback.print_exception(*err)
        return (str(err[1]).strip().splitlines() or [err[0].__name__])[0]

    def flat(suite):
        for item in suite:
            if isinstance(item, unittest.TestSuite):
                yield from flat(item)
            else:
                yield item

    loaded = unittest.defaultTestLoader.loadTestsFromModule(importlib.import_module("tests." + module))
    only = os.environ.get("RPW_SUITE_ONLY")
    only = set(only.split(",")) if only else None
    result = Result()
    for test in flat(loaded):
        if test.id() not in skip and (only is None or test.id() in only):
            test(result)


def find_interfaces_by_gid(case):
    """rdma_cm's tests need an address of the device's interface, and look for its name in /sys/class/infiniband/<dev>/device/net, which only hardware has: rxe and the
    software device have none. What every RoCE device has is the interface of each GID."""
    def get_ip_mac(self, dev, port, idx):
        try:
            name = pathlib.Path(f"/sys/class/infiniband/{dev}/ports/{port}/gid_attrs/ndevs/{idx}").read_text().strip()
            address, mac = self.get_ip_mac_address(name)
        except (OSError, KeyError, IndexError):
            address, mac = None, None
        self.args.append([dev, port, idx, address, mac])

    case._get_ip_mac = get_ip_mac


def run_module(folder, module, dev, gid, env, timeout_s, only, log):
    """Yields {"test", "status", "reason"} for each test of the module."""
    done = []
    while True:
        read_fd, write_fd = os.pipe()
        environment = dict(env, **({"RPW_SUITE_ONLY": ",".join(only)} if only is not None else {}))
        command = ["/usr/bin/python3", str(HERE / "run.py"), "--child", str(folder), module, dev, str(gid), *done]
        process = subprocess.Popen(["/bin/sh", "-c", f'fd=$0; eval "exec 3>&$fd"; [ $fd = 3 ] || eval "exec $fd>&-"; exec "$@"', str(write_fd), *command],
                                   pass_fds=(write_fd,), env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
        os.close(write_fd)
        current, settled, pending, hung = None, True, b"", False
        while True:
            if not select.select([read_fd], [], [], timeout_s)[0]:
                hung = True
                kill_group(process)
                break
            chunk = os.read(read_fd, 65536)
            if not chunk:
                break
            pending += chunk
            *lines, pending = pending.split(b"\n")
            for line in lines:
                message = json.loads(line)
                if message["status"] == "start":
                    current, settled = message["test"], False
                elif message["test"] == current and not settled or "setUpClass" in message["test"]:
                    settled = True
                    done.append(message["test"])
                    yield message
        os.close(read_fd)
        try:
            rc = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            hung = True
        kill_group(process)
        rc = process.wait()
        if current is not None and not settled:
            done.append(current)
            yield {"test": current, "status": "HUNG" if hung else "DIED",
                   "reason": f"no end within {timeout_s} s" if hung else f"the process ended with {rc}"}
        else:
            if rc:
                yield {"test": f"tests.{module}", "status": "HUNG" if hung else "DIED", "reason": f"the module ended with {rc} after its last test"}
            return


def kill_group(process):
    try:
        os.killpg(process.pid, 9)
    except ProcessLookupError:
        pass


def run_suite(dev, gid, env, timeout_s, only=None, log=subprocess.DEVNULL):
    folder = suite_folder()
    for path in sorted(folder.glob("test_*.py")):
        if path.name.startswith(VENDOR):
            continue
        wanted = None if only is None else [t for t in only if t.startswith(f"tests.{path.stem}.")]
        if wanted == []:
            continue
        yield from run_module(folder, path.stem, dev, gid, env, timeout_s, wanted, log)


def measure_rxe():
    sys.path.insert(0, str(ROOT / "tests" / "interop"))
    from guest import Guest, prepare
    from netns import enter_namespace, add_bridge, add_tap
    prepare()
    suite_folder()
    enter_namespace()
    add_bridge()
    guest = Guest(tap=add_tap(0), memory_mb=1024)
    rc, text = guest.run(f"XDG_CACHE_HOME={CACHE.parent} {HERE}/run.py --suite --dev rxe0 --gid 1", 1800)
    results = [json.loads(line) for line in text.splitlines() if line.startswith('{"test"')]
    kernel = guest.check("uname -rv").strip()
    guest.close()
    for r in results:
        print(f"{r['status']:6} {r['test']} {r['reason']}")
    passed = sorted(r["test"] for r in results if r["status"] == "ok")
    if rc or not passed:
        print(f"the suite ended with {rc}\n{text[-2000:]}")
        return 1
    PASS_LIST.write_text(f"# The tests of rdma-core's pyverbs suite (Debian {DEBIAN}) that pass on kernel rxe: Linux {kernel}. Written by run.py --measure-rxe.\n"
                         + "\n".join(passed) + "\n")
    print(f"{len(passed)} of {len(results)} pass on rxe; rest: " + ", ".join(
        f"{n} {s}" for s, n in sorted({s: sum(r['status'] == s for r in results) for s in {r['status'] for r in results}}.items())))
    return 0


def listed(path):
    return [line.strip() for line in path.read_text().splitlines() if line.strip() and not line.startswith("#")]


def compare(args):
    reference = listed(PASS_LIST)
    reasons = dict(line.split(": ", 1) for line in listed(EXCEPTIONS))
    want = [t for t in reference if not args.k or args.k in t]
    libraries = [preloadable(args.lib)]
    if "ROPEWAY_CHECK" in os.environ:
        libraries.append(libraries[0].parent / "libropeway-check.so.0")
    env = dict(os.environ, LD_PRELOAD=":".join(map(str, libraries)), ROPEWAY_DEVICES=args.dev)  # the suite's one device, whatever this machine has
    log = open(args.log, "w") if args.log else subprocess.DEVNULL
    results = {r["test"]: r for r in run_suite(args.dev, args.gid, env, args.timeout, None if args.all else want, log)}
    missing = {"status": "MISSED", "reason": "the run never came to it"}
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    print(f"{'test':78} {'rxe':5} {'ropeway':8} reason")
    for test in sorted(set(want) | set(results)):
        on_rxe = "ok" if test in reference else "-"
        r = results.get(test, missing)
        reason = r["reason"]
        if r["status"] == "ok":
            counts["passed"] += 1
        elif test in reasons or on_rxe == "-":
            counts["skipped"] += 1
            reason = reasons.get(test, reason)
        else:
            counts["failed"] += 1
        print(f"{test:78} {on_rxe:5} {r['status']:8} {reason}", flush=True)
    for test in sorted(set(reasons) & {t for t, r in results.items() if r["status"] == "ok"}):
        print(f"note: {test} passes now; take it out of {EXCEPTIONS.name}")
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    return 1 if counts["failed"] or not counts["passed"] else 0


def main():
    if len(sys.argv) > 1 and sys.argv[1] == "--child":
        folder, module, dev, gid, *skip = sys.argv[2:]
        child_main(folder, module, dev, int(gid), set(skip))
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure-rxe", action="store_true")
    parser.add_argument("--suite", action="store_true")
    parser.add_argument("--lib", default=str(ROOT / "build" / "libropeway-verbs.so"))
    parser.add_argument("--dev", default="rpw_lo")
    parser.add_argument("--gid", type=int, default=1)
    parser.add_argument("--timeout", type=int, default=60, help="seconds for one test")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("-k", metavar="TEXT")
    parser.add_argument("--log", help="file for what the tests print, tracebacks among it")
    args = parser.parse_args()
    if args.measure_rxe:
        return measure_rxe()
    if args.suite:
        for result in run_suite(args.dev, args.gid, dict(os.environ), 180):
            print(json.dumps(result), flush=True)
        return 0
    if not os.path.exists(args.lib):
        print(f"{args.lib} is not there: run script/setup")
        return 1
    return compare(args)


if __name__ == "__main__":
    sys.exit(main())
