"""script/bench --msg: the messaging library beside UCX and libfabric, as `ropeway perf --against ucx` measures them: both on the same two cores, in turn. Over verbs on the software device the
reference is what perftest does on that device. And what many endpoints and many receives cost (grow.c), and many senders (crowd.c)."""
import json
import pathlib
import subprocess
import sys
from statistics import median

import measure as interleaved
from cases import KIB, MIB, Case, Goal, Group, Iterations, size_text
from processes import favour

WHAT = {
    "shm_lat_8": "shared memory, 8 B latency", "shm_rate_8": "shared memory, 8 B rate", "shm_bw_64k": "shared memory, 64 KiB bandwidth",
    "shm_bw_8m": "shared memory, 8 MiB bandwidth", "shm_put_8m": "shared memory, 8 MiB put", "tcp_lat_8": "TCP, 8 B latency", "tcp_lat_4k": "TCP, 4 KiB latency",
    "tcp_rate_8": "TCP, 8 B rate", "tcp_bw_64k": "TCP, 64 KiB bandwidth", "tcp_bw_8m": "TCP, 8 MiB bandwidth", "tcp_put_8m": "TCP, 8 MiB put",
    "verbs_bw_1m": "verbs, software device, 1 MiB bandwidth", "verbs_lat_8": "verbs, software device, 8 B latency",
    "bare_cache_line": "shared memory, 8 B latency, beside a bare cache line", "bare_tcp_8": "TCP, 8 B latency, beside bare TCP", "bare_tcp_4k": "TCP, 4 KiB latency, beside bare TCP",
    "shm_1000_connect": "shared memory, 1,000 endpoints connect", "shm_1000_bytes": "shared memory, an idle endpoint of 1,000",
    "shm_1000_rate": "shared memory, 8 B rate, 1,000 endpoints in turn", "shm_key_1000_connect": "shared memory, 1,000 connect with a key",
    "shm_key_1000_bytes": "shared memory, an idle endpoint with a key", "tcp_1000_connect": "TCP, 1,000 endpoints connect", "tcp_1000_bytes": "TCP, an idle endpoint of 1,000",
    "tcp_1000_rate": "TCP, 8 B rate, 1,000 endpoints in turn", "tcp_key_1000_connect": "TCP, 1,000 connect with a key", "tcp_key_1000_bytes": "TCP, an idle endpoint with a key",
    "match_posted_100k": "a message, 100,000 receives posted", "match_wild_100k": "a message, 100,000 with masks posted",
    "match_mixed_100k": "a message, 100,000 with another mask posted", "match_early_100k": "a message, 100,000 wait for a receive",
    "tcp_10000_connect": "TCP, 10,000 endpoints connect", "tcp_10000_bytes": "TCP, an idle endpoint of 10,000", "tcp_10000_rate": "TCP, 8 B rate, 10,000 endpoints in turn",
    "tcp_key_10000_connect": "TCP, 10,000 connect with a key", "tcp_key_10000_bytes": "TCP, an idle endpoint of 10,000 with a key",
    "shm_64_to_1": "shared memory, 8 B rate, 64 processes send to one", "tcp_64_to_1": "TCP, 8 B rate, 64 processes send to one",
    "match_early_wild_100k": "a receive with a mask, 100,000 messages wait",
    "loan_64k": "loaned 64 KiB, beside 8 B", "loan_1m": "loaned 1 MiB, beside 8 B", "loan_64m": "loaned 64 MiB, beside 8 B",
    "loan_touch_64k": "loaned 64 KiB, filled and read", "loan_touch_1m": "loaned 1 MiB, filled and read", "loan_touch_64m": "loaned 64 MiB, filled and read",
}
LOANS = {"64k": 64 * KIB, "1m": MIB, "64m": 64 * MIB}


AGAINST = [name for name in WHAT if name.startswith(("shm_lat", "shm_rate", "shm_bw", "shm_put", "tcp_lat", "tcp_rate", "tcp_bw", "tcp_put"))]  # rows of `ropeway perf --against`
GROW = {"shm": [name for name in WHAT if name.startswith(("shm_1000", "shm_key", "match"))], "tcp": [name for name in WHAT if name.startswith(("tcp_1000_", "tcp_key_1000_"))]}
MANY = [name for name in WHAT if name.startswith(("tcp_10000_", "tcp_key_10000_"))]
CROWD = {"shm": "shm_64_to_1", "tcp": "tcp_64_to_1"}


def keep(rows, found, lines):
    """What one round gave, by its row and its peer (of several the best may change)."""
    for row in found:
        seen = rows.setdefault(row["name"], {"row": row, "rounds": [], "alone": []})
        if row["ours"] is not None and row["peer"] is not None:
            seen["row"] = row
            seen["rounds"].append((row["ours"], row["peer"], *lines))
        elif row["ours"] is not None:
            seen["alone"].append(row["ours"])


def table_rows(seen):
    """In the form that report.py shows."""
    row, rounds = seen["row"], seen["rounds"]
    goal = None if row["goal"] is None else Goal(row["peer_name"], row["goal"], row["better"] != "lower")
    head = {"name": WHAT.get(row["name"], row["name"]), "unit": "µs" if row["unit"] == "us" else row["unit"], "reference_name": row["peer_name"] or "-",
            "goal": goal.text() if goal else ""}
    if not rounds:
        ours = median(seen["alone"]) if seen["alone"] else None
        return [dict(head, ours=ours, reference=None, ratio=None, verdict="failed" if ours is None else "no peer")]
    return interleaved.binned(head, rounds, goal.met if goal else None)


def loan_rows(build, quick, only, priority, verbose):
    """One round: the library's own 8 B one way, then loans, from the send to the return of the view, eight views kept; and filled and read inside of the clock (no goal)."""
    def figure(*arguments):
        command = [str(build / "ropeway"), "perf", "--transport", "shm", "--measure", "lat", "--no-bare", "--json", "--duration", "0.1" if quick else "0.5", *map(str, arguments)]
        return rows_of(command, priority, verbose)["rows"][0]["latency_us"]["p50"]
    wanted = [name for name in WHAT if name.startswith("loan_") and only in name]
    own = figure("--ops", "tag", "--sizes", 8) if wanted else None
    rows = []
    for name in wanted:
        touch = ["--touch"] if "touch" in name else []
        ours = figure("--ops", "loan", "--buffers", 8, "--sizes", LOANS[name.rsplit("_", 1)[1]], *touch)
        rows.append({"name": name, "unit": "us", "ours": ours, "peer": own, "peer_name": "8 B of the same run", "goal": None if touch else 1.5, "better": "lower"})
    return rows


def rows_of(command, priority, verbose):
    """What a program that prints an array of rows found."""
    if verbose:
        print("$", " ".join(command), file=sys.stderr, flush=True)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, preexec_fn=favour if priority else None)
    try:
        return json.loads(done.stdout)
    except ValueError:
        sys.exit(f"bench: {' '.join(command)} ended with {done.returncode} and printed no figures")


def measure(build, rounds, quick, only, tell, line, priority=False, verbose=False, peers=None):
    """The rows of the table. One round of one row at a time (of grow, which connects its endpoints first, of one transport), between two looks at the line."""
    build, rows = pathlib.Path(build), {}
    perf = [str(build / "ropeway"), "perf", "--against", "ucx", "--json", "--rounds", "1", "--duration", "0.1" if quick else "0.5"] + (["--peers", peers] if peers else []) + ["--only"]
    grow = [str(build / "bench" / "grow"), "-j", "-r", "1", "-s", "0.1" if quick else "0.3"] + (["-o", only] if only else [])
    commands = [perf + [name] for name in AGAINST if only in name] + [grow + ["-t", transport] for transport, names in GROW.items() if any(only in name for name in names)]
    commands += [grow + ["-t", "tcp", "-n", "10000"]] if any(only in name for name in MANY) else []
    commands += [[str(build / "bench" / "crowd"), "-j", "-r", "1", "-s", "0.1" if quick else "0.3", "-t", transport] for transport, name in CROWD.items() if only in name]
    for number in range(1, rounds + 1):
        for command in commands:
            tell(f"round {number} of {rounds}: {command[-1]}")
            before = line()
            found = rows_of(command, priority, verbose)
            keep(rows, found, (before, line()))
        tell(f"round {number} of {rounds}: loans")
        before = line()
        keep(rows, loan_rows(build, quick, only, priority, verbose), (before, line()))
    return [row for seen in rows.values() for row in table_rows(seen)]


def verbs_groups(runner, device, seconds):
    """`runner` preloads the device into perftest; ropeway opens it by itself."""
    write, count = Iterations(MIB, seconds, 512 * MIB, 200), 20000
    return [
        Group("verbs bandwidth", {"ib_write_bw 1 MiB": lambda: write.saw(runner.perftest_bandwidth("ib_write_bw", device, 4096, MIB, write.count))},
              [Case("verbs_bw_1m", "MiB/s", lambda: runner.perf("verbs", MIB, "bw", seconds)["bytes_per_second"] / MIB, [Goal("ib_write_bw 1 MiB", 0.9)])]),
        Group("verbs latency", {"ib_send_lat 8 B": lambda: runner.perftest_latency("ib_send_lat", device, 4096, 8, count)},
              [Case("verbs_lat_8", "µs", lambda: runner.perf("verbs", 8, "lat", seconds)["latency_us"]["p50"],
                    [Goal("ib_send_lat 8 B", 1.3, at_least=False)])]),
    ]


def paired_groups(runner, seconds):
    """What `ropeway perf` measures of one build, for the same of another one (cases.against)."""
    def case(transport, operation, size, mode):
        def run():
            row = runner.perf(transport, size, mode, seconds, operation)
            if mode == "lat":
                return row["latency_us"]["p50"]
            return row["messages_per_second"] / 1e6 if size < KIB else row["bytes_per_second"] / MIB
        unit = "µs" if mode == "lat" else "M/s" if size < KIB else "MiB/s"
        return Case(f"{transport}, {operation}, {size_text(size)} {'latency' if mode == 'lat' else 'rate'}", unit, run, [])
    kinds = [(8, "lat"), (4 * KIB, "lat"), (8, "bw"), (64 * KIB, "bw"), (8 * MIB, "bw")]
    return [Group(f"{transport}, {operation}", {}, [case(transport, operation, size, mode) for size, mode in kinds])
            for transport in ("shm", "tcp", "verbs") for operation in ("tag", "put", "get")]


def measure_verbs(runner, device, rounds, quick, only, tell, line):
    groups = interleaved.chosen(verbs_groups(runner, device, 0.3 if quick else 1.0), only)
    return [dict(row, name=WHAT[row["name"]]) for row in interleaved.measure(groups, rounds, tell, line)]
