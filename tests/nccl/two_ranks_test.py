#!/usr/bin/python3
"""script/nccl-two-ranks up to CUDA: over a fake NCCL and a fake CUDA (no GPU, nothing of the plugin is called). That it skips, finds what is wrong, and believes NCCL alone about the way.

Usage: two_ranks_test.py SCRIPT PLUGIN FAKE_CUDA FAKE_NCCL
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

SCRIPT = PLUGIN = CUDA = NCCL = ""
TIMEOUT_S = 120


def run(*args, env=None):
    got = subprocess.run([sys.executable, "-B", SCRIPT, "--rank", "c", "--plugin", PLUGIN, "--rounds", "1", "--iterations", "3", *args], capture_output=True, text=True,
                         timeout=TIMEOUT_S, check=False, env={**os.environ, "ROPEWAY_CUDA_LIBRARY": CUDA, "ROPEWAY_NCCL_LIBRARY": NCCL, **(env or {})})
    return got.returncode, got.stdout + got.stderr


class TwoRanks(unittest.TestCase):
    def fails(self, pattern, *args, env=None, status=1):
        got, text = run("--sizes", "4K", *args, env=env)
        self.assertEqual(got, status, text)
        self.assertRegex(text, pattern)
        self.assertNotIn("PASSED", text)

    def test_passes_and_measures_both(self):
        with tempfile.TemporaryDirectory() as kept:
            got, text = run("--sizes", "4K", "1M", "--keep", kept)
            self.assertEqual(got, 0, text)
            self.assertIn("PASSED: every element right, over NET/ropeway and over NET/Socket", text)
            for op in ("all_reduce", "send_recv", "broadcast"):
                for size in (4096, 1 << 20):
                    self.assertRegex(text, rf"(?m)^{op} +{size} +[\d.]+ GB/s +[\d.]+ GB/s +[\d.]+$")
            hosts = {re.search("NCCL_HOSTID set by environment to (.*)", path.read_text())[1] for path in pathlib.Path(kept).rglob("nccl-*.log")}
            self.assertEqual(len(hosts), 2)

    def test_wrong_elements(self):
        self.fails(r"all_reduce of 4096 bytes left [1-9]\d* wrong elements in rank \d", env={"FAKE_NCCL_WRONG": "1"})

    def test_another_way_than_asked_for(self):
        self.fails(r"was to use NET/ropeway and nothing else, and says: NET/Socket", env={"FAKE_NCCL_NET": "Socket"})

    def test_a_rank_that_dies(self):
        self.fails(r"rank 1 ended with 4", env={"FAKE_NCCL_DIES": "1"})

    def test_no_plugin(self):
        self.fails("there is no plugin /nonexistent.so", "--plugin", "/nonexistent.so")

    def test_without_nccl_or_a_gpu_it_skips(self):
        self.fails(r"libnccl\.so\.2: .*cannot open(.|\n)*\nSKIPPED", env={"ROPEWAY_NCCL_LIBRARY": "/nonexistent.so"}, status=77)
        self.fails(r"libcuda\.so\.1: .*cannot open(.|\n)*\nSKIPPED", env={"ROPEWAY_CUDA_LIBRARY": "/nonexistent.so"}, status=77)

    def test_mps_is_started_and_ended(self):
        with tempfile.TemporaryDirectory() as folder:
            control = pathlib.Path(folder, "nvidia-cuda-mps-control")
            control.write_text('#!/bin/sh\necho "$* $CUDA_MPS_PIPE_DIRECTORY" >> $0.calls\n[ "$1" = -d ] || cat >> $0.calls\nexit ${FAKE_MPS_STATUS:-0}\n')
            control.chmod(0o755)
            calls = pathlib.Path(f"{control}.calls")
            path = {"PATH": f"{folder}:{os.environ['PATH']}"}
            got, text = run("--sizes", "4K", env=path)
            self.assertEqual(got, 0, text)
            self.assertIn("at the same time, by MPS", text)
            self.assertRegex(calls.read_text(), r"^-d (/\S+)\n \1\nquit\n$")
            self.fails(r"nvidia-cuda-mps-control -d ended with 3", env={**path, "FAKE_MPS_STATUS": "3"})
            calls.unlink()
            got, text = run("--sizes", "4K", "--turns", env=path)
            self.assertEqual((got, calls.exists()), (0, False), text)
            self.assertIn("take turns on the GPU: --turns", text)

    def test_what_is_compared_can_be_chosen(self):
        got, text = run("--sizes", "4K", "--nets", "IB", "Socket")
        self.assertEqual(got, 0, text)
        self.assertRegex(text, r"bytes +IB +Socket +ratio")
        self.assertIn("over NET/IB and over NET/Socket", text)

    def test_wrong_usage(self):
        self.fails("a size is expected", "--sizes", "0", status=2)
        self.fails("4 bytes", "--sizes", "3", status=2)
        self.fails("invalid choice", "--nets", "tcp", "Socket", status=2)


if __name__ == "__main__":
    SCRIPT, PLUGIN, CUDA, NCCL = sys.argv[1:5]
    unittest.main(argv=sys.argv[:1] + sys.argv[5:], verbosity=2)
