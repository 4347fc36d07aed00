# SPDX-License-Identifier: BSD-3-Clause
"""Dask on ucxx: what these tests share.

Listeners bind the loopback (UCX_NET_DEVICES=lo), but in namespaces of their own. A test ends in 120 s
or fails. Every array is made from a seed, so that whoever has it can be checked by whoever has not.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

os.environ.setdefault("UCX_NET_DEVICES", "lo")
os.environ.setdefault("UCXPY_IFNAME", "lo")
os.environ["DASK_DISTRIBUTED__ADMIN__TICK__LIMIT"] = "60s"  # warnings of a slow machine are no fault

pytest.importorskip("distributed", reason="Dask is not installed: tests/python/dask/run installs it")
pytest.importorskip("distributed_ucxx", reason="distributed-ucxx is not installed: see tests/python/dask/run")


def pytest_collection_modifyitems(items):
    for item in items:
        if "dask" in item.path.parts and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(180))


@pytest.fixture(autouse=True)
def _nothing_left():
    """Sockets and threads of Dask's are gone when its test is."""
    yield
    import gc

    gc.collect()
