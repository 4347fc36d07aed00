"""What is measured against what, and what is asked of it: a table. How it is run: measure.py.

A case gives our figure; each of its goals names a reference, and what the ratio ours/reference has to be. Cases of one group share
their references and are measured in turn with them.
"""
from dataclasses import dataclass, field

KIB, MIB = 1 << 10, 1 << 20
HEAD = 16  # BTH and ICRC, as in bench.h
RETH = 16
OPERATIONS = ("ib_write_bw", "ib_send_bw", "ib_read_bw")


@dataclass
class Goal:
    reference: str   # name of a reference of the group
    limit: float     # what ours / reference has to reach (at_least) or may reach
    at_least: bool = True

    def met(self, ratio):
        return ratio >= self.limit if self.at_least else ratio <= self.limit

    def text(self):
        return f"{'≥' if self.at_least else '≤'} {self.limit:g}"


@dataclass
class Case:
    name: str
    unit: str
    run: object      # () -> figure
    goals: list
    rows: dict = field(default_factory=dict)  # reference -> [(ours, reference)]
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


def size_text(size):
    return f"{size // MIB} MiB" if size >= MIB else f"{size // KIB} KiB" if size >= KIB else f"{size} B"


def bandwidth(runner, program, device, mtu, size, seconds, goals, first_bytes, least=200, address="127.0.0.1"):
    n = Iterations(size, seconds, first_bytes, least)
    return Case(f"{program} {size_text(size)}, MTU {mtu}", "MiB/s",
                lambda: n.saw(runner.perftest_bandwidth(program, device, mtu, size, n.count, address=address)), goals)


def latency(runner, program, device, mtu, count, limit, reference):
    return Case(f"{program} 8 B", "µs", lambda: runner.perftest_latency(program, device, mtu, 8, count), [Goal(reference, limit, at_least=False)])


def ping_references(runner, count):
    """A SEND's datagram has 24 bytes on the wire, a WRITE's 40 with the RETH."""
    cpus = ",".join(map(str, runner.cores))
    return {f"UDP ping-pong, {length} B": lambda length=length: runner.alone("udp_pingpong", "-s", length, "-n", count, "-c", cpus)["median_us"]
            for length in (HEAD + 8, HEAD + RETH + 8)}


def loopback(runner, plain, device, seconds, quick):
    """`runner` preloads the device, `plain` does not."""
    cpus = ",".join(map(str, runner.cores))
    count = 5000 if quick else 20000
    groups = []
    for mtu in (4096, 1024):
        udp, tcp = f"UDP stream, MTU {mtu}", "iperf3, one TCP stream"
        groups.append(Group(
            f"bandwidth, MTU {mtu}",
            {udp: lambda mtu=mtu: plain.alone("udp_stream", "-m", mtu, "-t", seconds / 2, "-c", cpus)["mib_per_s"],
             tcp: lambda: plain.iperf3(seconds)},
            [bandwidth(runner, program, device, mtu, size, seconds, [Goal(udp, 0.8), Goal(tcp, 1.0)], 512 * MIB)
             for program in OPERATIONS for size in (64 * KIB, MIB)]))
    pings = ping_references(plain, count)
    send_ping, write_ping = pings
    groups.append(Group("latency", pings, [latency(runner, "ib_send_lat", device, 4096, count, 1.2, send_ping),
                                           latency(runner, "ib_write_lat", device, 4096, count, 1.2, write_ping)]))

    def many(qps):
        return runner.alone("manyqp", "-d", device, "-x", 1, "-q", qps, "-m", 4096, "-t", seconds, "-c", cpus, preload=True)["mib_per_s"]

    groups.append(Group("many connections", {"1 QP": lambda: many(1)}, [Case("RDMA WRITE 64 KiB over 1,000 QPs", "MiB/s", lambda: many(1000), [Goal("1 QP", 0.9)])]))
    groups.append(Group("memory", {"4 KiB": lambda: 4096.0}, [
        Case("an idle QP with queues of one entry", "bytes",
             lambda: runner.alone("manyqp", "-i", "-d", device, "-x", 1, "-q", 2000, "-c", cpus, preload=True)["bytes_per_qp"],
             [Goal("4 KiB", 1.0, at_least=False)])]))
    return groups


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
