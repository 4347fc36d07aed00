# SPDX-License-Identifier: BSD-3-Clause
"""Dask 2022.12 and 2025.7 by ucx://, on ucp."""

import asyncio
import os
import signal
import threading
import time

import dask.array as da
import numpy as np
import pytest
from dask_patterns import array, fold, is_right, slow_array
from dask_processes import Scheduler, Worker
from dask_ucp_paths import paths
from distributed import Client, LocalCluster, wait
from distributed import Scheduler as SchedulerHere
from distributed import Worker as WorkerHere

MIB = 1 << 20
pytestmark = pytest.mark.timeout(280)


def local(**more):
    options = dict(
        n_workers=2, threads_per_worker=1, protocol="ucx", host="127.0.0.1", dashboard_address=None
    )
    return LocalCluster(**{**options, **more})


@pytest.fixture
def client():
    with local(memory_limit=0) as cluster, Client(cluster) as client:
        yield client


@pytest.mark.parametrize("processes", [True, False])
def test_local_cluster(processes, transport):
    with local(processes=processes) as cluster, Client(cluster) as client:
        assert cluster.scheduler_address.startswith("ucx://127.0.0.1:")
        a, b = client.scheduler_info()["workers"]
        assert a.startswith("ucx://") and b.startswith("ucx://")
        for seed, size in enumerate((8, 4096, MIB, 32 * MIB)):
            made = client.submit(array, seed, size, workers=[a], pure=False)
            right = client.submit(is_right, made, seed, size, workers=[b], pure=False)
            assert right.result(60) is True
        assert client.gather(client.map(lambda x: x * x, range(300))) == [x * x for x in range(300)]
        if processes:
            assert set(map(tuple, client.run(paths).values())) == {(transport,)}


@pytest.mark.parametrize("size", [256 * MIB, pytest.param(1024 * MIB, marks=pytest.mark.long)])
def test_scatter(client, size):
    a, b = client.scheduler_info()["workers"]
    data = array(21, size)
    there = client.scatter(data, workers=[a], direct=True, hash=False)
    del data
    for worker in (a, b):
        right = client.submit(is_right, there, 21, size, workers=[worker], pure=False)
        assert right.result(120) is True
    assert is_right(there.result(120), 21, size)


def test_a_shuffle(client):
    pd = pytest.importorskip("pandas")
    dd = pytest.importorskip("dask.dataframe")
    n = 200_000
    rng = np.random.default_rng(5)
    frame = pd.DataFrame({"key": rng.integers(0, 997, n), "at": np.arange(n)})
    parts = dd.from_pandas(frame, npartitions=12)
    try:
        shuffled = parts.shuffle("key", shuffle_method="tasks")
    except TypeError:
        shuffled = parts.shuffle("key", shuffle="tasks")
    # Each key is in one part, and nothing is lost.
    keys = [set(part["key"]) for part in map(client.gather, client.compute(shuffled.to_delayed()))]
    assert sum(map(len, keys)) == len(set().union(*keys)) == frame["key"].nunique()
    got = client.compute(shuffled).result(120).sort_values("at").reset_index(drop=True)
    assert got["at"].equals(frame["at"]) and got["key"].equals(frame["key"])


def test_a_matrix_product(client):
    n = 1200
    rng = np.random.default_rng(6)
    a, b = (rng.integers(-9, 9, (n, n)).astype("f8") for _ in range(2))
    product = da.from_array(a, chunks=(300, 300)) @ da.from_array(b, chunks=(300, 300))
    assert np.array_equal(client.compute(product).result(120), a @ b)


def test_spilling(tmp_path):
    """Twice as much data as the workers may keep in memory; all of it is right afterwards."""
    n, size = 24, 16 * MIB
    with (
        local(processes=True, memory_limit="400 MiB", local_directory=str(tmp_path)) as cluster,
        Client(cluster) as client,
    ):
        made = [client.submit(array, seed, size, pure=False) for seed in range(n)]
        wait(made, timeout=120)
        spilled = client.run(lambda dask_worker: len(getattr(dask_worker.data, "slow", ())))
        right = [client.submit(is_right, f, seed, size, pure=False) for seed, f in enumerate(made)]
        assert all(client.gather(right))
        print("spilled:", spilled)


def test_loops_of_one_process_at_the_same_time():
    """Two clusters, each with a loop in a thread of its own, and their clients."""
    with local(processes=False) as one, local(processes=False) as two:
        with Client(one, set_as_default=False) as a, Client(two, set_as_default=False) as b:
            assert one.loop is not two.loop
            for client in (a, b, a, b):
                made = client.submit(array, 3, MIB, pure=False)
                assert is_right(made.result(60), 3, MIB)

            failures = []

            def work(client, seed):
                try:
                    for n in range(20):
                        assert is_right(
                            client.submit(array, seed + n, MIB, pure=False).result(60),
                            seed + n,
                            MIB,
                        )
                except BaseException as error:
                    failures.append(error)

            threads = [threading.Thread(target=work, args=x) for x in ((a, 100), (b, 200))]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(120)
            assert not failures


def test_loops_of_one_process_one_after_the_other():
    async def main(seed):
        async with SchedulerHere(protocol="ucx", host="127.0.0.1", dashboard_address=":0") as s:
            async with (
                WorkerHere(s.address, host="127.0.0.1"),
                WorkerHere(s.address, host="127.0.0.1"),
            ):
                async with Client(s.address, asynchronous=True) as client:
                    made = client.submit(array, seed, MIB, pure=False)
                    assert is_right(await made, seed, MIB)

    for seed in range(3):
        asyncio.run(asyncio.wait_for(main(seed), 60))


def test_programs_of_the_command_line():
    with Scheduler("ucx") as scheduler, Worker(scheduler.address), Worker(scheduler.address):
        assert scheduler.address.startswith("ucx://127.0.0.1:")
        with Client(scheduler.address) as client:
            client.wait_for_workers(2)
            a, b = client.scheduler_info()["workers"]
            made = client.submit(array, 31, 4 * MIB, workers=[a])
            assert client.submit(is_right, made, 31, 4 * MIB, workers=[b]).result(60)
            assert client.gather(client.map(lambda x: x + 1, range(200))) == list(range(1, 201))
        assert scheduler.end() in (0, -signal.SIGINT, 128 + signal.SIGINT), scheduler.log


def tree(client, n, size):
    """A fold of n slow arrays."""
    made = [client.submit(slow_array, seed, size, pure=False) for seed in range(n)]
    level = made
    while len(level) > 1:
        level = [
            client.submit(fold, *level[i : i + 2], pure=False) if i + 1 < len(level) else level[i]
            for i in range(0, len(level), 2)
        ]
    return made, level[0]


def test_a_worker_killed_in_the_middle():
    with Scheduler("ucx") as scheduler:
        workers = [Worker(scheduler.address, name=f"w{n}") for n in range(3)]
        try:
            with Client(scheduler.address) as client:
                client.wait_for_workers(3)
                made, last = tree(client, 60, 2 * MIB)
                end = time.monotonic() + 60
                while not any(f.done() for f in made) and time.monotonic() < end:
                    time.sleep(0.02)
                workers[0].kill()
                want = array(0, 2 * MIB)
                for seed in range(1, 60):
                    want ^= array(seed, 2 * MIB)
                assert np.array_equal(last.result(120), want)
        finally:
            for worker in workers:
                worker.__exit__()


def test_a_worker_killed_while_its_data_is_fetched():
    size = 256 * MIB
    with Scheduler("ucx") as scheduler:
        workers = [Worker(scheduler.address, name=f"w{n}") for n in range(2)]
        try:
            with Client(scheduler.address) as client:
                client.wait_for_workers(2)
                info = client.scheduler_info()["workers"]
                a, b = (next(k for k, w in info.items() if w["name"] == n) for n in ("w0", "w1"))
                made = client.submit(
                    array, 32, size, workers=[a], allow_other_workers=True, pure=False
                )
                wait(made, timeout=60)
                right = client.submit(is_right, made, 32, size, workers=[b], pure=False)
                time.sleep(0.05)
                workers[0].kill()
                assert right.result(120) is True
        finally:
            for worker in workers:
                worker.__exit__()


def test_a_worker_that_its_nanny_starts_again(client):
    """LocalCluster's nannies: os._exit in a task, and the next task finds a worker."""

    def end_once(path):
        if not os.path.exists(path):
            open(path, "w").close()
            os._exit(1)
        return "again"

    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        assert client.submit(end_once, f"{folder}/mark", retries=3).result(120) == "again"
    assert client.submit(sum, [1, 2, 3]).result(60) == 6


def test_a_scheduler_restarted():
    first = Scheduler("ucx")
    with first:
        address = first.address
        with Worker(address), Client(address) as client:
            assert client.submit(sum, [1, 2]).result(60) == 3
        first.kill()
    with Scheduler("ucx", port=int(address.rpartition(":")[2])) as again:
        assert again.address == address
        with Worker(address), Client(address) as client:
            client.wait_for_workers(1)
            made = client.submit(array, 33, MIB)
            assert is_right(made.result(60), 33, MIB)


def test_nobody_there():
    with pytest.raises(OSError):
        Client("ucx://127.0.0.1:1", timeout=3)
