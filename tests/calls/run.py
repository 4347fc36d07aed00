#!/usr/bin/python3
"""Calls every exported function of libibverbs and librdmacm once with plausible arguments, once with NULL, and once with each pointer NULL alone, on the software device: nothing may crash that does
not crash with kernel rxe.

  run.py [--tree SUITE] [--library]      the rdma-core of this machine, or of the newest tree of that Debian suite (tests/newest makes it)
  run.py --record [--tree SUITE]         on rxe in the QEMU guest (tests/interop/guest.py), and writes rxe-VERSION.tsv: what crashes there

--library: by the versioned library, and without the functions of drivers, whose versions it has of one rdma-core only. An exported function without a row fails (generate.py).
The last line is 'N passed, N failed'. Exit status 77 where there is no list of rxe's crashes for this rdma-core.
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT / "tests/release"), str(ROOT / "tests/newest"), str(ROOT / "tests/interop"), str(ROOT / "tests/lib")]
import generate  # noqa: E402
import trees  # noqa: E402
from preload import preloadable  # noqa: E402
from answers import PACKAGES as NEWEST  # noqa: E402

BUILD = pathlib.Path(os.environ.get("ROPEWAY_BUILD", ROOT / "build"))
DROPIN = {"LD_PRELOAD": str(preloadable(BUILD / "libropeway-verbs.so.0"))}
VERSIONED = {"LD_LIBRARY_PATH": str(BUILD / "src/library")}
SECONDS, PATIENT = 3, 30  # for a call; where a busy machine does not come to its end, for that one again
# They take what the device never makes: device memory, a DMA handle.
WITHOUT_OBJECT = {"ibv_unimport_dm", "ibv_dm_export_dmabuf_fd", "ibv_dealloc_dmah"}
# Drivers' calls, which no program makes with a device of ours. The first asks the kernel by an ioctl; where the descriptor has none it writes, as to old kernels, and reads the command. The other
# is about a completion counter, of which rxe has none.
ALLOWED = {("ibv_cmd_query_port", "cmd NULL"), ("ibv_cmd_qp_attach_comp_cntr", "qp NULL"), ("ibv_cmd_qp_attach_comp_cntr", "attr NULL")}
GUEST_ADDRESS = "10.9.0.1"
GUEST = """set -e
ip link add r0 type veth peer name r1; ip addr add {address}/24 dev r0; ip link set r0 up; ip link set r1 up
sleep 2.5; rdma link add rxe0 type rxe netdev r0; sleep 1; echo RELEASE $(uname -r)
tree={tree}
if [ "$tree" != / ]; then
	for folder in proc sys dev; do mount --rbind /$folder $tree/$folder; done
	mkdir -p $tree{root}; mount --bind {root} $tree{root}; mount -t tmpfs tmpfs $tree/tmp
fi
chroot $tree {program} rxe0 {address} 20 2>/dev/null"""


class Place:
    """An rdma-core, and the program for it."""

    def __init__(self, suite, drivers=True):
        self.suite, self.tree = suite, pathlib.Path("/")
        if suite:
            self.tree = trees.ready(suite, "newest", NEWEST, build=False)
        real = next((self.tree / f"usr/lib/{generate.triplet()}").glob("libibverbs.so.1.*"))
        self.version = re.search(r"\.so\.1\.\d+\.(\d+)\.", real.name)[1]
        self.folder = BUILD / "calls" / f"{self.version}{'' if drivers else '-public'}"
        self.exported, self.rows, defines = generate.generate(self.tree, self.folder, drivers)
        self.program = self.folder / "every"
        # librdmacm and libibverbs by name: the linker's --as-needed keeps both
        words = ["gcc", "-std=gnu11", "-O0", "-w", "-fmax-errors=3", "-D_GNU_SOURCE", *defines, f"-I{self.folder}", str(HERE / "every.c"), "-o", str(self.program), "-lrdmacm", "-libverbs"]
        done = self.run(words, {}, 120)
        if done.returncode:
            raise trees.Failed(f"{' '.join(words)}\n{done.stdout}")

    def run(self, words, env, limit):
        if self.suite:
            return trees.enter(self.tree, words, env=env, alone=True, timeout=limit)
        alone = ["unshare", "--net" if not os.geteuid() else "-rn", "sh", "-c", 'ip link set lo up; exec "$@"', "sh"]
        return subprocess.run([*alone, *map(str, words)], env={**os.environ, **env}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=limit)


def outcomes(text):
    """{(function, arguments): outcome}"""
    return {tuple(fields[:2]): fields[2] for line in text.splitlines() if len(fields := line.split("\t")) == 3}


def broken(found):
    """What ends the process, and what does not return: rselect without a time-out."""
    return {key: outcome for key, outcome in found.items() if outcome.startswith(("SIG", "exit", "waits"))}


def listed(version):
    path = HERE / f"rxe-{version}.tsv"
    return outcomes(path.read_text()) if path.exists() else None


def record(place):
    from guest import Guest, Unavailable
    try:
        guest = Guest()
    except Unavailable as e:
        print(f"SKIPPED: {e}\n0 passed, 0 failed, 1 skipped")
        return 77
    rc, text = guest.run(GUEST.format(address=GUEST_ADDRESS, tree=place.tree, root=ROOT, program=place.program), 1500)
    guest.close()
    found, release = outcomes(text), re.search(r"^RELEASE (\S+)", text, re.M)
    if rc or len(found) != len(place.rows):
        print(f"{text[-2000:]}\nended with {rc}, {len(found)} of {len(place.rows)} answers\n0 passed, 1 failed")
        return 1
    head = [f"# What ends a process, or does not return, on rxe of Linux {release[1]} with rdma-core {place.version}: function, which argument is NULL, outcome. Written by tests/calls/run.py --record.",
            f"# {len(place.exported)} functions, {len(found)} calls, {sum(o == 'absent' for o in found.values())} of them without an object that rxe has."]
    (HERE / f"rxe-{place.version}.tsv").write_text("\n".join(head + ["\t".join([*key, outcome]) for key, outcome in sorted(broken(found).items())]) + "\n")
    print(f"{len(broken(found))} of {len(found)} calls end the process on rxe\n1 passed, 0 failed")
    return 0


def unsure(found, expected):
    """Functions whose calls a busy machine may have kept from their end, or from their objects."""
    return {key[0] for key, outcome in found.items() if outcome == "waits" and key not in expected or outcome == "absent" and key[0] not in WITHOUT_OBJECT}


def compare(place, env, how):
    expected = listed(place.version)
    if expected is None:
        print(f"SKIPPED: no tests/calls/rxe-{place.version}.tsv: what crashes with this rdma-core on rxe is not known (run.py --record)\n0 passed, 0 failed, 1 skipped")
        return 77
    done = place.run([place.program, "rpw_lo", "127.0.0.1", SECONDS], env, 300)
    found = outcomes(done.stdout)
    again = unsure(found, expected)
    if again:
        found.update(outcomes(place.run([place.program, "rpw_lo", "127.0.0.1", PATIENT, *sorted(again)], env, 300).stdout))
    wrong = [f"{' '.join(key)}: {outcome}; it does not on rxe" for key, outcome in sorted(broken(found).items()) if key not in expected and key not in ALLOWED]
    wrong += [f"{' '.join(key)}: no object to call it with" for key, outcome in found.items() if outcome == "absent" and key[0] not in WITHOUT_OBJECT]
    if done.returncode or len(found) != len(place.rows):
        wrong.append(f"ended with {done.returncode}, {len(found)} of {len(place.rows)} calls answered: {done.stdout[-500:]}")
    counts = {word: sum(outcome == word for outcome in found.values()) for word in ("returns", "absent")}
    print("\n".join(wrong + [f"rdma-core {place.version}{how}: {len(place.exported)} functions, {len(found)} calls: {counts['returns']} return, {len(broken(found))} end the process "
                             f"({len(expected)} on rxe), {counts['absent']} without an object that the device has"]))
    print(f"{len(found) - len(wrong)} passed, {len(wrong)} failed")
    return 1 if wrong else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tree", default="", metavar="SUITE")
    parser.add_argument("--library", action="store_true")
    parser.add_argument("--record", action="store_true")
    args = parser.parse_args()
    try:
        place = Place(args.tree, drivers=not args.library)
    except trees.Skipped as e:
        print(f"SKIPPED: {e}\n0 passed, 0 failed, 1 skipped")
        return 77
    except (trees.Failed, generate.Forgotten) as e:
        print(f"{e}\n0 passed, 1 failed")
        return 1
    if args.record:
        return record(place)
    return compare(place, VERSIONED if args.library else DROPIN, ", the versioned library" if args.library else "")


if __name__ == "__main__":
    sys.exit(main())
