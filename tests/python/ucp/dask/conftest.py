# SPDX-License-Identifier: BSD-3-Clause
"""Dask of the years when it had UCX in itself (`distributed.comm.ucx` imports ucp).

The helpers are those of tests/python/dask. `tests/python/ucp/dask/run` installs these versions,
each in an environment of its own, and runs what is here in each."""

import gc
import os
import sys
from pathlib import Path

import pytest

for _folder in (Path(__file__).parents[2] / "dask", Path(__file__).parent):
    sys.path.insert(0, str(_folder))
os.environ["DASK_DISTRIBUTED__ADMIN__TICK__LIMIT"] = "60s"  # a slow machine is no fault


def why_not():
    """None: Dask is there, and has UCX in itself."""
    try:
        import distributed.comm.ucx as ucx
    except ImportError as error:
        return f"no Dask with UCX in itself ({error}): tests/python/ucp/dask/run installs it"
    return None if hasattr(ucx, "init_once") else "this Dask is newer: see tests/python/dask"


WHY_NOT = why_not()
collect_ignore_glob = ["test_*.py"] if WHY_NOT else []


def pytest_report_header(config):
    if WHY_NOT:
        return f"SKIPPED tests/python/ucp/dask: {WHY_NOT}"
    import distributed

    return f"distributed {distributed.__version__}"


@pytest.fixture(autouse=True, params=["shm", "tcp"])
def transport(request, monkeypatch):
    """Dask initiates ucp once in a process: each test has it anew, with its transport."""
    import distributed.comm.ucx
    import ucp

    monkeypatch.setenv("ROPEWAY_TRANSPORT", request.param)
    ucp.reset()
    distributed.comm.ucx.ucp = None
    yield request.param
    gc.collect()
    try:
        ucp.reset()
    except RuntimeError as error:
        print(error)  # what a cluster of Dask's leaves goes with its loop
    distributed.comm.ucx.ucp = None
