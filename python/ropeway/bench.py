# SPDX-License-Identifier: BSD-3-Clause
"""python3 -m ropeway.bench: messages between two processes of this host, ropeway's beside those of
what else is installed, in interleaved rounds.

Half round trips of a ping-pong and the bandwidth of a stream, by size; then what one process does:
operations in flight, many as one, the import. Figures are medians of the rounds; ratios are
medians of each round's ratio, since a machine's speed changes under a run. The file stands alone:
another interpreter can run a side of it (--with ucx-py=/path/to/python)."""

import argparse
import asyncio
import collections
import ctypes
import importlib.util
import json
import mmap
import os
import shutil
import statistics
import subprocess
import sys
import time

DEADLINE_S = 120
VIEWS_KEPT = 4
RNG_STEP = 0x9E3779B97F4A7C15


def size_of(text):
    unit = {"K": 10, "M": 20, "G": 30}.get(text[-1:].upper())
    return int(text[:-1]) << unit if unit else int(text)


def text_of(size):
    for unit, shift in (("G", 30), ("M", 20), ("K", 10)):
        if size >= 1 << shift and size % (1 << shift) == 0:
            return f"{size >> shift} {unit}iB"
    return f"{size} B"


def rounds_of(size, scale):
    """How many ping-pongs, and messages of a stream, of each size."""
    n = 3000 if size <= 4096 else max(3, min(1000, (160 << 20) // size))
    return max(3, int(n * scale)), max(4, int(n * scale))


def window_of(size):
    """Messages in flight of a stream: as many as `ropeway perf` has."""
    return max(4, min(64, (64 << 20) // max(1, size)))


def memory(size, fill=False):
    """Bytes that are there (a page that was never written costs the first who does); on huge pages
    where they are large, as `ropeway perf` has them."""
    if size < 1 << 16:
        return bytearray(os.urandom(size) if fill else size)
    page = 2 << 20
    m = mmap.mmap(-1, size + page, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    m.madvise(mmap.MADV_HUGEPAGE)
    begin = -ctypes.addressof(ctypes.c_char.from_buffer(m)) % page
    buf = memoryview(m)[begin : begin + size]
    part = os.urandom(1 << 16) if fill else bytes(1 << 16)
    for k in range(0, size, len(part)):
        buf[k : k + len(part)] = part[: size - k]
    return buf


# ---- what is measured: an object with send(buf) and recv(buf), in asyncio ----


async def ping_pong(io, first, size, n):
    """Seconds of half a round trip."""
    out, back = memory(size, True), memory(size)
    send, recv = io.send, io.recv
    warm = max(2, n // 10)
    began = 0.0
    for k in range(warm + n):
        if k == warm:
            began = time.perf_counter()
        if first:
            await send(out)
            await recv(back)
        else:
            await recv(back)
            await send(back)
    took = (time.perf_counter() - began) / n / 2
    if first and back != out:
        raise SystemExit("what came back is not what was sent")
    return took


async def stream(io, first, size, n):
    """Seconds for each message of a stream."""
    buf = memory(size, first)
    post, done = io.send if first else io.recv, bytearray(1)
    window = 1 if io.in_order else window_of(size)  # a stream of bytes has one reader
    began, flying = 0.0, collections.deque()
    for count in (window, n):  # the first to warm up
        began = time.perf_counter()
        for _ in range(count):
            if window == 1:
                await post(buf)
                continue
            if len(flying) == window:
                await flying.popleft()
            flying.append(asyncio.ensure_future(post(buf)))
        while flying:
            await flying.popleft()
        await (io.recv(done) if first else io.send(done))
    return (time.perf_counter() - began) / n


class Ropeway:
    in_order = False

    def __init__(self, ep):
        self.ep = ep

    def send(self, buf):
        return self.ep.send(buf, 1)

    def recv(self, buf):
        return self.ep.recv(buf, 1)


async def ropeway_side(first, address, spin_us, run):
    import ropeway

    c = ropeway.Context(asyncio.get_running_loop(), spin_us=spin_us)
    if first:
        async with await c.connect(address) as ep:
            return await run(Ropeway(ep))
    async with c.listen() as listener:
        say(listener.address)
        async with await listener.accept() as ep:
            await run(Ropeway(ep))
            await asyncio.sleep(0.05)


def blocking_side(first, address, plan):
    """Without a loop: no coroutine between."""
    import ropeway

    c = ropeway.blocking.Context()
    if first:
        ep = c.connect(address)
    else:
        listener = c.listen()
        say(listener.address)
        ep = listener.accept(DEADLINE_S)
    results = []
    for size, pings, _ in plan:
        out, back = memory(size, True), memory(size)
        warm = max(2, pings // 10)
        began = 0.0
        for k in range(warm + pings):
            if k == warm:
                began = time.perf_counter()
            if first:
                ep.send(out, 1)
                ep.recv(back, 1)
            else:
                ep.recv(back, 1)
                ep.send(back, 1)
        results.append([size, (time.perf_counter() - began) / pings / 2, None])
        if first and back != out:
            raise SystemExit("what came back is not what was sent")
    try:
        ep.shutdown(timeout=5)
    except ropeway.Error:
        pass
    return results


async def views_side(first, address, plan):
    """Loans and views, each as an array: the bytes stay where they are. Of a loan only the number
    of its message is written, and all of it when its memory is met first."""
    import numpy
    import ropeway

    c = ropeway.Context(asyncio.get_running_loop())
    if first:
        ep = await c.connect(address)
    else:
        async with c.listen() as listener:
            say(listener.address)
            ep = await listener.accept()
    results = []
    for size, pings, _ in plan:
        words = numpy.arange(1, size // 8 + 1, dtype="u8") * numpy.uint64(RNG_STEP)
        n = max(pings, 300)  # also of long ones: each takes microseconds
        warm, began, views = n // 10, 0.0, collections.deque(maxlen=VIEWS_KEPT)

        def send(number, size=size, words=words):
            loan = ep.loan(size)
            array = numpy.frombuffer(loan, "u8")
            if array[-1] != words[-1]:
                array[:] = words
            array[0] = number
            del array
            return ep.send_loan(loan, 1)

        async def recv(number, views=views):
            views.append(numpy.frombuffer(await ep.recv_view(1), "u8"))
            if views[-1][0] != number:
                raise SystemExit("a view has another number")

        for k in range(warm + n):
            if k == warm:
                began = time.perf_counter()
            if first:
                op = send(k)
                await recv(k)
                await op
            else:
                await recv(k)
                await send(k)
        results.append([size, (time.perf_counter() - began) / n / 2, None])
        if not all((array[1:] == words[1:]).all() for array in views):
            raise SystemExit("what came is not what was sent")
    try:
        async with asyncio.timeout(5):
            await ep.shutdown()
    except ropeway.Error:
        pass  # the peer was first
    return results


class Streams:
    in_order = True

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    async def send(self, buf):
        self.writer.write(buf)
        await self.writer.drain()

    async def recv(self, buf):
        buf[:] = await self.reader.readexactly(len(buf))


async def streams_side(first, address, run):
    if first:
        host, port = address.rsplit(":", 1)
        return await run(Streams(*await asyncio.open_connection(host, int(port))))
    came = asyncio.get_running_loop().create_future()
    server = await asyncio.start_server(lambda r, w: came.set_result((r, w)), "127.0.0.1", 0)
    say("127.0.0.1:%d" % server.sockets[0].getsockname()[1])
    await run(Streams(*await came))


class Zmq:
    in_order = True

    def __init__(self, socket):
        self.socket = socket

    async def send(self, buf):
        await self.socket.send(buf, copy=False)

    async def recv(self, buf):
        message = await self.socket.recv(copy=False)
        buf[:] = message.buffer


async def zmq_side(first, address, run):
    import zmq
    import zmq.asyncio

    s = zmq.asyncio.Context().socket(zmq.PAIR)
    if first:
        s.connect(address)
    else:
        port = s.bind_to_random_port("tcp://127.0.0.1")
        say(f"tcp://127.0.0.1:{port}")
    try:
        return await run(Zmq(s))
    finally:
        s.close(200)


class Ucp:
    in_order = False

    def __init__(self, ep):
        self.ep = ep

    def send(self, buf):
        return self.ep.send(buf)

    def recv(self, buf):
        return self.ep.recv(buf)


class Ucxx(Ucp):
    """Its buffers have to be numpy's."""

    def __init__(self, ep):
        import numpy

        self.ep, self.of, self.arrays = ep, numpy.frombuffer, {}

    def array(self, buf):
        a = self.arrays.get(id(buf))
        if a is None or a.nbytes != len(buf):
            a = self.arrays[id(buf)] = self.of(buf, "u1")
        return a

    def send(self, buf):
        return self.ep.send(self.array(buf))

    def recv(self, buf):
        return self.ep.recv(self.array(buf))


async def ucp_side(first, address, module, init, run):
    import warnings

    warnings.simplefilter("ignore")
    m = importlib.import_module(module)
    m.init(**init)
    io = Ucp if module == "ucp" else Ucxx
    if first:
        host, port = address.rsplit(":", 1)
        ep = await m.create_endpoint(host, int(port))
        return await run(io(ep))
    came, over = asyncio.get_running_loop().create_future(), asyncio.Event()

    async def accepted(ep):
        came.set_result(ep)
        await over.wait()

    listener = m.create_listener(accepted)
    say("127.0.0.1:%d" % listener.port)
    await run(io(await came))
    over.set()
    await asyncio.sleep(0.1)


def say(text):
    print(text, flush=True)


CONTENDERS = {
    "ropeway": lambda f, a, run: ropeway_side(f, a, 20, run),
    "ropeway, no spin": lambda f, a, run: ropeway_side(f, a, 0, run),
    "ropeway, views": None,
    "ropeway.blocking": None,
    "asyncio streams": streams_side,
    "ZeroMQ": zmq_side,
    "ucx-py": lambda f, a, run: ucp_side(f, a, "ucp", {"blocking_progress_mode": True}, run),
    "ucx-py, polling": lambda f, a, run: ucp_side(
        f, a, "ucp", {"blocking_progress_mode": False}, run
    ),
    "ucxx": lambda f, a, run: ucp_side(f, a, "ucxx", {"progress_mode": "blocking"}, run),
    "ucxx, polling": lambda f, a, run: ucp_side(f, a, "ucxx", {"progress_mode": "polling"}, run),
}
# Packages of ours whose modules have the names of others' modules.
OURS = {"ucx-py": "ropeway-ucp", "ucxx": "ropeway-ucxx"}
NEEDS = {"ropeway": "ropeway", "ZeroMQ": "zmq", "ucx-py": "ucp", "ucxx": "ucxx"}


def side(name, role, address, plan, core):
    if core is not None:
        try:
            os.sched_setaffinity(0, {core})
        except OSError:
            pass
    first = role == "first"
    if name == "ropeway.blocking":
        results = blocking_side(first, address, plan)
    elif name == "ropeway, views":
        results = asyncio.run(views_side(first, address, plan))
    else:

        async def run(io):
            results = []
            for size, pings, messages in plan:
                half = await ping_pong(io, first, size, pings)
                each = await stream(io, first, size, messages) if size >= 1 << 20 else None
                results.append([size, half, each])
            return results

        results = asyncio.run(CONTENDERS[name](first, address, run))
    if first:
        say(json.dumps(results))


# ---- who runs them ----


def is_ours(python, module):
    """Is the module that this interpreter finds one of ropeway's packages?"""
    find = f"importlib.util.find_spec({module!r}).origin"
    code = f"import importlib.util; print('ropeway' in open({find}).read())"
    r = subprocess.run([*python, "-c", code], capture_output=True, text=True, timeout=DEADLINE_S)
    return r.stdout.strip() == "True"


def command(python, *args):
    return [*python, os.path.abspath(__file__), "--side", *args]


def once(name, python, plan, cores, env):
    """{size: (half round trip, each message of a stream)}; a text where it failed."""
    piped = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
    listening = None
    try:
        listening = subprocess.Popen(
            command(python, json.dumps([name, "second", None, plan, cores and cores[1]])), **piped
        )
        address = listening.stdout.readline().strip()
        if not address:
            return listening.communicate()[1].strip().split("\n")[-1] or "it did not listen"
        connecting = subprocess.run(
            command(python, json.dumps([name, "first", address, plan, cores and cores[0]])),
            timeout=DEADLINE_S,
            **piped,
        )
        if connecting.returncode:
            return connecting.stderr.strip().split("\n")[-1]
        return {s: (half, each) for s, half, each in json.loads(connecting.stdout.split("\n")[-2])}
    except subprocess.TimeoutExpired:
        return f"not done within {DEADLINE_S} s"
    finally:
        if listening:
            try:
                listening.wait(5)
            except subprocess.TimeoutExpired:
                listening.kill()
                listening.wait()
            listening.stdout.close()
            listening.stderr.close()


def c_once(perf, sizes):
    """`ropeway perf`, the same sizes."""
    argv = [perf, "perf", "--json", "--no-bare", "--duration", "0.3", "--sizes"]
    r = subprocess.run(
        [*argv, ",".join(map(str, sizes))], capture_output=True, text=True, timeout=DEADLINE_S
    )
    if r.returncode:
        return r.stderr.strip()
    out = {}
    for row in json.loads(r.stdout)["rows"]:
        size = row["size"]
        out[size] = (row["latency_us"]["p50"] * 1e-6, size / row["bytes_per_second"])
    return out


def micro():
    """What one process does with itself, each beside what it is held against."""
    import gc

    import ropeway

    out = {}

    async def futures(n):
        loop = asyncio.get_running_loop()
        fs = [loop.create_future() for _ in range(n)]
        g = asyncio.gather(*fs)
        gc.collect()
        began = time.perf_counter()
        for f in fs:
            f.set_result(None)
        await g
        return n / (time.perf_counter() - began)

    async def receives(a, b, n):
        bufs = [bytearray(8) for _ in range(n)]
        ops = [b.recv(buf, 1) for buf in bufs]
        g = asyncio.gather(*ops)
        await asyncio.sleep(0)
        gc.collect()
        began = time.perf_counter()
        await a.send_many([b"12345678"] * n, 1)
        await g
        return n / (time.perf_counter() - began)

    async def drained(a, b, n):
        """Only the half that receives: the messages wait."""
        ops = [b.recv(bytearray(8), 1) for _ in range(n)]
        g = asyncio.gather(*ops)
        s = a.send_many([b"12345678"] * n, 1)
        gc.collect()
        began = time.perf_counter()
        await g
        took = time.perf_counter() - began
        await s
        return n / took

    async def many(a, b, n):
        bufs, data = [bytearray(8) for _ in range(n)], [b"12345678"] * n
        gc.collect()
        began = time.perf_counter()
        op = b.recv_many(bufs, 1)
        await a.send_many(data, 1)
        await op
        return n / (time.perf_counter() - began)

    async def main():
        async with ropeway.listen() as listener:
            a, b = await asyncio.gather(ropeway.connect(listener.address), listener.accept())
        rows = []
        for _ in range(5):
            bare = await futures(10_000)
            rows.append([bare, *[await f(a, b, 10_000) for f in (drained, receives, many)]])
        for name, of_row, unit in (
            ("10,000 bare futures set and gathered", lambda r: r[0], "/s"),
            ("10,000 receives in flight drained", lambda r: r[1], "/s"),
            ("... of bare futures", lambda r: r[1] / r[0], "x"),
            ("10,000 receives in flight, sent and drained", lambda r: r[2], "/s"),
            ("... of bare futures ", lambda r: r[2] / r[0], "x"),
            ("recv_many of 10,000, sent and received", lambda r: r[3], "/s"),
        ):
            out[name] = statistics.median(map(of_row, rows)), unit

    asyncio.run(main())
    code = (
        "import sys, time; t = time.perf_counter(); import asyncio; u = time.perf_counter(); "
        "import ropeway; print(u - t, time.perf_counter() - u)"
    )
    took = []
    for _ in range(7):
        r = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
        took.append([float(x) for x in r.stdout.split()])
    out["import asyncio"] = (statistics.median(t[0] for t in took) * 1e3, "ms")
    out["import ropeway beyond it"] = (statistics.median(t[1] for t in took) * 1e3, "ms")
    return out


# ---- what is shown ----

COLORS = ["#0b6e4f", "#58a55c", "#08415c", "#d1495b", "#edae49", "#6a4c93", "#b185db", "#8d99ae", "#555"]


def svg(table, sizes, path):
    """Half round trips by size, both axes logarithmic."""
    import math

    rows = {n: r for n, r in table.items() if r}
    values = [v[s][0] for v in rows.values() for s in sizes if s in v]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    left, right = math.log2(max(1, sizes[0])), math.log2(sizes[-1])
    width, height, pad = 720, 420, 60

    def x(size):
        return pad + (math.log2(max(1, size)) - left) / max(1, right - left) * (width - pad - 190)

    def y(seconds):
        return height - pad - (math.log10(seconds) - low) / (high - low) * (height - 2 * pad)

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        f'<text x="{pad}" y="28" font-size="15">Half a round trip between two processes</text>',
    ]
    for e in range(low, high + 1):
        name = f"{10 ** (e + 6):g} µs" if e < -3 else f"{10 ** (e + 3):g} ms"
        out.append(
            f'<path d="M{pad} {y(10**e):.1f}H{width - 130}" stroke="#ddd"/>'
            f'<text x="{pad - 6}" y="{y(10**e) + 4:.1f}" text-anchor="end">{name}</text>'
        )
    for s in sizes:
        out.append(
            f'<text x="{x(s):.1f}" y="{height - pad + 20}" text-anchor="middle">{text_of(s)}</text>'
        )
    labels = []
    for k, (name, row) in enumerate(rows.items()):
        color, at = COLORS[k % len(COLORS)], [(x(s), y(row[s][0])) for s in sizes if s in row]
        d = " ".join(f"{'L' if i else 'M'}{a:.1f} {b:.1f}" for i, (a, b) in enumerate(at))
        out.append(f'<path d="{d}" fill="none" stroke="{color}" stroke-width="2"/>')
        out += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{color}"/>' for a, b in at]
        labels.append([at[-1][1], at[-1][0], name, color])
    labels.sort()
    for i in range(1, len(labels)):  # one below the other
        labels[i][0] = max(labels[i][0], labels[i - 1][0] + 14)
    for b, a, name, color in labels:
        out.append(f'<text x="{a + 8:.1f}" y="{b + 4:.1f}" fill="{color}">{name}</text>')
    with open(path, "w", encoding="utf-8") as f:
        f.write("\n".join([*out, "</svg>"]) + "\n")


def spell(seconds):
    return f"{seconds * 1e6:.2f} us" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"


def show(table, ratios, sizes):
    width = max(map(len, table)) + 2

    def half(row, s, r):
        return f"{spell(row[s][0]):>12}", r

    def bandwidth(row, s, r):
        return f"{s / row[s][1] / 1e9:>7.2f} GB/s", r and 1 / r

    def rows(title, sizes, which, cell):
        say(f"{title}, median of the rounds (and times ropeway's)")
        say(" " * width + "".join(f"{text_of(s):>22}" for s in sizes))
        for name, row in table.items():
            line = f"{name:<{width}}"
            for s in sizes:
                if s not in row or not row[s][which]:
                    line += f"{'-':>22}"
                    continue
                amount, r = cell(row, s, ratios[name].get((s, which)))
                line += f"{amount}{'' if r is None else f' ({r:.2f} x)':>10}"
            if which == 0 or any(s in row and row[s][which] for s in sizes):
                say(line.rstrip())

    rows("half a round trip", sizes, 0, half)
    large = [s for s in sizes if s >= 1 << 20]
    if large:
        rows("\nbandwidth of a stream", large, 1, bandwidth)


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "--side":
        side(*json.loads(sys.argv[2]))
        return
    p = argparse.ArgumentParser(prog="python3 -m ropeway.bench", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--sizes", default="8,4K,64K,1M,64M", help="default 8,4K,64K,1M,64M")
    p.add_argument("--rounds", type=int, default=5, help="default 5")
    p.add_argument("--scale", type=float, default=1, help="more or fewer messages a round")
    p.add_argument("--only", default="", help="names of contenders, by comma; see the table")
    p.add_argument("--with", dest="pythons", action="append", default=[], metavar="NAME=PYTHON",
        help="another interpreter (or a command) for ucx-py, ucxx or ZeroMQ")
    p.add_argument("--perf", default=shutil.which("ropeway"),
        help="the command `ropeway`, for `ropeway perf` beside it")
    p.add_argument("--no-pin", action="store_true", help="do not bind the two sides to two cores")
    p.add_argument("--no-micro", action="store_true", help="not what one process does")
    p.add_argument("--plot", metavar="FILE.svg", help="draw the half round trips")
    p.add_argument("--json", metavar="FILE", help="all figures of all rounds")
    args = p.parse_args()
    sizes = sorted(size_of(s) for s in args.sizes.split(","))
    plan = [[s, *rounds_of(s, args.scale)] for s in sizes]
    cores = sorted(os.sched_getaffinity(0))
    cores = None if args.no_pin or len(cores) < 2 else cores[:2]
    pythons = {}
    for text in args.pythons:
        name, _, what = text.partition("=")
        pythons[name] = what.split()
    wanted = [n.strip() for n in args.only.split(",") if n.strip()] if args.only else None
    names, base = [], "ropeway"
    for name in CONTENDERS:
        kind = name.split(",")[0].split(".")[0]
        if wanted and name not in wanted and kind not in wanted:
            continue
        module = NEEDS.get(kind)
        here = module is None or kind in pythons or importlib.util.find_spec(module)
        if here:
            names.append(name)
        else:
            say(f"SKIPPED {name}: no module {module} here (pip install it, or --with {kind}=PYTHON)")
    shown = {name: name for name in names}
    for kind, ours in OURS.items():
        of_kind = [name for name in names if name.split(",")[0] == kind]
        if of_kind and is_ours(pythons.get(kind, [sys.executable]), NEEDS[kind]):
            shown.update((name, name.replace(kind, ours)) for name in of_kind)
    if args.perf:
        shown["ropeway perf (C)"] = "ropeway perf (C)"
        names.append("ropeway perf (C)")
    env = dict(os.environ, UCX_WARN_UNUSED_ENV_VARS="n")
    every = {n: [] for n in names}
    for k in range(args.rounds):
        for name in names[k % len(names) :] + names[: k % len(names)]:
            kind = name.split(",")[0].split(".")[0]
            if name.startswith("ropeway perf"):
                r = c_once(args.perf, sizes)
            else:
                r = once(name, pythons.get(kind, [sys.executable]), plan, cores, env)
            if isinstance(r, str):
                say(f"SKIPPED {name}, round {k + 1}: {r}")
                r = {}
            every[name].append(r)
    table, ratios = {}, {}
    for name in names:
        label = shown[name]
        table[label] = {}
        ratios[label] = {}
        for s in sizes:
            both = []
            for i in (0, 1):
                v = [r[s][i] for r in every[name] if s in r and r[s][i]]
                both.append(statistics.median(v) if v else None)
                pairs = [
                    r[s][i] / b[s][i]
                    for r, b in zip(every[name], every.get(base, []))
                    if s in r and s in b and r[s][i] and b[s][i]
                ]
                if pairs and name != base:
                    ratios[label][s, i] = statistics.median(pairs)
            if both[0]:
                table[label][s] = both
    where = f"pinned to cores {cores[0]} and {cores[1]}" if cores else "not pinned"
    say(f"{args.rounds} interleaved rounds, {where}, load {os.getloadavg()[0]:.1f}")
    show(table, ratios, sizes)
    if args.plot:
        svg(table, sizes, args.plot)
        say(f"\nplot: {args.plot}")
    small = None if args.no_micro else micro()
    if small:
        say("\none process, median of 5 rounds")
        for name, (value, unit) in small.items():
            amount = f"{value:,.0f}" if unit == "/s" else f"{value:.2f}"
            say(f"  {name:<46}{amount:>14} {unit}")
    if args.json:
        with open(args.json, "w", encoding="utf-8") as f:
            json.dump({"rounds": {n: [{str(s): v for s, v in r.items()} for r in rs]
                for n, rs in every.items()}, "one process": small}, f)


if __name__ == "__main__":
    main()
