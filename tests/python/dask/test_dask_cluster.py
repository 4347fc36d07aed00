# SPDX-License-Identifier: BSD-3-Clause
"""A cluster in one line, by the unmodified distributed-ucxx."""

from __future__ import annotations

import base64
import hashlib
import threading
from importlib.metadata import distributions

import pytest

pytest.importorskip(
    "distributed_ucxx",
    reason="distributed-ucxx is not installed: tests/python/dask/run installs it",
)

from distributed import Client, LocalCluster, wait  # noqa: E402

import dask_patterns as patterns  # noqa: E402

MIB = 1 << 20


def test_distributed_ucxx_is_as_it_was_published():
    """Every file has the hash that its wheel says."""
    found = [d for d in distributions() if (d.name or "").startswith("distributed-ucxx")]
    assert len(found) == 1, "one package distributed-ucxx-* is installed"
    checked = 0
    for file in found[0].files:
        if file.hash is None or file.suffix not in (".py", ".yaml"):
            continue
        digest = hashlib.new(file.hash.mode, file.locate().read_bytes()).digest()
        assert base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == file.hash.value, file
        checked += 1
    assert checked >= 4


def test_ucxx_is_ropeway_s():
    import ucxx

    assert ucxx._home.Home.__module__ == "ucxx._home"


@pytest.mark.parametrize("protocol", ["ucx", "ucxx"])
@pytest.mark.parametrize("processes", [True, False], ids=["processes", "threads"])
def test_local_cluster(protocol, processes):
    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=processes,
            protocol=protocol,
            host="127.0.0.1",
            dashboard_address=None,
        ) as cluster,
        Client(cluster) as client,
    ):
        assert cluster.scheduler_address.startswith(f"{protocol}://")
        assert client.submit(sum, [1, 2, 4]).result(60) == 7
        a, b = client.scheduler_info()["workers"]
        assert a.startswith(f"{protocol}://") and b.startswith(f"{protocol}://")
        made = client.submit(patterns.array, 11, 8 * MIB, workers=[a], pure=False)
        right = client.submit(patterns.is_right, made, 11, 8 * MIB, workers=[b], pure=False)
        assert right.result(60) is True
        squares = client.map(lambda x: x * x, range(300))
        assert client.gather(squares) == [x * x for x in range(300)]


def test_workers_of_one_host_use_shared_memory():
    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            protocol="ucxx",
            host="127.0.0.1",
            dashboard_address=None,
        ) as cluster,
        Client(cluster) as client,
    ):
        a, b = client.scheduler_info()["workers"]
        made = client.submit(patterns.array, 12, MIB, workers=[a], pure=False)
        assert client.submit(patterns.is_right, made, 12, MIB, workers=[b], pure=False).result(60)
        for worker, paths in client.run(patterns.paths_of_worker).items():
            assert paths, f"{worker} has no connection"
            for peer, transport, why in paths:
                assert transport == "shm", f"{worker} to {peer} by {transport}: {why}"


def test_by_tcp_where_only_tcp_is_allowed(monkeypatch):
    monkeypatch.setenv("UCX_TLS", "tcp")
    with LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        protocol="ucxx",
        host="127.0.0.1",
        dashboard_address=None,
    ) as cluster:
        code = (
            "import sys, dask_patterns as patterns\n"
            "from distributed import Client\n"
            "with Client(sys.argv[1]) as client:\n"
            "    a, b = client.scheduler_info()['workers']\n"
            "    made = client.submit(patterns.array, 13, 1 << 20, workers=[a])\n"
            "    right = client.submit(patterns.is_right, made, 13, 1 << 20, workers=[b])\n"
            "    assert right.result(60)\n"
            "    for paths in client.run(patterns.paths_of_worker).values():\n"
            "        assert paths and all(t == 'tcp' for _, t, _ in paths), paths\n"
            "print('right')\n"
        )
        import subprocess
        import sys
        from dask_processes import HERE
        import os

        got = subprocess.run(
            [sys.executable, "-c", code, cluster.scheduler_address],
            text=True,
            timeout=120,
            capture_output=True,
            env={**os.environ, "PYTHONPATH": str(HERE)},
        )
        assert got.returncode == 0 and got.stdout == "right\n", got.stdout + got.stderr


def test_several_loops_in_a_process():
    """Three clients in threads of their own, each with a loop, beside the cluster's own loop."""
    wrong = []

    def use(address, seed):
        try:
            with Client(address, set_as_default=False) as client:
                for i in range(3):
                    data = patterns.array(seed + i, MIB)
                    [sent] = client.scatter([data], hash=False)
                    back = sent.result(60)
                    if not patterns.is_right(back, seed + i, MIB):
                        wrong.append(f"{seed + i}: other bytes")
        except Exception as error:
            wrong.append(f"{seed}: {error!r}")

    with LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=False,
        protocol="ucxx",
        host="127.0.0.1",
        dashboard_address=None,
    ) as cluster:
        threads = [
            threading.Thread(target=use, args=(cluster.scheduler_address, 100 * k))
            for k in (1, 2, 3)
        ]
        for t in threads:
            t.start()
        for t in threads:
            t.join(120)
            assert not t.is_alive(), "a client did not end in 120 s"
    assert not wrong


def test_clusters_one_after_the_other():
    for i in range(3):
        with (
            LocalCluster(
                n_workers=1,
                threads_per_worker=1,
                processes=False,
                protocol="ucxx",
                host="127.0.0.1",
                dashboard_address=None,
            ) as cluster,
            Client(cluster) as client,
        ):
            assert client.submit(lambda i=i: i + 1, pure=False).result(60) == i + 1


def test_an_error_of_a_task_comes_back():
    with (
        LocalCluster(
            n_workers=1,
            threads_per_worker=1,
            processes=False,
            protocol="ucxx",
            host="127.0.0.1",
            dashboard_address=None,
        ) as cluster,
        Client(cluster) as client,
    ):
        future = client.submit(lambda: 1 / 0)
        wait(future, timeout=60)
        with pytest.raises(ZeroDivisionError):
            future.result(60)
