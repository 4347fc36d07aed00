#!/usr/bin/python3
"""What `ropeway perf` leaves to Python: curves as an SVG, and the programs that others measure with, beside ours.

    beside.py plot FILE TITLE < ROWS
    beside.py against ROPEWAY JSON

ucx_perftest and fi_pingpong run on the same two cores, in turn with ours, so that what the machine does to one it does to the other. Of each peer the figure
is the median over the rounds; of several peers, versions and settings the best one counts.
"""
import ctypes
import html
import json
import math
import os
import pathlib
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time

DEADLINE_S, LISTEN_S, PLACES_MOST, FAILURES_MOST = 40, 10, 8, 2
LIBC = ctypes.CDLL(None)
PR_SET_PDEATHSIG = 1
# What a figure is shown in, which way is better, and its scale from seconds, messages a second, bytes a second.
FIGURES = {"lat": ("us", "lower", 1e6), "rate": ("M/s", "higher", 1e-6), "bw": ("MB/s", "higher", 1e-6)}
# Name, test of ucx_perftest, operation, size, goal; the machine itself, measured in the same rounds, and the goal beside it (None: only shown).
ROWS = [
    ("shm_lat_8", "tag_lat", "tag", 8, 1.1, "cache_line", None),
    ("shm_rate_8", "tag_bw", "tag", 8, 1, None, None),
    ("shm_bw_64k", "tag_bw", "tag", 65536, 1, None, None),
    ("shm_bw_8m", "tag_bw", "tag", 8388608, 1, None, None),
    ("shm_put_8m", "ucp_put_bw", "put", 8388608, 1.0, None, None),
    ("tcp_lat_8", "tag_lat", "tag", 8, 0.95, "tcp_8", 1.1),
    ("tcp_lat_4k", "tag_lat", "tag", 4096, 0.95, "tcp_4k", 1.1),
    ("tcp_rate_8", "tag_bw", "tag", 8, 5, None, None),
    ("tcp_bw_64k", "tag_bw", "tag", 65536, 1.5, None, None),
    ("tcp_bw_8m", "tag_bw", "tag", 8388608, 1.1, None, None),
    ("tcp_put_8m", "ucp_put_bw", "put", 8388608, 10, None, None),
]
# Transport, label, environment; of libfabric, provider, endpoint and messages. fi_pingpong has a figure for latency only: a mean, since it prints no
# other; its TCP endpoints of kind msg know no tags.
PEERS = [
    ("shm", "UCX posix,sysv,cma", {"UCX_TLS": "posix,sysv,cma,self"}, None),
    ("shm", "UCX posix,sysv", {"UCX_TLS": "posix,sysv,self"}, None),
    ("shm", "libfabric shm", {}, ("shm", "rdm", "tagged")),
    ("tcp", "UCX tcp", {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "lo"}, None),
    ("tcp", "UCX tcp, no rendezvous", {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "lo", "UCX_RNDV_THRESH": "inf"}, None),
    ("tcp", "libfabric tcp rdm", {}, ("tcp", "rdm", "tagged")),
    ("tcp", "libfabric tcp msg", {}, ("tcp", "msg", "msg")),
]


class Row:
    def __init__(self, name, test, op, size, goal=None, bare=None, bare_goal=None):
        self.name, self.test, self.op, self.size, self.goal, self.bare, self.bare_goal = name, test, op, size, goal, bare, bare_goal
        self.transport, self.figure = name.split("_")[0], name.split("_")[1].replace("put", "bw")


def usage(text):
    sys.exit(print(f"ropeway perf: {text}\nTry 'ropeway perf --help'.", file=sys.stderr) or 2)


# ---- peers ----

class Peer:
    """As it is installed somewhere: under a prefix, or as PATH finds it."""

    def __init__(self, peer, prefix=None):
        self.transport, self.label, self.env, self.fabric = peer
        self.program, self.package = ("fi_pingpong", "libfabric-bin") if self.fabric else ("ucx_perftest", "ucx-utils")
        self.failures = 0
        if prefix:
            self.label += f" ({os.path.basename(prefix)})"
            self.program = f"{prefix}/bin/{self.program}"
            self.env = self.env | {"LD_LIBRARY_PATH": f"{prefix}/lib", "UCX_MODULE_DIR": f"{prefix}/lib/ucx"}
        self.prefix = prefix

    def takes_part(self, row):
        return self.transport == row.transport and self.failures < FAILURES_MOST and (not self.fabric or row.figure == "lat")

    def start(self, arguments, core):
        """Its input is a terminal at which nobody types: without one ucx_perftest is a rank of MPI's where it was built with MPI, as Debian 13's."""
        env = dict(os.environ, LC_ALL="C", UCX_WARN_UNUSED_ENV_VARS="n", **self.env)
        if self.prefix:
            env.pop("FI_PROVIDER_PATH", None)
        typist, terminal = os.openpty()

        def settle():
            LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            os.sched_setaffinity(0, {core})

        try:
            return subprocess.Popen([self.program, *map(str, arguments)], stdin=terminal, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                                    env=env, preexec_fn=settle, pass_fds=[typist])
        except OSError:
            return None
        finally:
            os.close(typist)
            os.close(terminal)

    def commands(self, row, port, seconds):
        """Of the server, and of the client."""
        n = messages_for(row, seconds)
        if self.fabric:
            provider, endpoint, messages = self.fabric
            both = ["-p", provider, "-e", endpoint, "-m", messages, "-I", n, "-S", row.size]
            return [*both, "-B", port], [*both, "-P", port, "127.0.0.1"]
        return ["-p", port], ["127.0.0.1", "-p", port, "-t", row.test, "-s", row.size, "-n", n, "-w", n // 10 + 1, "-f", "-v"]

    def measure(self, row, seconds, cores):
        """A figure, or None."""
        with socket.create_server(("127.0.0.1", 0)) as s:
            port = s.getsockname()[1]
        of_server, of_client = self.commands(row, port, seconds)
        server, client, found = self.start(of_server, cores[1]), None, None
        try:
            if server and await_listening(server, port):
                client = self.start(of_client, cores[0])
                text = client.communicate(timeout=DEADLINE_S)[0] if client else ""
                found = None if not client or client.returncode else (fabric_figure(text) if self.fabric else ucx_figure(text, row.figure))
                server.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            pass
        finally:
            for process in (server, client):
                if process:
                    process.kill()
                    process.communicate()
        self.failures += not found
        return found


def find_peers(prefixes):
    found = [Peer(p) for p in PEERS]
    missing = {p.program: p.package for p in found if not shutil.which(p.program)}
    prefixes = [p.rstrip("/") or "/" for p in prefixes.split(":")] if prefixes else []
    if missing and not prefixes:
        are, their, them = ("are", "their", "them") if len(missing) > 1 else ("is", "its", "it")
        print(f"ropeway perf: {' and '.join(missing)} {are} not in PATH, so {their} figures are missing. To install {them}: apt install {' '.join(missing.values())}", file=sys.stderr)
    if len(prefixes) >= PLACES_MOST:
        usage(f"--peers: more than {PLACES_MOST - 1} installations")
    for prefix in prefixes:
        more = [p for p in (Peer(p, prefix) for p in PEERS) if os.access(p.program, os.X_OK)]
        if not more:
            usage(f"--peers: '{prefix}' has neither bin/ucx_perftest nor bin/fi_pingpong")
        found += more
    return found


def await_listening(server, port):
    """Read, since a try would be the connection that the server waits for."""
    until = time.monotonic() + LISTEN_S
    while time.monotonic() < until and server.poll() is None:
        for name in ("tcp", "tcp6"):
            if re.search(rf"(?m)^ *\d+: [0-9A-F]+:{port:04X} [0-9A-F]+:[0-9A-F]+ 0A ", pathlib.Path("/proc/net", name).read_text()):
                return True
        time.sleep(0.02)
    return False


def messages_for(row, seconds):
    """How many take about so long, guessed from what such machines do; the figure does not depend on it."""
    tcp = row.transport == "tcp"
    each_s = {("lat", True): 12e-6, ("lat", False): 0.5e-6}.get((row.figure, tcp), 5e-6 if tcp else 0.1e-6)
    each_s += row.size / (3e9 if tcp else 10e9) + (row.size / 1e9 if tcp and row.op == "put" else 0)
    return max(10, int(seconds / each_s))


def ucx_figure(text, figure):
    """The line of -v: iterations,percentile,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr (us, MiB/s, messages/s)."""
    line = re.search(r"(?m)^ *[\d.e+]+(, *[\d.e+]+){7}", text)
    if not line:
        return None
    v = list(map(float, line[0].split(",")))
    return {"lat": v[1] / 1e6, "rate": v[7], "bw": v[5] * 1048576}[figure]


def fabric_figure(text):
    """bytes #sent #ack total time MB/sec usec/xfer Mxfers/sec; the last but one is half a round trip."""
    line = re.search(r"(?m)^(?:\S+ +){4}[\d.]+s +[\d.]+ +([\d.]+)", text)
    return float(line[1]) / 1e6 if line else None


# ---- the rounds ----

def ours(ropeway, row, seconds):
    """Our figure, and that of the machine itself, in seconds."""
    command = [ropeway, "perf", "-t", row.transport, "-o", row.op, "-m", "lat" if row.figure == "lat" else "bw", "-s", row.size, "-d", seconds, "-w",
               8 if row.size > 1 << 20 else 64, "--json"] + ([] if row.bare else ["--no-bare"])
    try:
        found = json.loads(subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, check=False).stdout)
        got = found["rows"][0]
    except (ValueError, LookupError):
        return None, None
    bare = found.get("bare_us", {}).get(row.bare, 0) / 1e6
    return got["latency_us"]["p50"] / 1e6 if row.figure == "lat" else got["messages_per_second"] if row.figure == "rate" else got["bytes_per_second"], bare or None


def middle(figures):
    figures = [v for v in figures if v]
    return statistics.median(figures) if figures else None


def compare(o, row, peers, rounds, cores):
    """Ours, the best peer's, whose that is, the machine's."""
    mine, bare, theirs = [], [], {}
    for peer in peers:
        peer.failures = 0
    for _ in range(rounds):
        for figures, v in zip((mine, bare), ours(o["ropeway"], row, o["seconds"])):
            figures.append(v)
        for peer in peers:
            if peer.takes_part(row):
                theirs.setdefault(peer.label, []).append(peer.measure(row, o["seconds"], cores))
    best = sorted(((middle(v), label) for label, v in theirs.items() if middle(v)), reverse=row.figure != "lat")
    return middle(mine), *(best[0] if best else (None, None)), middle(bare)


def rounded(v):
    return float(f"{v:.5g}") if v else None


def show(o, name, figure, mine, theirs, goal, label):
    unit, better, scale = FIGURES[figure]
    ratio = mine / theirs if mine and theirs else 0
    if o["json"]:
        o["list"].append({"name": name, "ours": rounded((mine or 0) * scale), "peer": rounded((theirs or 0) * scale), "unit": unit, "better": better, "ratio": rounded(ratio),
                          "goal": goal, "peer_name": label or ""})
        return
    lower, aim = better == "lower", " " * 20
    if goal:
        verdict = "-" if not ratio else "pass" if (ratio <= goal if lower else ratio >= goal) else "short"
        aim = f"{'at most ' if lower else 'at least'} {goal:<5g} {verdict:5}"
    mine, theirs, ratio = (f"{number:.2f}" if number else "-" for number in ((mine or 0) * scale, (theirs or 0) * scale, ratio))
    print(f"{name:15} {mine:>10} {theirs:>10} {unit:5} {ratio:>6}  {aim} {label or 'no peer reported a figure'}", flush=True)


def sweep(o, peers, cores):
    """The plot: sizes, ours and theirs."""
    panels = [{"title": "Latency", "unit": "half a round trip", "series": []}, {"title": "Bandwidth", "unit": "bytes a second", "bytes": True, "series": []}]
    for panel, figure in zip(panels, ("lat", "bw")):
        for colour, transport in enumerate(("shm", "tcp")):
            if o["transport"] not in (None, transport):
                continue
            found = {size: compare(o, Row(f"{transport}_{figure}", f"tag_{figure}", "tag", size), peers, 1, cores) for size in o["sizes"] if size}
            panel["series"] += [{"name": name + transport, "colour": colour, "dashed": at == 1, "points": [[size, v[at]] for size, v in found.items() if v[at]]}
                                for at, name in enumerate(("ropeway ", "UCX or libfabric "))]
    return plot(o["plot"], "Tagged messages between two processes of one host", panels)


def against(ropeway, text):
    o = json.loads(text) | {"ropeway": ropeway, "list": []}
    peers, cores = find_peers(o["peers"]), sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        sys.exit("ropeway perf: two cores are needed, one for each process; this process may use one")
    if not o["json"]:
        print(f"{'what':15} {'ropeway':>10} {'peer':>10} {'':5} {'ratio':>6}  {'goal':14}", flush=True)
    failed = 0
    for row in map(lambda r: Row(*r), ROWS):
        if o["transport"] not in (None, row.transport) or (o["only"] or "") not in row.name:
            continue
        mine, theirs, label, bare = compare(o, row, peers, o["rounds"], cores)
        failed |= not mine
        show(o, row.name, row.figure, mine, theirs, row.goal, label)
        if row.bare:
            show(o, "bare_" + row.bare, row.figure, mine, bare, row.bare_goal, "the machine itself, polled by both sides")
    if o["json"]:
        print(json.dumps(o["list"], indent=1))
    return (sweep(o, peers, cores) if o["plot"] else 0) or int(failed)


# ---- curves: panels side by side, both axes logarithmic, a legend, readable in light and dark ----

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BELOW, LEGEND = 460, 320, 74, 64, 18, 60, 20
# Told apart by those who see red and green alike, on white and on black.
COLOURS = [("#0b62b8", "#6cb6ff"), ("#b8480b", "#ff9e64"), ("#1b7f5c", "#5fd7a7"), ("#8a3fa0", "#d59cf0")]
STYLE = ("<style>\nsvg{background:#fff;font:13px system-ui,sans-serif}text{fill:#222}.q{fill:#666;font-size:11px}.h{font-size:15px;font-weight:600}\n"
         ".g{stroke:#e3e3e3}.a{stroke:#999;fill:none}.l{fill:none;stroke-width:2}.d{stroke-dasharray:5 4}" + "".join(f".c{i}{{stroke:{c}}}" for i, (c, _) in enumerate(COLOURS))
         + "\n@media (prefers-color-scheme:dark){svg{background:#14171a}text{fill:#e6e6e6}.q{fill:#a8a8a8}.g{stroke:#2c3136}.a{stroke:#777}"
         + "".join(f".c{i}{{stroke:{c}}}" for i, (_, c) in enumerate(COLOURS)) + "}\n</style>\n")


def scaled(v, units):
    for at, unit in units:
        if v >= at * 0.999:
            return f"{round(v / at, 2):g} {unit}"
    return f"{v:g}"


def size_text(n):
    return f"{n >> 20}M" if n >= 1 << 20 else f"{n >> 10}K" if n >= 1 << 10 else str(n)


def draw(panel, left):
    points = [p for s in panel["series"] for p in s["points"]]
    x0, y0, x1, y1 = left + LEFT, TOP, left + WIDTH - RIGHT, HEIGHT - BELOW
    xs, ys = [math.log2(x) for x, _ in points], [math.log10(y) for _, y in points]
    low, high = math.floor(min(ys)), math.ceil(max(ys))
    high = max(high, low + 1)
    units = [(1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (1, "B/s")] if panel.get("bytes") else [(1, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")]

    def across(v):
        return x0 + (v - min(xs)) / (max(xs) - min(xs)) * (x1 - x0) if max(xs) > min(xs) else (x0 + x1) / 2

    def up(v):
        return y1 + (v - low) / (high - low) * (y0 - y1)

    yield f'<text x="{x0:.1f}" y="{TOP - 12}"><tspan font-weight="600">{panel["title"]}</tspan>  <tspan class="q">{panel["unit"]}</tspan></text>'
    for tick in range(low, high + 1):
        yield f'<path class="g" d="M{x0:.1f} {up(tick):.1f}H{x1:.1f}"/><text class="q" x="{x0 - 6:.1f}" y="{up(tick) + 4:.1f}" text-anchor="end">{scaled(10 ** tick, units)}</text>'
    for tick in range(math.ceil(min(xs)), math.floor(max(xs) + 1e-9) + 1, 4 if max(xs) - min(xs) > 12 else 2):
        at = across(tick)
        yield f'<path class="g" d="M{at:.1f} {y0:.1f}V{y1:.1f}"/><text class="q" x="{at:.1f}" y="{y1 + 16:.1f}" text-anchor="middle">{size_text(2 ** tick)}</text>'
    yield (f'<path class="a" d="M{x0:.1f} {y0:.1f}V{y1:.1f}H{x1:.1f}"/><text class="q" x="{(x0 + x1) / 2:.1f}" y="{y1 + 34:.1f}" text-anchor="middle">bytes of a message'
           "</text>")
    for row, series in enumerate(panel["series"]):
        kind, name, at = f'l c{series["colour"] % len(COLOURS)}{" d" * series.get("dashed", False)}', html.escape(series["name"]), HEIGHT + row * LEGEND
        line = " ".join(f"{across(math.log2(x)):.1f},{up(math.log10(y)):.1f}" for x, y in series["points"])
        yield f'<polyline class="{kind}" points="{line}"><title>{name}</title></polyline>'
        yield f'<path class="{kind}" d="M{x0:.1f} {at:.1f}h28"/><text x="{x0 + 36:.1f}" y="{at + 4:.1f}">{name}</text>'


def panels_of(rows):
    """The curves of what `ropeway perf --json` has as rows."""
    def panel(title, unit, figure, **more):
        series = [{"name": op, "colour": colour, "points": [[row["size"], figure(row)] for row in rows if row["op"] == op and row["size"] and figure(row)]}
                  for colour, op in enumerate(("tag", "put", "get", "am"))]
        return {"title": title, "unit": unit, "series": [s for s in series if s["points"]], **more}

    return [panel("Latency", "half a round trip; of a get a whole one", lambda row: row.get("latency_us", {}).get("p50", 0) / 1e6),
            panel("Bandwidth", "bytes a second", lambda row: row.get("bytes_per_second"), bytes=True)]


def plot(file, title, panels):
    shown = [p for p in panels if any(s["points"] for s in p["series"])]
    width, height, title = WIDTH * max(1, len(shown)), HEIGHT + LEGEND * max([1, *(len(p["series"]) for p in panels)]), html.escape(title)
    lines = [line for at, panel in enumerate(shown) for line in draw(panel, at * WIDTH)]
    try:
        pathlib.Path(file).write_text(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">\n<title>{title}</title>\n'
                                      f'{STYLE}<text class="h" x="16" y="26">{title}</text>\n' + "\n".join(lines) + "\n</svg>\n")
    except OSError as e:
        print(f"ropeway perf: {file}: {e.strerror}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(plot(sys.argv[2], sys.argv[3], panels_of(json.load(sys.stdin))) if sys.argv[1] == "plot" else against(sys.argv[2], sys.argv[3]))
