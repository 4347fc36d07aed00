# SPDX-License-Identifier: BSD-3-Clause
"""script/gpu-messages up to CUDA: over a driver library of the tests (tests/msg/fake_cuda.c)."""

import os
import subprocess
import sys

import pytest

FAKE = os.environ.get("ROPEWAY_TEST_FAKE_CUDA")
SCRIPT = os.path.join(os.path.dirname(__file__), "..", "..", "..", "script", "gpu-messages")


def script(*args, **env):
    got = subprocess.run(
        [sys.executable, "-B", SCRIPT, "--sizes", "8", "5000", "1M", "--rounds", "1", "--turns", *args],
        capture_output=True, text=True, timeout=120, env={**os.environ, **env},
    )  # fmt: skip
    return got.returncode, got.stdout + got.stderr


def test_without_a_gpu_it_skips():
    status, text = script(ROPEWAY_CUDA_LIBRARY="/nonexistent.so")
    assert status == 77 and "SKIPPED: messages in a GPU" in text, text


@pytest.mark.skipif(not FAKE, reason="ROPEWAY_TEST_FAKE_CUDA names no driver library of the tests")
class TestOverTheFakeDriver:
    def test_every_way_over_each_transport(self):
        status, text = script(ROPEWAY_CUDA_LIBRARY=FAKE)
        assert status == 0 and "PASSED: every byte right" in text, text
        for transport in ("shm", "tcp"):
            for way in ("GPU to GPU", "GPU to host", "host to GPU", "put", "get"):
                assert text.count(f"{transport:<5} {way:<11} ") == 3, text

    def test_wrong_bytes(self):
        status, text = script("--transports", "tcp", ROPEWAY_CUDA_LIBRARY=FAKE, FAKE_CUDA_WRONG="1")
        assert status == 1 and "FAILED" in text and "wrong, the first at" in text, text
        assert "PASSED" not in text
