#!/usr/bin/env python3
"""Measures ropeway against its references, prints the table. script/bench calls this after building.

In one guest (--guest) the figures come from a QEMU virtual machine: this program boots it (tests/interop/guest.py), runs itself in it with
--inside, and prints what that found.
"""
import argparse
import dataclasses
import datetime
import json
import os
import pathlib
import platform
import shutil
import signal
import subprocess
import sys

import cases
import cm
import costs
import loans
import measure
import msg
import nccl
import placement
import report
import rma
import samples
from processes import RunFailed, Runner

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs/bench/RESULTS.md"
NETNS = "rpwbench"  # in the guest: ropeway's side, since rxe has port 4791 of the first namespace


def options():
    p = argparse.ArgumentParser(prog="script/bench", description="Measures ropeway, each figure as a ratio to a reference measured in the same run.")
    p.add_argument("--quick", action="store_true", help="two short rounds: a look, not a result")
    p.add_argument("--guest", action="store_true", help="against kernel rxe in one QEMU guest, instead of on loopback")
    p.add_argument("--veth", action="store_true", help="as root, between two network namespaces joined by veth pairs of MTU 1500 and 9000, instead of on loopback")
    p.add_argument("--cm", action="store_true", help="connections per second by rdma_cm, against kernel rxe in one QEMU guest")
    p.add_argument("--msg", action="store_true", help="the messaging library against UCX and libfabric, instead of the device")
    p.add_argument("--peers", metavar="DIR:DIR", help="with --msg: installations of UCX and libfabric (bin, lib in each) that take part beside the distribution's; the best of all counts")
    p.add_argument("--loans", action="store_true", help="loaned messages against iceoryx2, whose driver cargo builds, instead of the device")
    p.add_argument("--nccl", action="store_true", help="the NCCL plugin against one of a single TCP stream, instead of the device")
    p.add_argument("--rma", action="store_true", help="one-sided operations of the NCCL plugin, instead of the device")
    p.add_argument("--socket", metavar="FILE.so", help="with --rma: a plugin with the table of NCCL's own socket backend, measured beside ours")
    p.add_argument("--costs", action="store_true", help="as root, with perf: the system calls and the sleeps of a message, counted, instead of any time")
    p.add_argument("--rounds", type=int, help="default 5")
    p.add_argument("--only", metavar="TEXT", default="", help="only cases whose name has this in it")
    p.add_argument("--json", metavar="FILE", help="write the figures there too (- for standard output, and no table)")
    p.add_argument("--results", action="store_true", help="put the table into docs/bench/RESULTS.md, between its markers")
    p.add_argument("--check", action="store_true", help="exit 1 if a goal is not reached")
    p.add_argument("--device", default="rpw_lo", help="default rpw_lo")
    p.add_argument("--build", default=str(ROOT / "build"), help="build folder, default build")
    p.add_argument("--against", metavar="BUILD", help="on loopback, also with --msg or --nccl: each case's reference is the same case with another build folder, as of an earlier commit")
    p.add_argument("--no-setup", action="store_true", help="measure what is built")
    p.add_argument("--priority", action="store_true", help="as root, on a machine that others use: run everything measured, references too, at nice -20")
    p.add_argument("--isolated", action="store_true", help="in a network namespace of its own (loopback too), away from other users of port 4791")
    p.add_argument("--verbose", action="store_true", help="show each command and what it prints")
    p.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    o = p.parse_args()
    o.rounds = o.rounds or (2 if o.quick else 5)
    return o


def tell(text):
    print(text, file=sys.stderr, flush=True)


def two_cores():
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        sys.exit("bench: two cores are needed, one for each process; this process may use one")
    return cores[:2]


def read_line(path, default="?"):
    try:
        return pathlib.Path(path).read_text().split("\n")[0].strip()
    except OSError:
        return default


def machine(o):
    cpu = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.machine())
    git = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    commit = "" if o.inside or not shutil.which("git") else subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    return {"cpu": cpu, "cores": os.cpu_count(), "kernel": platform.release(), "rmem_max": read_line("/proc/sys/net/core/rmem_max"),
            "load": os.getloadavg()[0], "rounds": o.rounds, "date": datetime.date.today().isoformat(), "commit": commit or "?"}


def runner(o, preload=True, prefix=(), env=None, server_prefix=None):
    library = str(pathlib.Path(o.build) / "libropeway-verbs.so")
    if preload and not os.path.exists(library):
        sys.exit(f"bench: no {library}; script/setup builds it")
    return Runner(two_cores(), o.build, library if preload else None, prefix, deadline_s=120 if o.inside else 60, verbose=o.verbose,
                  priority=o.priority, env=env, server_prefix=server_prefix)


def loopback_groups(o):
    # In user namespaces of their own two processes of one user may not read each other's memory, and still share the network.
    return cases.loopback(runner(o), runner(o, env={"ROPEWAY_WRITES": "unordered"}), runner(o, prefix=("unshare", "-U", "-r")), runner(o, env={"ROPEWAY_WIRE": "udp"}),
                          runner(o, preload=False), o.device, 0.3 if o.quick else 1.0, o.quick)


def paired_groups(o):
    """The cases of one build that are compared with the same of another."""
    seconds = 0.1 if o.quick else 0.3
    if o.msg:
        return msg.paired_groups(runner(o, preload=False), seconds)
    if o.nccl:
        return nccl.paired_groups(runner(o, preload=False), o.build, seconds)
    return loopback_groups(o)


def on_loopback(o, line):
    groups = cases.against(paired_groups(o), paired_groups(argparse.Namespace(**(vars(o) | {"build": o.against})))) if o.against else loopback_groups(o)
    return measure.measure(measure.chosen(groups, o.only), o.rounds, tell, line)


@dataclasses.dataclass
class Link:
    """A veth pair, whose two ends have one name; `packet` is the IB MTU that fits."""
    mtu: int
    packet: int
    name: str
    client: str
    server: str


def on_veth(o, line):
    links = [Link(1500, 1024, "bench1", "10.78.1.1", "10.78.1.2"), Link(9000, 4096, "bench9", "10.78.9.1", "10.78.9.2")]
    spaces = [f"rpwbench-{os.getpid()}-{side}" for side in ("client", "server")]
    try:
        for space in spaces:
            ip("netns", "add", space)
            ip("-n", space, "link", "set", "lo", "up")
        for link in links:
            ip("link", "add", link.name, "netns", spaces[0], "mtu", link.mtu, "type", "veth", "peer", "name", link.name, "netns", spaces[1], "mtu", link.mtu)
            for space, address in zip(spaces, (link.client, link.server)):
                ip("-n", space, "addr", "add", f"{address}/24", "dev", link.name)
                ip("-n", space, "link", "set", link.name, "up")
        client, server = (("ip", "netns", "exec", space) for space in spaces)
        groups = cases.veth(runner(o, prefix=client, server_prefix=server), runner(o, preload=False, prefix=client, server_prefix=server), links, 0.3 if o.quick else 1.0)
        return measure.measure(measure.chosen(groups, o.only), o.rounds, tell, line)
    finally:
        for space in spaces:
            subprocess.run(["ip", "netns", "del", space], capture_output=True, check=False)


def ip(*words):
    done = subprocess.run(["ip", *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"bench: ip {' '.join(map(str, words))}: {done.stderr.strip()}; --veth has to be root, and the kernel to have veth")


def inside_guest(o):
    prefix = ("ip", "netns", "exec", NETNS)
    for command in (["ip", "netns", "add", NETNS], ["ip", "-n", NETNS, "link", "set", "lo", "up"], ["ip", "link", "add", "bench0", "type", "dummy"],
                    ["ip", "addr", "add", "10.78.0.1/24", "dev", "bench0"], ["ip", "link", "set", "bench0", "up"],
                    ["rdma", "link", "add", "rxe_bench", "type", "rxe", "netdev", "bench0"]):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"bench: in the guest, {' '.join(command)}: {done.stderr.strip()}")
    if o.cm:
        os.environ["ROPEWAY_DEVICES"] = "all,first"  # the kernel binds 127.0.0.1 to any device that it has, rxe here
        return measure.measure(measure.chosen(cm.groups(runner(o, prefix=prefix), runner(o, preload=False), "10.78.0.1", o.quick), o.only), o.rounds, tell)
    groups = cases.guest(runner(o, prefix=prefix), runner(o, preload=False, prefix=prefix), o.device, runner(o, preload=False), "rxe_bench", "10.78.0.1",
                         0.5 if o.quick else 2.0, o.quick)
    return measure.measure(measure.chosen(groups, o.only), o.rounds, tell)


def through_guest(o):
    """Boot, run ourselves inside, take the JSON. The guest sees the host's files, so the build is there too."""
    sys.path.insert(0, str(ROOT / "tests" / "interop"))
    import guest

    inside = [sys.executable, "-B", str(pathlib.Path(__file__).resolve()), "--inside", "--json", "/tmp/bench.json", "--rounds", str(o.rounds), "--device", o.device,
              "--build", o.build, "--only", o.only] + ["--quick"] * o.quick + ["--cm"] * o.cm + ["--verbose"] * o.verbose
    try:
        vm = guest.Guest(cpus=2, memory_mb=1536)
    except guest.Unavailable as e:
        sys.exit(f"bench: no guest: {e}")
    try:
        command = vm.start(" ".join("'" + a.replace("'", "'\\''") + "'" for a in inside))
        rc = command.wait(3600)
        tell(command.text)
        if rc:
            sys.exit(f"bench: in the guest: status {rc}")
        found = json.loads(vm.check("cat /tmp/bench.json"))
    finally:
        vm.close()
    found["machine"]["commit"] = machine(o)["commit"]
    return found["rows"], found["machine"]


def counted(o, about):
    plain = runner(o, preload=False)
    rows = costs.measure(plain, str(pathlib.Path(o.build) / "libropeway-verbs.so"), o.device, o.quick, o.only, tell)
    text = f"{about['cpu']}, {about['cores']} cores, Linux {about['kernel']}; a message, of the difference of two runs; {about['date']}, {about['commit']}."
    print(costs.text_table(rows))
    print(text)
    if o.results and not report.write_between(RESULTS, costs.BEGIN, costs.END, f"{costs.markdown_table(rows)}\n\n{text}"):
        sys.exit(f"bench: docs/bench/RESULTS.md has no {costs.BEGIN}")
    return 0


def main():
    o = options()
    os.environ.setdefault("ROPEWAY_DEVICES", "all")  # the rows are of rpw_lo, on every machine
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("bench: terminated"))  # through the clean-up, as ^C does
    about = machine(o)
    if about["load"] > 0.3 and not o.inside:
        tell(f"bench: load is {about['load']:.2f}: something else uses the cores; figures move, ratios less")
    try:
        if o.costs:
            return counted(o, about)
        plain = runner(o, preload=False)
        line = placement.never if o.inside or o.guest or o.cm else placement.Meter(plain.cores, plain.line_ns, RunFailed)
        if o.inside:  # a guest's processors are threads that its host moves at any time: there is no line to measure
            rows = inside_guest(o)
        elif o.against:
            rows = on_loopback(o, line)
        elif o.msg:
            rows = msg.measure(o.build, o.rounds, o.quick, o.only, tell, line, o.priority, o.verbose, o.peers) + msg.measure_verbs(runner(o), o.device, o.rounds, o.quick, o.only, tell, line)
        elif o.loans:
            rows = measure.measure(measure.chosen(loans.groups(plain, o.build, 0.1 if o.quick else 0.5), o.only), o.rounds, tell, line)
        elif o.nccl:
            rows = nccl.measure(plain, o.build, o.rounds, o.quick, o.only, tell, line)
        elif o.rma:
            rows = measure.measure(measure.chosen(rma.groups(plain, o.build, o.quick, o.socket), o.only), o.rounds, tell, line)
        elif o.veth:
            rows = on_veth(o, line)
        elif o.guest or o.cm:
            rows, about = through_guest(o)
        else:
            rows = on_loopback(o, line)
            about["samples"] = samples.measure(plain, tell) if o.only in "samples" else []
        if line is not placement.never:
            about["placements"] = line.placements()
    except RunFailed as e:  # of a reference: without it there is no ratio
        sys.exit(f"bench: a reference failed: {e}")
    if o.json:
        out = json.dumps({"machine": about, "rows": rows}, indent=1)
        print(out) if o.json == "-" else pathlib.Path(o.json).write_text(out + "\n")
    if o.json != "-" and not o.inside:
        print(report.text_table(rows))
        print(report.machine_text(about))
        for line in dict.fromkeys(f"{row['name']}: {row['why']}" for row in rows if row.get("why")):
            print(line)
        for line in about.get("samples", ()):
            print(f"not of the order that is shown: {line}")
    section = next((name for name in ("msg", "loans", "nccl", "rma", "cm", "guest", "veth") if vars(o)[name]), "loopback")
    if o.results and not report.write_results(RESULTS, section, rows, about):
        sys.exit(f"bench: docs/bench/RESULTS.md has no markers for {section}")
    if any(row["verdict"] == "failed" for row in rows):
        return 1
    missed = about.get("samples") or any(row["verdict"] in ("short", "unsteady") for row in rows)
    return 1 if o.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
