# SPDX-License-Identifier: BSD-3-Clause
"""Fixtures of all tests in tests/python: each transport, and the switch for what takes minutes."""

import functools
import os

import pytest

from helpers import SEED

TRANSPORTS = os.environ.get("ROPEWAY_TEST_TRANSPORTS", "shm,tcp,verbs").split(",")


@functools.lru_cache
def missing(transport):
    """Why it cannot be used here; None: it can."""
    import ropeway

    try:
        with ropeway.blocking.Context(transports=transport) as c:
            listener = c.listen("127.0.0.1:0")
            with c.connect(listener.address, timeout=5.0) as ep:
                got = ep.info().transport
                return None if got == transport else f"asked for {transport}, got {got}"
    except ropeway.Error as e:
        return f"{transport} cannot be used here: {e}"


@pytest.fixture(params=TRANSPORTS)
def transport(request, monkeypatch):
    """shm, tcp, verbs (the software device), for this process and those that it starts."""
    why = missing(request.param)
    if why:
        pytest.skip(why)
    monkeypatch.setenv("ROPEWAY_TRANSPORT", request.param)
    return request.param


def pytest_addoption(parser):
    parser.addoption("--long", action="store_true", help="also what takes minutes")


def pytest_collection_modifyitems(config, items):
    if config.getoption("--long"):
        return
    why = pytest.mark.skip(reason="takes minutes: tests/python/run --long")
    for item in items:
        if "long" in item.keywords:
            item.add_marker(why)


def pytest_report_header(config):
    return f"TEST_SEED={SEED}"
