# SPDX-License-Identifier: BSD-3-Clause
"""Dask on ucxx: what these tests share.

Listeners bind the loopback (UCX_NET_DEVICES=lo), except in namespaces that a test makes. A test has
180 s. Every array is made from a seed, so each process can check what it got.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

os.environ.setdefault("UCX_NET_DEVICES", "lo")
os.environ.setdefault("UCXPY_IFNAME", "lo")
os.environ["DASK_DISTRIBUTED__ADMIN__TICK__LIMIT"] = (
    "60s"  # warnings of a slow machine are no fault
)


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
