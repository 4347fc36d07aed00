# SPDX-License-Identifier: BSD-3-Clause
import gc
import os
import sys

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from ucp_helpers import Namespace, collect, deadline  # noqa: E402

TEST_LIMIT_S = 120


@pytest.fixture(scope="package", autouse=True)
def namespace():
    """ucp's listeners are at all addresses: the tests live in a network namespace."""
    gc.collect()
    gc.freeze()  # what pytest has is not looked through by each reset()
    place = Namespace()
    why = place.enter()
    if why is not None:
        print(f"no network namespace ({why}): listeners are reachable from outside meanwhile")
    yield
    place.leave()
    gc.unfreeze()


@pytest.fixture(autouse=True)
def limit(request):
    marker = request.node.get_closest_marker("timeout")
    with deadline(marker.args[0] if marker else TEST_LIMIT_S):
        yield


@pytest.fixture(params=["shm", "tcp"])
def transport(request, monkeypatch):
    """The one transport that the test may use, and so do the processes that it starts."""
    monkeypatch.setenv("ROPEWAY_TRANSPORT", request.param)
    for name in list(os.environ):
        if name.startswith(("UCX_", "UCXPY_")):
            monkeypatch.delenv(name)
    return request.param


@pytest.fixture
def ucp(transport):
    """The module, fresh, and fresh again afterwards: a test that leaves an endpoint fails."""
    import ucp

    ucp.reset()
    yield ucp
    collect()
    ucp.reset()


@pytest.fixture
def address():
    return "127.0.0.1"


def pytest_configure(config):
    if not config.pluginmanager.hasplugin("timeout"):
        config.addinivalue_line("markers", "timeout(seconds): the test may take so long")
    config.addinivalue_line("markers", "long: takes minutes, runs with --long")
