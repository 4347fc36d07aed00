"""script/bench --nccl: our NCCL network plugin as `ropeway plugin bench` measures it, called as NCCL calls one: beside a plugin of one TCP stream (tests/nccl/onestream.c), beside bare TCP, beside what the
messaging library does alone over shared memory, and four comms beside one."""
import pathlib

import measure as interleaved
from cases import KIB, MIB, Case, Goal, Group, size_text
from processes import RunFailed

STREAM = "one-stream plugin"
SMALL = (8, 512, 4 * KIB, 32 * KIB)  # never slower than one stream
LARGE = (64 * KIB, 512 * KIB, 4 * MIB)
LATENCIES = (8, 4 * KIB, 32 * KIB)
ALONE = 0.9  # of what the transport does without the plugin
COMMS = 4


def figure(size, per_second):
    """A rate: of small messages their number, of large ones their bytes."""
    return (per_second / 1e6, "M/s") if size < 64 * KIB else (per_second * size / MIB, "MiB/s")


class Bench:
    def __init__(self, runner, build, seconds):
        self.runner, self.build, self.seconds = runner, pathlib.Path(build), seconds
        self.ours, self.stream = str(self.build / "libnccl-net-ropeway.so"), str(self.build / "tests" / "nccl" / "libnccl-net-onestream.so")

    def json_of(self, *command, transport=None):
        environment = ["NCCL_SOCKET_IFNAME=lo"] + ([f"ROPEWAY_NCCL_TRANSPORT={transport}"] if transport else [])
        return self.runner.ropeway(*command, seconds=self.seconds, deadline_s=160, environment=environment)

    def plugin(self, *arguments, **more):
        return self.json_of("plugin", "bench", self.ours, *arguments, **more)

    def beside_stream(self, sizes, latencies, transport=None):
        """Both plugins in turn, by one program."""
        return self.plugin("--against", self.stream, "--rounds", 1, "--sizes", ",".join(map(str, sizes)), "--latency-sizes", ",".join(map(str, latencies)),
                           transport=transport)["plugins"]

    def stream_rows(self, rounds, only, tell, line):
        """One size at a time, each round between two looks at the line."""
        rows = []
        for transport, how in ((None, ""), ("tcp", ", told to take TCP")):
            asked = not transport  # over TCP for information
            for size in SMALL + LARGE if asked else (8, 32 * KIB, 512 * KIB, 4 * MIB):
                name, goal = f"NCCL plugin{how}, {size_text(size)} rate", Goal(STREAM, 1 if asked and size in SMALL else None)
                rows += self.stream_row(name, figure(size, 1)[1], goal, rounds, tell, line, lambda size=size, transport=transport: [
                    figure(size, plugin["rows"][0]["messages_per_second"])[0] for plugin in self.beside_stream([size], [8], transport)]) if only in name else []
            for size in LATENCIES if asked else (8,):
                name, goal = f"NCCL plugin{how}, {size_text(size)} latency", Goal(STREAM, 1 if asked else None, at_least=False)
                rows += self.stream_row(name, "µs", goal, rounds, tell, line, lambda size=size, transport=transport: [
                    plugin["latency"][0]["us"] for plugin in self.beside_stream([8], [size], transport)]) if only in name else []
        return rows

    @staticmethod
    def stream_row(name, unit, goal, rounds, tell, line, run):
        tell(f"{rounds} rounds: {name}")
        samples, failures = [], []
        for _ in range(rounds):
            before = line()
            try:
                ours, stream = run()
            except RunFailed as e:
                failures.append(str(e))
                tell(f"  {e}")
                continue
            samples.append((ours, stream, before, line()))
        return interleaved.binned({"name": name, "unit": unit, "reference_name": goal.reference, "goal": goal.text()}, samples, goal.met, failures)

    def latency_of(self, size):
        return self.plugin("--rounds", 1, "--sizes", size, "--latency-sizes", size)["plugins"][0]["latency"][0]["us"]

    def rate_of(self, size, comms=1, buffers=8):
        """MiB/s; of several comms together."""
        return self.plugin("--rounds", 1, "--sizes", size, "--latency-sizes", 8, "--comms", comms, "--buffers", buffers)["plugins"][0]["rows"][0]["bytes_per_second"] / MIB

    def bare_us(self, field):
        return self.json_of("perf", "--sizes", 8, "--measure", "lat", "--transport", "shm")["bare_us"][field]

    def alone(self, size, buffers=8):
        """The library without the plugin: as many under way, over as many buffers."""
        return self.json_of("perf", "--sizes", size, "--measure", "bw", "--transport", "shm", "--window", 8, "--buffers", buffers, "--no-bare")["rows"][0]["bytes_per_second"] / MIB

    def groups(self):
        groups = [Group(f"beside bare TCP, {size_text(size)}", {f"bare TCP, {size_text(size)}": lambda field=field: self.bare_us(field)},
                        [Case(f"NCCL plugin, {size_text(size)} latency", "µs", lambda size=size: self.latency_of(size), [Goal(f"bare TCP, {size_text(size)}", 1, at_least=False)])])
                  for size, field in ((8, "tcp_8"), (4 * KIB, "tcp_4k"))]
        groups += [Group("beside bare TCP, bandwidth", {"iperf3, one TCP stream": lambda: self.runner.iperf3(self.seconds)},
                         [Case("NCCL plugin, 4 MiB rate", "MiB/s", lambda: self.rate_of(4 * MIB), [Goal("iperf3, one TCP stream", 1)])])]
        groups += [Group(f"beside the library alone, {size_text(size)}", {"ropeway perf, shm": lambda size=size: self.alone(size)},
                         [Case(f"NCCL plugin, {size_text(size)} rate", "MiB/s", lambda size=size: self.rate_of(size), [Goal("ropeway perf, shm", ALONE)])])
                   for size in LARGE[1:]]
        # Four comms have four times the buffers, which is what large messages notice: one comm has as many here.
        one, same = f"1 comm, {COMMS * 8} buffers", f"ropeway perf, shm, {COMMS * 8} buffers"
        return groups + [Group(f"several comms, {size_text(size)}", {one: lambda size=size: self.rate_of(size, 1, COMMS * 8), same: lambda size=size: self.alone(size, COMMS * 8)},
                               [Case(f"NCCL plugin, {COMMS} comms, {size_text(size)} rate", "MiB/s", lambda size=size: self.rate_of(size, COMMS),
                                     [Goal(one, 1)] + ([Goal(same, ALONE)] if size >= 512 * KIB else []))])
                         for size in (8, 32 * KIB, 512 * KIB, 4 * MIB)]


def paired_groups(runner, build, seconds):
    """The plugin of one build, for the same of another one (cases.against)."""
    bench = Bench(runner, build, seconds)
    latencies = [Case(f"NCCL plugin, {size_text(size)} latency", "µs", lambda size=size: bench.latency_of(size), []) for size in LATENCIES]
    rates = [Case(f"NCCL plugin, {comms} comms, {size_text(size)} rate", "MiB/s", lambda size=size, comms=comms: bench.rate_of(size, comms), [])
             for comms in (1, COMMS) for size in SMALL[::3] + LARGE[1:]]
    return [Group("NCCL plugin", {}, latencies + rates)]


def measure(runner, build, rounds, quick, only, tell, line):
    bench = Bench(runner, build, 0.05 if quick else 0.15)
    return bench.stream_rows(rounds, only, tell, line) + interleaved.measure(interleaved.chosen(bench.groups(), only), rounds, tell, line)
