"""What is measured against what, and what is asked of it: a table. How it is run: measure.py.

A case gives our figure; each of its goals names a reference, and what the ratio ours/reference has to be. Cases of one group share
their references and are measured in turn with them.
"""
from dataclasses import dataclass, field

from processes import RunFailed

KIB, MIB = 1 << 10, 1 << 20
HEAD = 16  # BTH and ICRC, as in bench.h
RETH = 16
OPERATIONS = ("ib_write_bw", "ib_send_bw", "ib_read_bw")


@dataclass
class Goal:
    reference: str   # name of a reference of the group
    limit: float = None  # what ours / reference has to reach (at_least) or may reach; None: only shown
    at_least: bool = True

    @property
    def met(self):
        if self.limit is None:
            return None
        return lambda ratio: ratio >= self.limit if self.at_least else ratio <= self.limit

    def text(self):
        return "" if self.limit is None else f"{'≥' if self.at_least else '≤'} {self.limit:g}"


@dataclass
class Case:
    name: str
    unit: str
    run: object      # () -> figure
    goals: list
    rows: dict = field(default_factory=dict)  # reference -> [(ours, reference, line before, line after)]
    failures: list = field(default_factory=list)


@dataclass
class Group:
    name: str
    references: dict  # name -> () -> figure, measured before and after each case
    cases: list


class Iterations:
    """How many messages make a run of the wanted time: a first guess, then what the last run showed."""

    def __init__(self, size, seconds, first_bytes, least):
        self.size, self.seconds, self.least = size, seconds, least
        self.count = max(least, first_bytes // size)

    def saw(self, mib_per_s):
        self.count = max(self.least, int(mib_per_s * MIB * self.seconds / self.size))
        return mib_per_s


OTHER = "the other build"


def against(groups, others):
    """The same cases of two builds, each of ours between two of the other's. A row is short if it lost more than 3%."""
    pairs = [(case, other) for group, other_group in zip(groups, others) for case, other in zip(group.cases, other_group.cases)]
    return [Group(case.name, {OTHER: other.run}, [Case(case.name, case.unit, case.run, [Goal(OTHER, 1.03, at_least=False) if case.unit == "µs" else Goal(OTHER, 0.97)])])
            for case, other in pairs]


def size_text(size):
    return f"{size // MIB} MiB" if size >= MIB else f"{size // KIB} KiB" if size >= KIB else f"{size} B"


def bandwidth(runner, program, device, mtu, size, seconds, goals, first_bytes, least=200, address="127.0.0.1", prefix=""):
    n = Iterations(size, seconds, first_bytes, least)
    return Case(f"{prefix}{program} {size_text(size)}, MTU {mtu}", "MiB/s",
                lambda: n.saw(runner.perftest_bandwidth(program, device, mtu, size, n.count, address=address)), goals)


def latency(runner, program, device, mtu, count, limit, reference, prefix=""):
    return Case(f"{prefix}{program} 8 B", "µs", lambda: runner.perftest_latency(program, device, mtu, 8, count), [Goal(reference, limit, at_least=False)])


def rate(runner, program, device, seconds, goal, prefix):
    """Messages of 8 bytes."""
    count = Iterations(8, seconds, 8 * 50000, 5000)

    def run():
        per_s = runner.perftest_rate(program, device, 4096, 8, count.count)
        count.saw(per_s * 8 / MIB)
        return per_s / 1e6

    return Case(f"{prefix}{program} 8 B rate", "M/s", run, [goal])


def ping_references(runner, count):
    """A SEND's datagram has 24 bytes on the wire, a WRITE's 40 with the RETH."""
    cpus = ",".join(map(str, runner.cores))
    return {f"UDP ping-pong, {length} B": lambda length=length: runner.alone("udp_pingpong", "-s", length, "-n", count, "-c", cpus)["median_us"]
            for length in (HEAD + 8, HEAD + RETH + 8)}


def unconnected_ping(runner, count):
    return {PING: lambda: runner.alone("udp_pingpong", "-u", "-s", HEAD + 8, "-n", count, "-c", ",".join(map(str, runner.cores)))["median_us"]}


PING = "UDP ping-pong, unconnected"
BEST, DOUBLE, READV = "best bare copy", "bare double copy", "process_vm_readv, 8 B"
TCP, GSO = "iperf3, one TCP stream", "64-byte datagrams in GSO batches"


class BareCopies:
    """bench/copy between the two cores. What the kernel does not let a process read is no candidate."""

    def __init__(self, plain, seconds, buffers=1):
        self.plain, self.seconds, self.cpus, self.buffers = plain, seconds, ",".join(map(str, plain.cores)), buffers

    def run(self, mode, size):
        return self.plain.alone("copy", "-m", mode, "-s", size, "-b", self.buffers, "-t", self.seconds, "-c", self.cpus)

    def double(self, size):
        return self.run("double", size)["mib_per_s"]

    def best(self, size):
        found = []
        for mode in ("double", "single", "readv"):
            try:
                found.append(self.run(mode, size)["mib_per_s"])
            except RunFailed:
                if mode != "readv":
                    raise
        return max(found)

    def read_us(self):
        return self.run("readv", 8)["median_us"]


def lane(runner, unordered, denied, plain, device, seconds, quick):
    """Between two processes of one user: shared memory. `unordered`: WRITEs in any order. `denied`: neither may read the other's memory, so that all goes through the ring."""
    count = 5000 if quick else 20000
    copies = BareCopies(plain, seconds / 5)
    groups = []
    for size in (64 * KIB, MIB):
        groups.append(Group(f"lane, {size_text(size)}", {BEST: lambda size=size: copies.best(size)},
                            [bandwidth(runner, program, device, 4096, size, seconds, [Goal(BEST, 0.8)], 512 * MIB, prefix="lane: ") for program in OPERATIONS]
                            + [bandwidth(unordered, "ib_write_bw", device, 4096, size, seconds, [Goal(BEST, 0.85)], 512 * MIB, prefix="lane, unordered: ")]))
        groups.append(Group(f"lane without process_vm, {size_text(size)}", {DOUBLE: lambda size=size: copies.double(size)},
                            [bandwidth(denied, program, device, 4096, size, seconds, [Goal(DOUBLE, 0.8)], 512 * MIB, prefix="lane without process_vm: ") for program in OPERATIONS]))
    cpus = ",".join(map(str, runner.cores))

    def read_polled():
        return runner.alone("manyqp", "-r", "-q", 1, "-s", 8, "-d", device, "-x", 1, "-m", 4096, "-t", seconds / 2, "-c", cpus, preload=True)["median_us"]

    groups.append(Group("lane, latency", unconnected_ping(plain, count), [latency(runner, program, device, 4096, count, 0.25, PING, "lane: ") for program in ("ib_send_lat", "ib_write_lat")]
                        + [Case("lane: READ 8 B, its target polls", "µs", read_polled, [Goal(PING, 0.4, at_least=False)])]))
    groups.append(Group("lane, READ", {READV: copies.read_us}, [latency(runner, "ib_read_lat", device, 4096, count, 1.8, READV, "lane: ")]))

    def threads(opcode, n, size):
        return runner.alone("threads", "-o", opcode, "-n", n, "-s", size, "-d", device, "-x", 1, "-r", 1, "-t", seconds / 4, preload=True)["all_per_s"] / 1e6

    one, two = "one thread", "process_vm_readv by 2 threads"
    groups += [Group(f"lane, threads, {size_text(size)}", {one: lambda size=size: threads("read", 1, size), two: lambda size=size: threads("bare", 2, size)},
                     [Case(f"lane: READ {size_text(size)} by 2 threads, a QP each", "M/s", lambda size=size: threads("read", 2, size), [Goal(one, 1.6), Goal(two)])]) for size in (8, 64 * KIB)]
    shm = "ropeway perf, shm, 8 B"
    groups.append(Group("lane, 8 B rate", {shm: lambda: plain.shm_rate(8, seconds / 2) / 1e6},
                        [rate(runner, program, device, seconds, Goal(shm, 0.4), "lane: ") for program in ("ib_send_bw", "ib_write_bw")]))
    return groups


def wire(runner, plain, device, seconds, quick):
    """The same two processes, told to take UDP (ROPEWAY_WIRE=udp)."""
    cpus = ",".join(map(str, runner.cores))
    count = 5000 if quick else 20000
    groups = []
    for mtu in (4096, 1024):
        udp = f"UDP stream, MTU {mtu}"
        groups.append(Group(
            f"wire, bandwidth, MTU {mtu}",
            {udp: lambda mtu=mtu: plain.alone("udp_stream", "-m", mtu, "-t", seconds / 2, "-c", cpus)["mib_per_s"],
             TCP: lambda: plain.iperf3(seconds)},
            [bandwidth(runner, program, device, mtu, size, seconds, [Goal(TCP, 1.0), Goal(udp)], 512 * MIB, prefix="wire: ")
             for program in OPERATIONS for size in (64 * KIB, MIB)]))
    groups.append(Group("wire, latency", unconnected_ping(plain, count), [latency(runner, program, device, 4096, count, limit, PING, "wire: ")
                                                                          for program, limit in (("ib_send_lat", 1.4), ("ib_write_lat", 1.4), ("ib_read_lat", 1.8))]))
    payload = 64 - HEAD
    groups.append(Group("wire, 8 B rate", {GSO: lambda: plain.alone("udp_stream", "-m", payload, "-t", seconds / 2, "-c", cpus)["mib_per_s"] * MIB / payload / 1e6},
                        [rate(runner, program, device, seconds, Goal(GSO, 0.5), "wire: ") for program in ("ib_send_bw", "ib_write_bw")]))
    return groups


def veth(runner, plain, links, seconds):
    """Client and server in network namespaces of their own, joined by the veth pairs of `links`."""
    groups = []
    for link in links:
        groups.append(Group(f"wire over veth, MTU {link.mtu}", {TCP: lambda link=link: plain.iperf3(seconds, link.server)},
                            [bandwidth(runner, program, f"rpw_{link.name}", link.packet, size, seconds, [Goal(TCP, 1.0)], 256 * MIB, address=link.server,
                                       prefix=f"wire over veth {link.mtu}: ") for program in OPERATIONS for size in (64 * KIB, MIB)]))
    return groups


def loopback(runner, unordered, denied, wired, plain, device, seconds, quick):
    """`runner` preloads the device, `unordered` with ROPEWAY_WRITES=unordered, `denied` with processes that may not read each other, `wired` with UDP forced; `plain` does not preload it."""
    cpus = ",".join(map(str, runner.cores))

    def many(qps):
        return runner.alone("manyqp", "-d", device, "-x", 1, "-q", qps, "-m", 4096, "-t", seconds, "-c", cpus, preload=True)["mib_per_s"]

    return lane(runner, unordered, denied, plain, device, seconds, quick) + [
        Group("many connections", {"1 QP": lambda: many(1)}, [Case("lane: RDMA WRITE 64 KiB over 1,000 QPs", "MiB/s", lambda: many(1000), [Goal("1 QP", 0.9)])]),
    ] + wire(wired, plain, device, seconds, quick) + [
        Group("memory", {"4 KiB": lambda: 4096.0}, [
            Case("an idle QP with queues of one entry", "bytes",
                 lambda: runner.alone("manyqp", "-i", "-d", device, "-x", 1, "-q", 2000, "-c", cpus, preload=True)["bytes_per_qp"],
                 [Goal("4 KiB", 1.0, at_least=False)])])]


def guest(runner, plain, device, rxe, rxe_device, rxe_address, seconds, quick):
    """The same programs on kernel rxe and on the device, in one guest. `rxe` runs in the guest's first network namespace, `runner` and `plain` in one of their own."""
    count = 500 if quick else 2000
    groups = []
    for program in OPERATIONS:
        case = bandwidth(runner, program, device, 1024, 64 * KIB, seconds, [Goal("kernel rxe", 2.0)], 16 * MIB, least=50)
        reference = bandwidth(rxe, program, rxe_device, 1024, 64 * KIB, seconds, [], 16 * MIB, least=50, address=rxe_address)
        groups.append(Group(f"guest, {program}", {"kernel rxe": reference.run}, [case]))
    pings = ping_references(plain, count)
    send_ping, write_ping = pings
    groups.append(Group("guest, latency", pings, [latency(runner, "ib_send_lat", device, 1024, count, 1.5, send_ping),
                                                  latency(runner, "ib_write_lat", device, 1024, count, 1.5, write_ping)]))
    return groups
