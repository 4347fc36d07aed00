"""script/bench --rma: our plugin's one-sided operations as `ropeway plugin bench --rma` measures them, called as NCCL's proxy calls them: beside what the messaging library does alone, bare copies, iperf3,
and the same exchange by isend and irecv; with --socket FILE.so beside another plugin, which exports the table of NCCL's own socket backend (docs/nccl/rma.md says how one was made)."""
import pathlib

from cases import BEST, KIB, MIB, TCP, BareCopies, Case, Goal, Group, size_text

SOCKET, NOTIFY = "NCCL's socket backend", "rpw_put_notify"
PUTS, OWN = "rpw_put, mapped memory", "rpw_put, memory as NCCL's"  # rpw_memory_allocate gives the first; a plugin is given the other
SMALL, LARGE = (8, 512, 4 * KIB), (64 * KIB, 512 * KIB, 4 * MIB)
TURNS = f"{BEST}, 8 buffers in turn"  # as ours and rpw_put have
UNDER_WAY = 8  # of `ropeway plugin bench`, and of the library beside it
RANKS = 4


class Bench:
    def __init__(self, runner, build, seconds, socket):
        self.runner, self.seconds, self.socket = runner, seconds, socket
        self.ours = str(pathlib.Path(build) / "libnccl-net-ropeway.so")
        self.copies = BareCopies(runner, seconds), BareCopies(runner, seconds, UNDER_WAY)

    def plugin(self, path, *arguments, transport="shm"):
        environment = ["ROPEWAY_RMA=1", "NCCL_SOCKET_IFNAME=lo", f"ROPEWAY_NCCL_TRANSPORT={transport}"]
        return self.runner.ropeway("plugin", "bench", path, *arguments, "--rounds", 1, seconds=self.seconds, deadline_s=160, environment=environment)["plugins"][0]

    def latency_us(self, path, transport="shm"):
        return self.plugin(path, "--rma", "--ops", "put", "--sizes", 8, "--latency-sizes", 8, transport=transport)["latency"][0]["us"]

    def per_second(self, path, kind, size, transport):
        """Of one context."""
        rows = self.plugin(path, "--rma", "--ops", kind, "--sizes", size, "--latency-sizes", 8, transport=transport)["rows"]
        return next(row["per_second"] for row in rows if row["kind"] == kind and row["contexts"] == 1)

    def rate(self, path, size, transport, kind="put"):
        """Thousands a second, or MiB/s."""
        per_second = self.per_second(path, kind, size, transport)
        return per_second / 1e3 if size < 64 * KIB else per_second * size / MIB

    def alone(self, size, *arguments):
        return self.runner.ropeway("perf", "--ops", "put", "--transport", "shm", "--sizes", size, "--measure", "bw", "--window", UNDER_WAY, "--buffers", UNDER_WAY, *arguments,
                                   "--no-bare", seconds=self.seconds)["rows"][0]["bytes_per_second"] / MIB

    def exchange(self, *arguments):
        return self.plugin(self.ours, "--alltoall", RANKS, "--sizes", 64 * KIB, *arguments)["rows"][0]["bytes_per_second"] / MIB

    def beside_socket(self, run):
        return {SOCKET: lambda: run(self.socket)} if self.socket else {}

    def case(self, name, unit, run, goals):
        """Without --socket its goals are left out."""
        return Case(name, unit, lambda: run(self.ours), [goal for goal in goals if goal.reference != SOCKET or self.socket])

    def groups(self):
        def latency(path):
            return self.latency_us(path)

        groups = [Group("RMA, 8 B latency", {NOTIFY: lambda: self.runner.perf("shm", 8, "lat", self.seconds, "put")["latency_us"]["p50"], **self.beside_socket(latency)},
                        [self.case("RMA plugin, put and signal 8 B latency", "µs", latency, [Goal(NOTIFY, 1.5, at_least=False), Goal(SOCKET, 0.2, at_least=False)])]),
                  Group("RMA, 1 MiB", {PUTS: lambda: self.alone(MIB), OWN: lambda: self.alone(MIB, "--malloc"), BEST: lambda: self.copies[0].best(MIB), TURNS: lambda: self.copies[1].best(MIB)},
                        [self.case("RMA plugin, put 1 MiB", "MiB/s", lambda path: self.rate(path, MIB, "shm"), [Goal(PUTS, 0.9), Goal(OWN, 0.9), Goal(BEST, 0.8), Goal(TURNS, 0.8)])])]
        for size in SMALL if self.socket else ():
            def small(path, size=size):
                return self.rate(path, size, "tcp")

            groups.append(Group(f"RMA over TCP, {size_text(size)}", self.beside_socket(small), [self.case(f"RMA plugin over TCP, put {size_text(size)} rate", "k/s", small, [Goal(SOCKET, 5)])]))
        for size in LARGE:
            def large(path, size=size):
                return self.rate(path, size, "tcp")

            groups.append(Group(f"RMA over TCP, {size_text(size)}", {TCP: lambda: self.runner.iperf3(self.seconds), **self.beside_socket(large)},
                                [self.case(f"RMA plugin over TCP, put {size_text(size)}", "MiB/s", large, [Goal(SOCKET, 1.5), Goal(TCP, 0.9)])]))
        for transport in ("shm", "tcp"):
            groups.append(Group(f"RMA, get over {transport}", {"put": lambda transport=transport: self.rate(self.ours, MIB, transport)},
                                [self.case(f"RMA plugin, get 1 MiB, {transport}", "MiB/s", lambda path, transport=transport: self.rate(path, MIB, transport, "get"), [Goal("put", 0.9)])]))
        return groups + [Group("RMA, alltoall", {"isend, irecv": self.exchange},
                               [self.case(f"RMA plugin, {RANKS} ranks, alltoall 64 KiB", "MiB/s", lambda path: self.exchange("--rma"), [Goal("isend, irecv", 1.3)])])]


def groups(runner, build, quick, socket):
    return Bench(runner, build, 0.03 if quick else 0.1, socket).groups()
