"""script/bench --loans: loaned messages beside iceoryx2, which loans memory and nothing else. Its driver is ours (bench/iceoryx2), with the crate that its Cargo.lock names: two processes on
the same cores that poll, the same sizes, as many views kept."""
import json
import os
import pathlib
import shutil
import subprocess
import sys

from cases import KIB, MIB, Case, Goal, Group, size_text
from processes import RunFailed

DRIVER = pathlib.Path(__file__).resolve().parent / "iceoryx2"
SIZES = [64, 64 * KIB, MIB, 64 * MIB]
VIEWS = 8
WINDOW_BYTES = 128 * MIB  # with two windows and the views kept it stays below loan_bytes_max
PEER = "iceoryx2 0.10.0"


def driver(build):
    """Its path, once it is built."""
    if not shutil.which("cargo"):
        sys.exit("bench: --loans needs cargo (Rust 1.89 or newer), which builds bench/iceoryx2")
    target = pathlib.Path(build) / "iceoryx2"
    done = subprocess.run(["cargo", "build", "--quiet", "--release", "--locked", "--target-dir", str(target)], cwd=DRIVER, check=False)
    if done.returncode:
        sys.exit(f"bench: cargo build ended with {done.returncode}: bench/iceoryx2 needs its crate from crates.io")
    return str(target / "release" / "ropeway-bench-iceoryx2")


def window(size):
    return max(2, min(64, WINDOW_BYTES // size))


def theirs(runner, program, what, size, seconds):
    name = f"ropeway-bench/{os.getpid()}-{runner.next_port()}"
    commands = [[program, role, name, what, str(size), str(seconds), str(VIEWS), str(window(size))] for role in ("server", "client")]
    server = runner.start(commands[0], runner.cores[1], preload=False)
    client = runner.start(commands[1], runner.cores[0], preload=False)
    try:
        text = runner.finish(client)
        runner.finish(server, 20)
        return next(iter(json.loads(text.strip().splitlines()[-1]).values()))
    except (ValueError, IndexError) as e:
        raise RunFailed(f"iceoryx2's driver printed no figure: {text.strip()}") from e
    finally:
        for process in (client, server):
            runner.end(process)


def ours(runner, what, size, seconds):
    row = runner.ropeway("perf", "--ops", "loan", "--transport", "shm", "--sizes", size, "--buffers", VIEWS, "--window", window(size), "--measure", "lat" if what == "lat" else "bw", "--no-bare",
                         seconds=seconds)["rows"][0]
    return row["latency_us"]["p50"] if what == "lat" else row["messages_per_second"]


def groups(runner, build, seconds):
    program = driver(build)

    def group(size, what):
        goal = Goal(PEER, 1.0, at_least=what == "rate")
        scale, unit = (1, "µs") if what == "lat" else (1e-6, "M/s")
        name = f"loaned, {size_text(size)}, {'one way' if what == 'lat' else 'rate'}"
        return Group(name, {PEER: lambda: scale * theirs(runner, program, what, size, seconds)}, [Case(name, unit, lambda: scale * ours(runner, what, size, seconds), [goal])])

    return [group(size, what) for size in SIZES for what in ("lat", "rate")]
