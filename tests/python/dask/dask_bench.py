#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""dask_bench.py [--rounds N] [--gib N] [--protocols tcp,ucxx]: Dask by tcp:// and by ucxx://.

Both clusters run at the same time, and take turns, step by step. Printed are the time of each step
(median of the rounds) and the median of the ratios of paired rounds. A ratio above 1 says that the
second protocol is faster. Outside of what is timed, payloads are verified and memory is touched,
so that each step finds memory that the kernel need not fetch from a host of its own.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
os.environ.setdefault("UCX_NET_DEVICES", "lo")

import dask_patterns as patterns  # noqa: E402

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


def length_of(array) -> int:
    return array.nbytes


class Side:
    def __init__(self, protocol: str) -> None:
        from distributed import Client, LocalCluster

        self.protocol = protocol
        self.cluster = LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            protocol=protocol,
            host="127.0.0.1",
            dashboard_address=None,
            memory_limit=0,
        )
        self.client = Client(self.cluster, set_as_default=False)
        self.a, self.b = self.client.scheduler_info()["workers"]

    def close(self) -> None:
        self.client.close()
        self.cluster.close()

    def settle(self, futures: list) -> None:
        from distributed import wait

        with self.client.as_current():
            wait(futures, timeout=300)

    def warm(self, nbytes: int) -> None:
        """Every step finds the same: memory for twice its array that has been used before."""
        if nbytes >= 64 * MIB:
            self.client.submit(
                patterns.warm, int(2.25 * nbytes), workers=[self.b], pure=False
            ).result(300)

    def move(self, seed: int, nbytes: int, n: int = 1) -> float:
        """n arrays from worker a to worker b."""
        c = self.client
        made = [
            c.submit(patterns.array, seed + i, nbytes, workers=[self.a], pure=False)
            for i in range(n)
        ]
        self.settle(made)
        self.warm(nbytes * n)
        begin = time.perf_counter()
        got = [c.submit(length_of, f, workers=[self.b], pure=False) for f in made]
        assert c.gather(got) == [nbytes] * n
        took = time.perf_counter() - begin
        right = [
            c.submit(patterns.is_right, f, seed + i, nbytes, workers=[self.b], pure=False)
            for i, f in enumerate(made)
        ]
        assert all(c.gather(right))
        return took

    def scatter(self, seed: int, nbytes: int) -> float:
        data = patterns.array(seed, nbytes)
        self.warm(nbytes)
        begin = time.perf_counter()
        f = self.client.scatter(data, workers=[self.a], direct=True, hash=False)
        took = time.perf_counter() - begin
        del data
        right = self.client.submit(patterns.is_right, f, seed, nbytes, workers=[self.a], pure=False)
        assert right.result(300)
        return took

    def fetch(self, seed: int, nbytes: int) -> float:
        f = self.client.submit(patterns.array, seed, nbytes, workers=[self.a], pure=False)
        self.settle([f])
        self.warm(nbytes)
        begin = time.perf_counter()
        [got] = self.client.gather([f], direct=True)
        took = time.perf_counter() - begin
        assert patterns.is_right(got, seed, nbytes)
        return took

    def tasks(self, n: int) -> float:
        begin = time.perf_counter()
        got = self.client.gather(self.client.map(lambda x: x + 1, range(n), pure=False))
        took = time.perf_counter() - begin
        assert got == list(range(1, n + 1))
        return took

    def product(self, n: int) -> float:
        import dask.array as da
        import numpy as np

        rng = np.random.default_rng(n)
        a, b = rng.integers(-9, 9, (n, n)).astype("f8"), rng.integers(-9, 9, (n, n)).astype("f8")
        x = da.from_array(a, chunks=(n // 4, n // 4)) @ da.from_array(b, chunks=(n // 4, n // 4))
        begin = time.perf_counter()
        got = self.client.compute(x).result(300)
        took = time.perf_counter() - begin
        assert np.array_equal(got, a @ b)
        return took

    def shuffle(self, n: int) -> float:
        import dask.dataframe as dd
        import numpy as np
        import pandas as pd

        rng = np.random.default_rng(n)
        frame = pd.DataFrame({"key": rng.integers(0, 997, n), "at": np.arange(n)})
        parts = dd.from_pandas(frame, npartitions=12).shuffle("key", shuffle_method="p2p")
        begin = time.perf_counter()
        got = self.client.compute(parts).result(300)
        took = time.perf_counter() - begin
        assert got["at"].sort_values().reset_index(drop=True).equals(frame["at"])
        return took


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--gib", type=float, default=1.0, help="of a large array")
    parser.add_argument("--protocols", default="tcp,ucxx")
    parser.add_argument("--only", default="", help="steps with this in their name")
    options = parser.parse_args()
    large = int(options.gib * GIB) // 8 * 8
    first, second = options.protocols.split(",")
    steps = {
        f"worker to worker, {options.gib:g} GiB": lambda s, r: s.move(100 + r, large),
        f"client to worker, {options.gib:g} GiB": lambda s, r: s.scatter(200 + r, large),
        f"worker to client, {options.gib:g} GiB": lambda s, r: s.fetch(300 + r, large),
        "worker to worker, 64 MiB": lambda s, r: s.move(400 + r, 64 * MIB),
        "worker to worker, 40 x 1 MiB": lambda s, r: s.move(500 + 50 * r, MIB, 40),
        "worker to worker, 100 x 1 KiB": lambda s, r: s.move(900 + 100 * r, KIB, 100),
        "500 small tasks": lambda s, r: s.tasks(500),
        "shuffle of 1 M rows": lambda s, r: s.shuffle(1_000_000 + r),
        "matrix product, 2000 x 2000": lambda s, r: s.product(2000),
    }
    steps = {k: v for k, v in steps.items() if options.only in k}
    took: dict[str, dict[str, list[float]]] = {k: {first: [], second: []} for k in steps}
    sides = [Side(first), Side(second)]
    try:
        for r in range(-1, options.rounds):
            for name, step in steps.items():
                for side in sides if r % 2 else reversed(sides):
                    t = step(side, r + 1)
                    if r >= 0:
                        took[name][side.protocol].append(t)
            print(
                f"round {r + 1} of {options.rounds} (0: not counted)", file=sys.stderr, flush=True
            )
    finally:
        for side in sides:
            side.close()
    print(f"{'step':34} {first + ', s':>10} {second + ', s':>10} {'ratio':>8}  lowest to highest")
    for name, of in took.items():
        ratios = [a / b for a, b in zip(of[first], of[second])]
        print(
            f"{name:34} {statistics.median(of[first]):10.4f} {statistics.median(of[second]):10.4f} "
            f"{statistics.median(ratios):8.2f}  {min(ratios):.2f} to {max(ratios):.2f}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
