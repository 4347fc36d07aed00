# SPDX-License-Identifier: BSD-3-Clause
"""Workers on two hosts: two network namespaces, joined by a pair of veth devices.

rwdN-a 10.78.N.1 (scheduler, worker) ----veth---- rwdN-b 10.78.N.2 (worker)
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

pytest.importorskip(
    "distributed_ucxx",
    reason="distributed-ucxx is not installed: tests/python/dask/run installs it",
)

from dask_processes import HERE, Scheduler, Worker  # noqa: E402

MIB = 1 << 20

JOB = """
import sys
import dask_patterns as patterns
from distributed import Client
with Client(sys.argv[1]) as client:
    client.wait_for_workers(2, timeout=60)
    a, b = client.scheduler_info()["workers"]
    for seed, n in enumerate((8, 1 << 20, 64 << 20)):
        made = client.submit(patterns.array, seed, n, workers=[a])
        assert client.submit(patterns.is_right, made, seed, n, workers=[b]).result(60)
        made = client.submit(patterns.array, seed + 50, n, workers=[b])
        assert client.submit(patterns.is_right, made, seed + 50, n, workers=[a]).result(60)
    for worker, paths in client.run(patterns.paths_of_worker).items():
        for peer, transport, why in paths:
            print(worker, peer.rpartition(" ")[2].rpartition(":")[0], transport, why)
print("right")
"""


def ip(*args: str) -> None:
    subprocess.run(["ip", *args], check=True, capture_output=True, text=True)


@pytest.fixture
def hosts():
    if os.geteuid() or not shutil.which("ip"):
        pytest.skip("network namespaces take root and iproute2")
    number = os.getpid() % 250 + 1
    a, b = f"rwd{number}-a", f"rwd{number}-b"
    try:
        ip("netns", "add", a)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no network namespace can be made here: {error.stderr}")
    try:
        ip("netns", "add", b)
        ip("-n", a, "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", b)
        for name, address in ((a, f"10.78.{number}.1"), (b, f"10.78.{number}.2")):
            ip("-n", name, "address", "add", f"{address}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield (a, f"10.78.{number}.1"), (b, f"10.78.{number}.2")
    finally:
        for name in (a, b):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def test_workers_on_two_hosts(hosts):
    (ns_a, a), (ns_b, b) = hosts
    env = {"UCX_NET_DEVICES": "eth0"}
    with Scheduler(host=a, netns=ns_a, env=env) as scheduler:
        assert scheduler.address.startswith(f"ucxx://{a}:")
        with (
            Worker(scheduler.address, host=a, netns=ns_a, env=env) as first,
            Worker(scheduler.address, host=b, netns=ns_b, env=env) as second,
        ):
            got = subprocess.run(
                ["ip", "netns", "exec", ns_a, sys.executable, "-c", JOB, scheduler.address],
                text=True,
                capture_output=True,
                timeout=150,
                env={**os.environ, **env, "PYTHONPATH": str(HERE)},
            )
            assert got.returncode == 0 and got.stdout.endswith("right\n"), (
                got.stdout + got.stderr + scheduler.log + first.log + second.log
            )
            lines = [line.split(None, 3) for line in got.stdout.splitlines()[:-1]]
            between = {
                t
                for worker, peer, t, _ in lines
                if (worker.startswith(f"ucxx://{a}:")) != (peer == a)
            }
            assert between and "shm" not in between, got.stdout
            print(got.stdout)


def test_the_example_says_which_path_each_pair_took(hosts):
    (ns_a, a), (ns_b, b) = hosts
    example = HERE.parents[2] / "examples" / "dask" / "two_hosts.py"
    got = subprocess.run(
        [
            "ip",
            "netns",
            "exec",
            ns_a,
            sys.executable,
            str(example),
            "--here",
            a,
            "--there",
            b,
            "--run",
            f"ip netns exec {ns_b}",
            "--mib",
            "4",
        ],
        text=True,
        capture_output=True,
        timeout=150,
        env={**os.environ, "UCX_NET_DEVICES": "eth0"},
    )
    assert got.returncode == 0, got.stdout + got.stderr
    assert "from worker here to worker there: right" in got.stdout
    assert "from worker there to worker here: right" in got.stdout
    between = [
        line
        for line in got.stdout.splitlines()
        if line.startswith(("here to there:", "there to here:"))
    ]
    assert between and all(" because " in line for line in between), got.stdout
    print(got.stdout)
