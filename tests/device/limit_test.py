#!/usr/bin/python3
"""A low limit of the size of files (`ulimit -f`), which counts for the memory that processes share, too: each command and each preloaded program works, or says what is in its way. None ends by SIGXFSZ.

Usage: limit_test.py BUILD_DIR [PAIR_PROGRAM]
"""
import pathlib
import resource
import signal
import subprocess
import sys
import tempfile
import unittest

BUILD = pathlib.Path(".")
PAIR = ()
LIMITS = (0, 100, 4096, 102400, 300000, 600000, 2000000)  # bytes; what is shared takes 4 KiB to 8 MiB
WORD = "RLIMIT_FSIZE"


def limited(limit, *command, env=None):
    """Runs it to its end, under that limit. Output goes to pipes, which have none."""
    def lower():
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores it, and a program would inherit that
    full = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "LC_ALL": "C.UTF-8", **(env or {})}
    return subprocess.run(list(map(str, command)), preexec_fn=lower, env=full, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=60, check=False)


class Limit(unittest.TestCase):
    def lives(self, limit, *command, **kwargs):
        got = limited(limit, *command, **kwargs)
        self.assertGreaterEqual(got.returncode, 0, f"{command} under {limit} bytes ended by signal {-got.returncode}: {got.stderr}")
        self.assertNotEqual(got.returncode, 128 + signal.SIGXFSZ, (command, limit, got.stderr))
        return got

    def test_devices_are_shown_whatever_the_limit(self):
        for limit in LIMITS:
            got = self.lives(limit, BUILD / "ropeway", "devices")
            self.assertEqual(got.returncode, 0, (limit, got.stderr))
            self.assertIn("rpw_lo", got.stdout)

    def test_a_verbs_program_works_and_says_why_it_shares_no_memory(self):
        for limit in LIMITS:
            got = self.lives(limit, *PAIR)
            if limit >= 4096:  # what the device cannot do without is a page
                self.assertEqual(got.returncode, 0, (limit, got.stdout, got.stderr))
            self.assertEqual(WORD in got.stderr, limit < 600000, (limit, got.stderr))
            self.assertLessEqual(got.stderr.count(WORD), 2)  # two processes

    def test_messages_go_by_sockets(self):
        for limit in (0, 102400):
            got = self.lives(limit, BUILD / "ropeway", "perf", "--duration", "0.1", "--sizes", "4096", "--ops", "tag")
            self.assertIn(got.returncode, (0, 1), got.stderr)

    def test_the_doctor_names_the_limit(self):
        got = self.lives(102400, BUILD / "ropeway", "doctor")
        self.assertIn("ulimit -f unlimited", got.stdout + got.stderr)

    def test_a_capture_ends_at_the_limit(self):
        with tempfile.TemporaryDirectory() as folder:
            name = pathlib.Path(folder) / "x.pcapng"
            got = self.lives(2000000, *PAIR, env={"ROPEWAY_PCAP": str(name), "ROPEWAY_WIRE": "udp"})
            self.assertEqual(got.returncode, 0, got.stderr)
            got = self.lives(10000, *PAIR, env={"ROPEWAY_PCAP": str(name), "ROPEWAY_WIRE": "udp"})
            self.assertIn("capture stopped: the file cannot be written: File too large", got.stderr)

    def test_an_output_file_that_is_too_long_is_an_error(self):
        with tempfile.NamedTemporaryFile() as out:
            def lower():
                resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))
                signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            got = subprocess.run([BUILD / "ropeway", "devices"], preexec_fn=lower, stdout=out, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
            self.assertEqual(got.returncode, 1, got.stderr)
            self.assertIn("cannot write to standard output", got.stderr)

    def test_a_program_that_is_run_gets_the_signal_as_ever(self):
        got = limited(10, BUILD / "ropeway", "run", "--", "/bin/sh", "-c", "grep SigIgn /proc/self/status")
        ignored = int(got.stdout.split()[1], 16)
        self.assertFalse(ignored >> (signal.SIGXFSZ - 1) & 1, got.stdout)


if __name__ == "__main__":
    BUILD = pathlib.Path(sys.argv[1]).resolve()
    PAIR = (pathlib.Path(sys.argv[2]).resolve(), "rc", "200")
    unittest.main(argv=sys.argv[:1])
