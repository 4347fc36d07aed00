# SPDX-License-Identifier: BSD-3-Clause
"""ucxx on ropeway. Listeners bind the loopback; after each test nothing of its context is left."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
os.environ["UCX_NET_DEVICES"] = "lo"
os.environ["UCXPY_IFNAME"] = "lo"


@pytest.fixture(autouse=True)
def _fresh_context():
    import ucxx

    ucxx.reset()
    yield
    gc.collect()
    ucxx.reset()
