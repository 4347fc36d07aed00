"""script/bench --msg: the messaging library beside UCX and libfabric, as `ropeway perf --against ucx` measures them: both on the same two cores, in turn."""
import json
import pathlib
import subprocess
import sys

import report

GOAL_SIGN = {"lower": "≤", "higher": "≥"}
WHAT = {
    "shm_lat_8": "shared memory, 8 B latency", "shm_rate_8": "shared memory, 8 B rate", "shm_bw_64k": "shared memory, 64 KiB bandwidth",
    "shm_bw_8m": "shared memory, 8 MiB bandwidth", "shm_put_8m": "shared memory, 8 MiB put", "tcp_lat_8": "TCP, 8 B latency", "tcp_lat_4k": "TCP, 4 KiB latency",
    "tcp_rate_8": "TCP, 8 B rate", "tcp_bw_64k": "TCP, 64 KiB bandwidth", "tcp_bw_8m": "TCP, 8 MiB bandwidth", "tcp_put_8m": "TCP, 8 MiB put",
    "bare_cache_line": "a cache line between the two cores", "bare_tcp_8": "TCP polled by both sides, 8 B", "bare_tcp_4k": "TCP polled by both sides, 4 KiB",
}


def verdict(row):
    if row["goal"] is None:
        return ""
    if row["ratio"] is None:
        return "failed" if row["ours"] is None else "no peer"
    return "pass" if (row["ratio"] <= row["goal"] if row["better"] == "lower" else row["ratio"] >= row["goal"]) else "short"


def table_row(row):
    """In the form that report.py shows."""
    goal = "" if row["goal"] is None else f"{GOAL_SIGN[row['better']]} {row['goal']:g}"
    return {"name": WHAT.get(row["name"], row["name"]), "ours": row["ours"], "unit": "µs" if row["unit"] == "us" else row["unit"], "reference_name": row["peer_name"] or "-",
            "reference": row["peer"], "ratio": row["ratio"], "goal": goal, "verdict": verdict(row)}


def measure(build, rounds, quick, only, verbose=False):
    """The rows of the table; the command's own output is JSON."""
    command = [str(pathlib.Path(build) / "ropeway"), "perf", "--against", "ucx", "--json", "--rounds", str(rounds), "--duration", "0.1" if quick else "0.5"]
    if only:
        command += ["--only", only]
    if verbose:
        print("$", " ".join(command), file=sys.stderr, flush=True)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    try:
        rows = json.loads(done.stdout)
    except ValueError:
        sys.exit(f"bench: {' '.join(command)} ended with {done.returncode} and printed no figures")
    return [table_row(row) for row in rows]


def write_readme(path, rows, machine):
    return report.write_between(path, report.MSG_BEGIN, report.MSG_END, f"{report.markdown_table(rows)}\n\n{report.machine_text(machine)}")
