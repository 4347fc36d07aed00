# SPDX-License-Identifier: BSD-3-Clause
"""Workers and schedulers that die, as processes of their own."""

from __future__ import annotations

import os
import signal
import time

import pytest

pytest.importorskip(
    "distributed_ucxx",
    reason="distributed-ucxx is not installed: tests/python/dask/run installs it",
)

from distributed import Client, wait  # noqa: E402

import dask_patterns as patterns  # noqa: E402
from dask_processes import Scheduler, Worker  # noqa: E402

MIB = 1 << 20


def check(arrays, nbytes):
    want = None
    for seed in range(len(arrays)):
        a = patterns.array(seed, nbytes)
        want = a if want is None else want ^ a
    return want


def test_scheduler_and_workers_as_processes():
    with Scheduler() as scheduler, Worker(scheduler.address), Worker(scheduler.address):
        assert scheduler.address.startswith("ucxx://127.0.0.1:")
        with Client(scheduler.address) as client:
            client.wait_for_workers(2, timeout=60)
            a, b = client.scheduler_info()["workers"]
            made = client.submit(patterns.array, 31, 4 * MIB, workers=[a])
            assert client.submit(patterns.is_right, made, 31, 4 * MIB, workers=[b]).result(60)
            assert client.gather(client.map(lambda x: x + 1, range(200))) == list(range(1, 201))
        assert scheduler.end() in (0, -signal.SIGINT, 128 + signal.SIGINT), scheduler.log


def test_a_worker_killed_in_the_middle():
    """The job ends, and ends right: what the dead worker had is computed again."""
    with Scheduler() as scheduler:
        workers = [Worker(scheduler.address, name=f"w{i}") for i in range(3)]
        try:
            with Client(scheduler.address) as client:
                client.wait_for_workers(3, timeout=60)
                nbytes, n = 2 * MIB, 60
                made = [client.submit(patterns.slow_array, i, nbytes, pure=False) for i in range(n)]
                level = made
                while len(level) > 1:
                    level = [
                        client.submit(patterns.fold, *level[i : i + 2], pure=False)
                        if i + 1 < len(level)
                        else level[i]
                        for i in range(0, len(level), 2)
                    ]
                end = time.monotonic() + 60
                while not any(f.done() for f in made) and time.monotonic() < end:
                    time.sleep(0.02)
                workers[0].kill()
                got = level[0].result(120)
                assert (got == check(made, nbytes)).all()
                assert len(client.scheduler_info()["workers"]) == 2
        finally:
            for w in workers:
                if w.process.poll() is None:
                    w.kill()


def test_a_worker_killed_while_its_data_is_fetched():
    with Scheduler() as scheduler:
        workers = [Worker(scheduler.address, name=f"w{i}") for i in range(2)]
        try:
            with Client(scheduler.address) as client:
                client.wait_for_workers(2, timeout=60)
                info = client.scheduler_info()["workers"]
                a = next(k for k, w in info.items() if w["name"] == "w0")
                b = next(k for k, w in info.items() if w["name"] == "w1")
                nbytes = 256 * MIB
                made = client.submit(
                    patterns.array, 32, nbytes, workers=[a], allow_other_workers=True, pure=False
                )
                wait(made, timeout=60)
                right = client.submit(patterns.is_right, made, 32, nbytes, workers=[b], pure=False)
                time.sleep(0.05)
                workers[0].kill()
                assert right.result(120) is True
        finally:
            for w in workers:
                if w.process.poll() is None:
                    w.kill()


def test_a_stopped_worker_goes_on():
    with Scheduler() as scheduler, Worker(scheduler.address, name="w0") as w0:
        with Worker(scheduler.address, name="w1"), Client(scheduler.address) as client:
            client.wait_for_workers(2, timeout=60)
            made = [client.submit(patterns.slow_array, i, MIB, pure=False) for i in range(20)]
            os.kill(w0.process.pid, signal.SIGSTOP)
            time.sleep(1)
            os.kill(w0.process.pid, signal.SIGCONT)
            right = [
                client.submit(patterns.is_right, f, i, MIB, pure=False) for i, f in enumerate(made)
            ]
            assert all(client.gather(right))


def test_a_scheduler_restarted():
    """On the same port. Its worker notices the end and ends, as Dask has it; new ones do the job."""
    with Scheduler() as first:
        port, address = first.port, first.address
        with Worker(address, "--death-timeout", "60") as worker:
            with Client(address) as client:
                client.wait_for_workers(1, timeout=60)
                assert client.submit(sum, [1, 2]).result(60) == 3
            first.kill()
            with Scheduler(port=port) as second:
                assert second.address == address
                worker.process.wait(90)
                with Worker(address), Client(address) as client:
                    client.wait_for_workers(1, timeout=60)
                    made = client.submit(patterns.array, 33, MIB)
                    assert patterns.is_right(made.result(60), 33, MIB)


def test_client_to_nobody_fails_soon():
    with pytest.raises(OSError):
        Client("ucxx://127.0.0.1:1", timeout=2)
