#!/usr/bin/python3
"""The wheel where people install it: bare trees of Debian 12, 13 and unstable with nothing but Python and pip, without a network; beside rdma-core older and newer than ours; the action's steps with
it; and the wheel for arm64 under qemu-user. A table with times at the end.

  bare.py [--wheels FOLDER] [--only REGEX] [-v]     the wheels of that folder (default: those that tests/python/run --wheels makes)

Trees lie below ~/.cache/ropeway/release (root; debootstrap). Without root it says SKIPPED and ends with 77.
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "tests/release"))
import trees  # noqa: E402
import wheels  # noqa: E402

SUITES = {"bookworm": "Debian 12", "trixie": "Debian 13", "sid": "Debian unstable"}
BARE = ("python3", "python3-pip")
VERBS = (*BARE, "ibverbs-utils", "rdmacm-utils", "iproute2")
# Seconds that the issue allows, from nothing: to a round trip; to ibv_rc_pingpong.
ROUND_TRIP_S, PINGPONG_S = 10, 20
INSTALL = "python3 -m pip install -q --root-user-action ignore --break-system-packages --no-index --find-links $WHEELS ropeway"
PAIR = "ropeway run -- {0} >/tmp/server 2>&1 & sleep 0.3; ropeway run -- {1} || {{ cat /tmp/server; exit 1; }}; wait $!"
PINGPONG = PAIR.format("ibv_rc_pingpong -d rpw_lo -g 1 -c", "ibv_rc_pingpong -d rpw_lo -g 1 -c 127.0.0.1")
RPING = PAIR.format("rping -s -a 127.0.0.1 -C 5 -V", "rping -c -a 127.0.0.1 -C 5 -V -v")
# A message each way, compared, over each transport in turn.
MESSAGES = """
import asyncio, os, sys, ropeway
async def main():
    async with ropeway.listen("127.0.0.1:0") as listener:
        a = await ropeway.connect(listener.address)
        b = await listener.accept()
    sent = bytes(range(256)) * 2000
    for x, y in ((a, b), (b, a)):
        got = bytearray(len(sent))
        _, received = await asyncio.gather(x.send(sent, tag=7), y.recv(got, tag=7))
        assert got == sent and received.tag == 7
    print("all as sent by", a.info().transport)
    a.close()
    b.close()
for transport in sys.argv[1].split(","):
    os.environ["ROPEWAY_TRANSPORT"] = transport
    asyncio.run(main())
"""
# An endpoint with a key where GnuTLS is not there: nothing comes to the socket that it would connect to.
KEY = """
import os, socket, ropeway, ropeway.blocking
open("/tmp/key", "w").write("a long pass phrase, no hex"); os.chmod("/tmp/key", 0o600); os.environ["ROPEWAY_KEY_FILE"] = "/tmp/key"
l = socket.create_server(("127.0.0.1", 0)); l.setblocking(False)
try:
    ropeway.blocking.connect("127.0.0.1:%d" % l.getsockname()[1], timeout=2.0)
except ropeway.Error as e:
    print(e.status.name, e)
try:
    print("the first bytes:", l.accept()[0].recv(3).hex())
except BlockingIOError:
    print("no byte was sent")
"""


# The versioned library, found where the system has none.
VERSIONED = """
import ctypes
count = ctypes.c_int()
ctypes.CDLL("libibverbs.so.1").ibv_get_device_list(ctypes.byref(count))
print(count.value, "device by libibverbs.so.1")
"""
# README's console, with the wheel's command as build/ropeway.
README = f"""
import os, pathlib, sys, tempfile
sys.path.insert(0, "{ROOT}/tests/release")
import doors
folder = tempfile.mkdtemp()
os.mkdir(folder + "/build")
os.symlink("/usr/local/bin/ropeway", folder + "/build/ropeway")
with doors.one_interface():
    sys.exit("\\n".join(doors.readme_console(folder)) or 0)
"""


class Wrong(Exception):
    """What a case found, for people."""


class Tree:
    """A suite's tree with these packages; commands run in it without a network."""

    def __init__(self, suite, kind, packages, folder):
        self.tree, self.folder = trees.ready(suite, kind, packages, build=False), folder

    def run(self, script, limit_s=120):
        try:
            done = trees.enter(self.tree, ["sh", "-c", script], env={"WHEELS": str(self.folder), "MESSAGES": MESSAGES, "KEY": KEY, "README": README, "VERSIONED": VERSIONED}, alone=True, timeout=limit_s)
        except subprocess.TimeoutExpired:
            raise Wrong(f"{script}: it had not ended after {limit_s} s") from None
        if done.returncode:
            raise Wrong(f"{script}\nended with {done.returncode}:\n{done.stdout[-3000:]}")
        return done.stdout

    def timed(self, script, most_s):
        """What it said; the seconds from nothing: the best of three, where this machine does other things, too."""
        best = None
        for _ in range(3):
            self.clean()
            began = time.monotonic()
            said = self.run(f"{INSTALL}; {script}")
            best = min(best or 999, time.monotonic() - began)
            if best <= most_s:
                return said, best
        raise Wrong(f"{best:.1f} s, {most_s} are allowed: {script}")

    def clean(self):
        self.run("python3 -m pip uninstall -q -y --root-user-action ignore --break-system-packages ropeway 2>/dev/null || true")


def expect(said, *texts):
    for text in texts:
        if text not in said:
            raise Wrong(f"expected '{text}' in:\n{said[-3000:]}")


# ---- the cases: each returns what the table shows ----

def bare(suite, folder):
    tree = Tree(suite, "wheel", BARE, folder)
    tree.clean()
    if tree.run("ls /usr/lib/*/libibverbs* /usr/lib/*/libisal* /usr/lib/*/libjansson* /usr/bin/gcc 2>/dev/null || true"):
        raise Wrong(f"{tree.tree} is not bare")
    said, seconds = tree.timed("ropeway devices; ropeway demo --size 1M --no-pcap", ROUND_TRIP_S)
    expect(said, "rpw_lo: software device", "verified  all 1048576 bytes")
    said = tree.run('python3 -c "$MESSAGES" shm,tcp,verbs')
    expect(said, *(f"all as sent by {transport}" for transport in ("shm", "tcp", "verbs")))
    expect(tree.run("ropeway plugin check $(ropeway plugin path) --only load; ropeway run -- ls /sys/class/infiniband; ropeway run --print-library; test -s /usr/local/share/man/man1/ropeway.1"), ", 0 fail", "rpw_lo")
    expect(tree.run('ropeway run -- python3 -c "$VERSIONED"'), "1 device by libibverbs.so.1")
    has_tls = tree.run("ldconfig -p | grep -c libgnutls.so.30 || true").strip() != "0"
    said = tree.run('python3 -c "$KEY"')
    expect(said, *(("the first bytes: 160301",) if has_tls else ("NOT_SUPPORTED", "a key needs the library GnuTLS", "no byte was sent")))
    tree.clean()
    left = tree.run("find / -xdev -name '*ropeway*' -not -path '*/.cache/*' -not -name ropeway-tree -not -name ropeway-packages -not -path '/proc/*' -not -path '/work/*' -not -path '/tmp/*' 2>/dev/null || true")
    if left.strip():
        raise Wrong(f"uninstalled, it leaves {left}")
    return f"{seconds:.1f} s to a verified round trip; a key: {'TLS of the system' if has_tls else 'an error before the first byte'}"


def pingpong(suite, folder):
    tree = Tree(suite, "wheelverbs", VERBS, folder)
    said, seconds = tree.timed(PINGPONG, PINGPONG_S)
    expect(said, "1000 iters in")
    expect(tree.run(RPING), "rdma-ping-4")
    expect(tree.run('python3 -B -c "$README"'), "ran build/ropeway")
    return f"{seconds:.1f} s to ibv_rc_pingpong, rdma-core {version_of(tree)}; README's commands"


def version_of(tree):
    return tree.run("dpkg-query -W -f '${Version}' libibverbs1").strip()


def older(suite, folder):
    """Debian 12's tree with the rdma-core of Debian 11."""
    tree = Tree(suite, "wheelverbs", VERBS, folder)
    old = trees.FOLDER / "bookworm.wheelold"
    if not (old / "ropeway-old").exists():
        shutil.rmtree(old, ignore_errors=True)
        subprocess.run(["cp", "-a", tree.tree, old], check=True)
        packages = " ".join(f"{name}/bullseye" for name in ("ibverbs-utils", "rdmacm-utils", "libibverbs1", "librdmacm1", "ibverbs-providers"))
        trees.must(old, ["sh", "-c", f"echo deb {trees.MIRROR} bullseye main >/etc/apt/sources.list.d/old.list && apt-get -o Acquire::Check-Valid-Until=false update -qq && "
                                     f"apt-get install -y -qq --allow-downgrades --no-install-recommends {packages}"])
        (old / "ropeway-old").touch()
    tree.tree = old
    said, _ = tree.timed(PINGPONG, PINGPONG_S)
    expect(said, "1000 iters in")
    expect(tree.run(RPING), "rdma-ping-4")
    expect(tree.run('python3 -c "$MESSAGES" verbs'), "all as sent by verbs")
    return f"rdma-core {version_of(tree)}: ibv_rc_pingpong, rping, messages by verbs"


def arm64(_suite, folder):
    """No binary of that machine is executed by another here: each is started by the emulator."""
    made, = folder.glob("*aarch64.whl")
    cross = wheels.cross_tree(ROOT / "build-arm64")
    place, system = cross / "wheel", cross / "root"
    shutil.rmtree(place, ignore_errors=True)
    platform = f"{wheels.PLATFORM}_aarch64"
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--target", place, "--platform", platform, "--python-version", "3.11", "--implementation", "cp", "--abi", "abi3",
                    "--only-binary", ":all:", made], check=True)

    def emulate(*words):
        done = subprocess.run(["unshare", "-n", "sh", "-c", 'ip link set lo up; exec "$@"', "sh", "timeout", "100", "qemu-aarch64", "-L", system, "-E", f"PYTHONPATH={place}", *map(str, words)],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, stdin=subprocess.DEVNULL)
        if done.returncode:
            raise Wrong(f"{words[:2]} ended with {done.returncode}:\n{done.stdout[-3000:]}")
        return done.stdout

    command = place / "ropeway/bin/ropeway"
    expect(emulate(command, "devices"), "rpw_lo: software device")
    expect(emulate(command, "plugin", "path"), str(place / "ropeway/lib/libnccl-net-ropeway.so"))
    expect(emulate(system / "usr/bin/python3.11", "-c", MESSAGES, "shm,tcp,verbs"), *(f"all as sent by {transport}" for transport in ("shm", "tcp", "verbs")))
    return f"{made.stat().st_size / 1e6:.1f} MB: devices, plugin path, messages by shm, tcp and verbs"


def action(suite, folder):
    """Two jobs with the wheel as the action's input, in fresh copies of a runner's tree: the second has the first one's cache."""
    made, = folder.glob("*x86_64.whl")
    ready, cache, said = trees.ready(suite, "wheelaction", trees.RUNNER, build=False), folder / f"cache-{suite}", []
    shutil.rmtree(cache, ignore_errors=True)
    for steps in (3, 2):
        copy = trees.FOLDER / f"{suite}.wheelaction.job"
        shutil.rmtree(copy, ignore_errors=True)
        subprocess.run(["cp", "-a", ready, copy], check=True)
        (copy / "etc/apt/apt.conf.d/snapshot").write_text('Acquire::Check-Valid-Until "false";\n')  # a mirror may be one
        began = time.monotonic()
        said.append(f"{trees.must(copy, [ROOT / 'tests/release/action_test.py', cache, steps, made]).strip().splitlines()[-1].split(',')[0]} in {time.monotonic() - began:.0f} s")
        shutil.rmtree(copy)
    return f"the action with the wheel: {said[0]}; with its cache: {said[1]}"


CASES = [(f"{name}: {what}", case, suite) for suite, name in SUITES.items() for what, case in (("bare", bare), ("with ibverbs-utils", pingpong), ("action", action))] + [
    ("Debian 12 with Debian 11's rdma-core", older, "bookworm"), ("arm64 under qemu-user", arm64, None)]


def made_here():
    done = subprocess.run([ROOT / "tests/python/run", "--wheels"], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"tests/python/run --wheels ended with {done.returncode}\n{done.stdout}0 passed, 1 failed")
    return ROOT / "build/python/wheels"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheels", type=pathlib.Path)
    parser.add_argument("--only", default="")
    parser.add_argument("-v", action="store_true")
    args = parser.parse_args()
    if os.geteuid():
        print("SKIPPED: trees of Debian need root (chroot, namespaces)")
        return 77
    source = args.wheels or made_here()
    folder = trees.FOLDER / "work/wheels"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for path in source.glob("ropeway-*.whl"):
        shutil.copy(path, folder)
        print(f"{path.name}: {path.stat().st_size / 1e6:.1f} MB")
    counts, rows = dict.fromkeys(("passed", "failed", "skipped"), 0), []
    for name, case, suite in CASES:
        if not re.search(args.only, name):
            continue
        try:
            said, result = case(suite, folder), "passed"
            rows.append((name, said))
        except (trees.Skipped, wheels.NoCross) as why:
            said, result = why, "skipped"
        except (Wrong, trees.Failed, subprocess.CalledProcessError, ValueError) as why:
            said, result = why, "failed"
        counts[result] += 1
        print(f"{dict(passed='ok', failed='FAILED', skipped='SKIPPED')[result]} {name}: {said}", flush=True)
    print("\n| where | the wheel |\n|---|---|\n" + "".join(f"| {name} | {said} |\n" for name, said in rows))
    print(", ".join(f"{count} {what}" for what, count in counts.items()))
    return 1 if counts["failed"] else 0 if counts["passed"] else 77


if __name__ == "__main__":
    sys.exit(main())
