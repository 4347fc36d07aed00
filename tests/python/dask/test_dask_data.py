# SPDX-License-Identifier: BSD-3-Clause
"""Large data: scattered, spilled, shuffled, multiplied; and verified where it has come to."""

from __future__ import annotations

import os

import numpy as np
import pytest

pytest.importorskip(
    "distributed_ucxx",
    reason="distributed-ucxx is not installed: tests/python/dask/run installs it",
)

from distributed import Client, LocalCluster, wait  # noqa: E402

import dask_patterns as patterns  # noqa: E402

MIB = 1 << 20


@pytest.fixture
def cluster():
    with LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        protocol="ucxx",
        host="127.0.0.1",
        dashboard_address=None,
        memory_limit=0,
    ) as cluster:
        yield cluster


@pytest.fixture
def client(cluster):
    with Client(cluster) as client:
        yield client


@pytest.mark.parametrize(
    "nbytes", [256 * MIB, pytest.param(1024 * MIB, marks=pytest.mark.long)], ids=["256MiB", "1GiB"]
)
def test_scatter(client, nbytes):
    a, b = client.scheduler_info()["workers"]
    data = patterns.array(21, nbytes)
    future = client.scatter(data, workers=[a], direct=True, hash=False)
    del data
    assert client.submit(patterns.is_right, future, 21, nbytes, workers=[a], pure=False).result(120)
    assert client.submit(patterns.is_right, future, 21, nbytes, workers=[b], pure=False).result(120)
    assert patterns.is_right(future.result(120), 21, nbytes)


@pytest.mark.parametrize("nbytes", [0, 8, 4096, 64 * 1024, MIB, 64 * MIB, 64 * MIB + 8])
def test_from_worker_to_worker(client, nbytes):
    a, b = client.scheduler_info()["workers"]
    made = client.submit(patterns.array, 22, nbytes, workers=[a], pure=False)
    assert client.submit(patterns.is_right, made, 22, nbytes, workers=[b], pure=False).result(120)


def test_many_arrays_between_two_workers(client):
    a, b = client.scheduler_info()["workers"]
    sizes = [8 * (1 + (seed * 7919) % 50_000) for seed in range(120)]
    made = [client.submit(patterns.array, i, n, workers=[a]) for i, n in enumerate(sizes)]
    right = [
        client.submit(patterns.is_right, f, i, n, workers=[b])
        for i, (f, n) in enumerate(zip(made, sizes))
    ]
    assert all(client.gather(right))


def test_by_several_buffers_in_one_posting(monkeypatch):
    monkeypatch.setenv("DASK_DISTRIBUTED_UCXX__MULTI_BUFFER", "true")
    import subprocess
    import sys

    code = (
        "import dask_patterns as patterns\n"
        "from distributed import Client, LocalCluster\n"
        "if __name__ == '__main__':\n"
        "    with LocalCluster(n_workers=2, threads_per_worker=1, protocol='ucxx',\n"
        "            host='127.0.0.1', dashboard_address=None) as cluster, \\\n"
        "            Client(cluster) as client:\n"
        "        a, b = client.scheduler_info()['workers']\n"
        "        for seed, n in enumerate((8, 8192, 1 << 20, 200 << 20)):\n"
        "            made = client.submit(patterns.array, seed, n, workers=[a])\n"
        "            right = client.submit(patterns.is_right, made, seed, n, workers=[b])\n"
        "            assert right.result(60)\n"
        "        multi = client.run(lambda: __import__('distributed_ucxx').ucxx.multi_buffer)\n"
        "        assert set(multi.values()) == {True}, multi\n"
        "        print('right')\n"
    )
    from dask_processes import HERE

    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        script = os.path.join(folder, "multi.py")
        with open(script, "w") as f:
            f.write(code)
        got = subprocess.run(
            [sys.executable, script],
            text=True,
            timeout=150,
            capture_output=True,
            env={**os.environ, "PYTHONPATH": str(HERE)},
        )
    assert got.returncode == 0 and got.stdout == "right\n", got.stdout + got.stderr


def test_spilling(tmp_path):
    """Workers that have too little memory write to disk, and what they read back is right."""
    nbytes = 16 * MIB
    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            protocol="ucxx",
            host="127.0.0.1",
            dashboard_address=None,
            memory_limit="600MiB",
            local_directory=str(tmp_path),
        ) as cluster,
        Client(cluster) as client,
    ):
        a, b = client.scheduler_info()["workers"]
        made = [
            client.submit(patterns.array, seed, nbytes, workers=[a], pure=False)
            for seed in range(40)
        ]
        wait(made, timeout=120)
        spilled = client.run(lambda dask_worker: len(dask_worker.data.slow), workers=[a])[a]
        assert spilled > 0, "nothing was spilled"
        right = [
            client.submit(patterns.is_right, f, seed, nbytes, workers=[b], pure=False)
            for seed, f in enumerate(made)
        ]
        assert all(client.gather(right))
        print(f"{spilled} of {len(made)} arrays were on disk")


def test_shuffle(client):
    pd = pytest.importorskip("pandas", reason="a shuffle of data frames needs pandas")
    pytest.importorskip("pyarrow", reason="a shuffle of data frames needs pyarrow")
    dd = pytest.importorskip("dask.dataframe", reason="dask.dataframe is not installed")
    rng = np.random.default_rng(23)
    n = 200_000
    frame = pd.DataFrame(
        {"key": rng.integers(0, 997, n), "value": rng.random(n), "at": np.arange(n)}
    )
    parts = dd.from_pandas(frame, npartitions=16)
    shuffled = parts.shuffle("key", shuffle_method="p2p").persist()
    wait(shuffled, timeout=120)
    keys = client.gather(
        client.compute(
            shuffled.map_partitions(
                lambda p: pd.Series([frozenset(p["key"])]), meta=("k", object)
            ).to_delayed()
        )
    )
    seen: set = set()
    for of_part in keys:
        of_part = of_part.iloc[0]
        assert not seen & of_part, "a key is in two partitions"
        seen |= of_part
    got = shuffled.compute().sort_values("at").reset_index(drop=True)
    pd.testing.assert_frame_equal(got[list(frame.columns)], frame, check_dtype=False)


def test_matrix_product(client):
    da = pytest.importorskip("dask.array", reason="dask.array is not installed")
    rng = np.random.default_rng(24)
    a, b = rng.integers(-50, 50, (1200, 900)), rng.integers(-50, 50, (900, 1100))
    got = (da.from_array(a, chunks=(300, 300)) @ da.from_array(b, chunks=(300, 275))).compute()
    assert np.array_equal(got, a @ b)


def test_transpose_of_many_chunks(client):
    da = pytest.importorskip("dask.array", reason="dask.array is not installed")
    rng = np.random.default_rng(25)
    a = rng.integers(0, 1 << 40, (2000, 2000))
    x = da.from_array(a, chunks=(250, 250))
    got = (x + x.T).rechunk((2000, 125)).compute()
    assert np.array_equal(got, a + a.T)
