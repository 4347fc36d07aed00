#!/usr/bin/python3
"""Ctrl-C of commands that take long: what they say, and how they end. Those of perf, send and recv are in perf_test.py and files_test.py.

Usage: stop_test.py BUILD_DIR
"""
import os
import pathlib
import pty
import re
import select
import signal
import sys
import tempfile
import time
import unittest

BUILD = pathlib.Path(".")
TIMEOUT_S = 120


def stopped(*command, mark, after_s=0.0, cwd=None):
    """What a command on a terminal says after Ctrl-C, which comes when it has printed the mark, and its exit status."""
    pid, fd = pty.fork()
    if not pid:
        os.chdir(cwd or "/")
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.execvp(command[0], [str(word) for word in command])
    seen, end, at = "", time.monotonic() + TIMEOUT_S, None
    while True:
        if at is None and mark in seen:
            at = time.monotonic() + after_s
        if at and time.monotonic() > at:
            os.write(fd, b"\x03")
            at, mark = None, "\0"
        if not select.select([fd], [], [], 0.05)[0]:
            if time.monotonic() > end:
                os.kill(pid, signal.SIGKILL)
                raise AssertionError(f"{command} was not stopped; it said:\n{seen}")
            continue
        try:
            got = os.read(fd, 65536)
        except OSError:
            break
        seen += got.decode(errors="replace").replace("\r\n", "\n")
    _, status = os.waitpid(pid, 0)
    os.close(fd)
    return seen.partition("^C")[2].replace("\r\x1b[K", ""), os.waitstatus_to_exitcode(status)


class Stopped(unittest.TestCase):
    """Ctrl-C says what was done so far, and ends the command as a signal does."""
    def plugin_bench(self, after_s, *options):
        said, status = stopped(BUILD / "ropeway", "plugin", "bench", BUILD / "libnccl-net-ropeway.so", "--sizes", "8", "--rounds", "99", *options, mark="", after_s=after_s)
        self.assertEqual(status, -signal.SIGINT, said)
        return said

    def test_bench_before_a_round_is_whole(self):
        self.assertEqual(self.plugin_bench(0.3, "--duration", "5"), "ropeway plugin bench: stopped in the first round; --duration makes it shorter\n")
        self.assertEqual(self.plugin_bench(0.3, "--json"), "ropeway plugin bench: stopped: no JSON before all rounds are done\n")

    def test_bench_shows_the_rounds_that_are_whole(self):
        for after_s in (2, 4, 8, 16, 32, 64):
            said = self.plugin_bench(after_s, "--duration", "0.2")
            if "first round" not in said:
                break
        done = re.search(r"median of (\d+) rounds?\n", said)
        self.assertTrue(done and int(done[1]) < 99, said)
        self.assertRegex(said, r"(?m)^8 bytes +[\d.]+ [kM]/s")
        self.assertTrue(said.endswith(f"ropeway plugin bench: stopped: the table above is of {done[1]} of 99 rounds\n"), said)
        self.assertNotIn("verified", said)

    def test_check(self):
        said, status = stopped(BUILD / "ropeway", "plugin", "check", BUILD / "libnccl-net-ropeway.so", mark="request ")
        self.assertEqual(status, -signal.SIGINT, said)
        self.assertTrue(said.endswith("ropeway plugin check: stopped: the lines above are whole; --only picks others\n"), said)

    def test_demo(self):
        with tempfile.TemporaryDirectory() as temp:
            for options, says in (((), "stopped; no file is left; --size makes it shorter"), (("--keep",), f"stopped: what there is so far is in {temp}/ropeway-demo-")):
                said, status = stopped("env", f"TMPDIR={temp}", BUILD / "ropeway", "demo", "--size", "256M", *options, mark="ropeway demo:", cwd=temp)
                self.assertEqual(status, -signal.SIGINT, said)
                self.assertIn(f"ropeway demo: {says}", said)
                self.assertEqual(len(os.listdir(temp)), len(options), os.listdir(temp))

    def test_connection(self):
        said, status = stopped(BUILD / "test_connection", "server", "--bind", "127.0.0.1", "--port", "0", mark="waiting for a client")
        self.assertEqual((said, status), ("test_connection: stopped in step 3 of 8; those above are done\n", -signal.SIGINT))


if __name__ == "__main__":
    BUILD = pathlib.Path(sys.argv[1]).resolve()
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=2)
