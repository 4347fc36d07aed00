#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A Dask cluster over two hosts, by ucxx on ropeway, that says which path each pair took.

    two_hosts.py --here 10.0.0.1 --there 10.0.0.2 --run "ssh 10.0.0.2"

A scheduler, a worker and a client run here; --run is what starts a command on the other host, where
a second worker runs. An array goes from each worker to the other and is verified. Then each process
says of each of its connections which transport carries it and why (Endpoint.info).

Both hosts need: ropeway, ropeway-ucxx, dask, distributed, and distributed-ucxx-cu12 without its
dependencies (pip install --no-deps). No GPU, no CUDA. With --protocol tcp the same job runs over
Dask's own sockets.
"""

from __future__ import annotations

import argparse
import itertools
import shlex
import subprocess
import sys

SECONDS = 60


def paths(dask_worker=None, dask_scheduler=None):
    """The connections that this worker, or scheduler, has made: (address, transport, why)."""
    server = dask_worker or dask_scheduler
    pools = (server.rpc.available, server.rpc.occupied)
    found = []
    for address, comms in itertools.chain.from_iterable(pool.items() for pool in pools):
        for comm in comms:
            endpoint = getattr(comm, "_ep", None)
            if endpoint is not None and endpoint.alive:
                info = endpoint.info()
                found.append((address, info.transport, info.path, info.why))
    return sorted(set(found))


def make(seed, n):
    import numpy

    return numpy.random.default_rng(seed).integers(0, 1 << 62, n)


def is_right(array, seed, n):
    return bool((array == make(seed, n)).all())


def start(command, *, before=()):
    return subprocess.Popen(
        [*before, *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1
    )


def line_with(process, text):
    """Reads the output up to a line that has `text`; gives its last word."""
    for line in process.stdout:
        if text in line:
            return line.split()[-1]
    raise SystemExit(f"{' '.join(process.args)}: it ended before it said '{text}'")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--here", required=True, help="address of this host")
    parser.add_argument("--there", required=True, help="address of the other one")
    parser.add_argument("--run", required=True, help="what starts a command there: 'ssh HOST'")
    parser.add_argument("--python", default=sys.executable, help="Python on the other host")
    parser.add_argument("--protocol", default="ucxx", choices=["ucxx", "ucx", "tcp"])
    parser.add_argument("--mib", type=int, default=64, help="size of the array, default 64")
    options = parser.parse_args()
    from distributed import Client

    processes = []
    try:
        scheduler = start(
            [
                sys.executable,
                "-m",
                "distributed.cli.dask_scheduler",
                "--no-dashboard",
                "--port",
                "0",
                "--protocol",
                options.protocol,
                "--host",
                options.here,
            ]
        )
        processes.append(scheduler)
        address = line_with(scheduler, "Scheduler at:")
        print(f"scheduler at {address}", flush=True)

        worker = [
            "-m",
            "distributed.cli.dask_worker",
            address,
            "--no-dashboard",
            "--no-nanny",
            "--nthreads",
            "1",
            "--death-timeout",
            "30",
            "--protocol",
            options.protocol,
            "--host",
        ]
        processes.append(start([sys.executable, *worker, options.here, "--name", "here"]))
        processes.append(
            start(
                [options.python, *worker, options.there, "--name", "there"],
                before=shlex.split(options.run),
            )
        )
        with Client(address, timeout=SECONDS) as client:
            client.wait_for_workers(2, timeout=SECONDS)
            names = {a: w["name"] for a, w in client.scheduler_info()["workers"].items()}
            n = options.mib << 17
            for seed, (a, b) in enumerate(itertools.permutations(names, 2)):
                array = client.submit(make, seed, n, workers=[a], pure=False)
                right = client.submit(is_right, array, seed, n, workers=[b], pure=False)
                if not right.result(SECONDS):
                    print(f"{names[a]} to {names[b]}: other bytes came than went")
                    return 1
                print(f"{options.mib} MiB from worker {names[a]} to worker {names[b]}: right")
            names[address] = "scheduler"
            of = client.run(paths)
            of[address] = client.run_on_scheduler(paths)
            for who, connections in of.items():
                for whom, transport, path, why in connections:
                    print(
                        f"{names[who]} to {names.get(whom, whom)}: {transport} ({path}), "
                        f"because {why}"
                    )
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
