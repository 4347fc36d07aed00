#!/usr/bin/python3
"""A context that two threads use: with ROPEWAY_LOG=debug it is said once, with both threads' IDs; without, nothing looks.

Usage: owner_test.py libropeway.so
"""
import ctypes
import os
import re
import subprocess
import sys
import threading
import unittest

PASSED_ON = r"ropeway: debug: context 0x[0-9a-f]+: thread (\d+) calls it, thread (\d+) did before: one thread at a time"
BOTH = r"ropeway: warn: context 0x[0-9a-f]+: thread (\d+) calls it while thread (\d+) is inside rpw_context_progress: one thread at a time"
ACCEPT = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


class Program:
    """The other process: `owner_test.py LIBRARY case`. ctypes gives up Python's lock for the time of a call."""

    def __init__(self, library):
        self.lib, self.c = ctypes.CDLL(library), ctypes.c_void_p()
        self.lib.rpw_last_error.restype = ctypes.c_char_p
        assert not self.lib.rpw_context_create(None, ctypes.byref(self.c))

    def in_a_thread(self, fn):
        t = threading.Thread(target=lambda: (print(threading.get_native_id(), flush=True), fn()))
        t.start()
        t.join()

    def case_alone(self):
        for _ in range(3):
            self.lib.rpw_context_progress(self.c)

    def case_passed_on(self):
        self.lib.rpw_context_progress(self.c)
        for _ in range(3):
            self.in_a_thread(lambda: self.lib.rpw_context_progress(self.c))

    def case_woken(self):
        self.lib.rpw_context_progress(self.c)
        self.in_a_thread(lambda: self.lib.rpw_context_wake(self.c))

    def case_forked(self):
        self.lib.rpw_context_progress(self.c)
        if not os.fork():
            print(self.lib.rpw_context_progress(self.c), self.lib.rpw_last_error().decode(), flush=True)
            os._exit(0)
        os.wait()

    def case_both(self):
        def inside():
            print(self.lib.rpw_context_progress(self.c), self.lib.rpw_last_error().decode(), flush=True)

        def accepted(*_):
            self.in_a_thread(inside)
            self.in_a_thread(inside)
            done.append(1)

        done, listener, other, ep, r = [], ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        accept = ACCEPT(accepted)
        assert not self.lib.rpw_listener_create(self.c, b"127.0.0.1:0", accept, None, ctypes.byref(listener))
        assert not self.lib.rpw_context_create(None, ctypes.byref(other))
        address = f"127.0.0.1:{self.lib.rpw_listener_port(listener)}".encode()
        assert self.lib.rpw_endpoint_create(other, address, None, ctypes.byref(ep), ctypes.byref(r)) >= 0
        while not done:
            self.lib.rpw_context_progress(other)
            self.lib.rpw_context_progress(self.c)


class Owner(unittest.TestCase):
    def run_case(self, name, log="debug"):
        """The IDs of the first thread and the others, what it printed besides, and what was said of threads."""
        p = subprocess.Popen([sys.executable, __file__, LIBRARY, name], env=dict(os.environ, ROPEWAY_LOG=log), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        out, err = p.communicate(timeout=60)
        self.assertEqual(p.returncode, 0, err)
        lines = out.splitlines()
        return [str(p.pid), *filter(str.isdigit, lines)], [line for line in lines if not line.isdigit()], [line for line in err.splitlines() if " thread " in line]

    def said(self, lines, form, second, first):
        found = [m for m in (re.match(form, line) for line in lines) if m]
        self.assertEqual([m.groups() for m in found], [(second, first)], lines)

    def test_one_thread(self):
        self.assertEqual(self.run_case("alone")[2], [])

    def test_a_context_that_is_passed_on_is_told_once(self):
        ids, _, lines = self.run_case("passed_on")
        self.said(lines, PASSED_ON, ids[1], ids[0])
        self.assertEqual(len(lines), 1)

    def test_a_wake_is_from_any_thread(self):
        self.assertEqual(self.run_case("woken")[2], [])

    def test_two_threads_at_once_are_told_once_and_refused(self):
        ids, printed, lines = self.run_case("both")
        self.said(lines, BOTH, ids[1], ids[0])
        for line in printed:
            self.assertRegex(line, r"^-1 rpw_context_progress: another thread is inside rpw_context_progress of this context")
        self.assertEqual(len(printed), 2)

    def test_without_the_log_nothing_is_told(self):
        for name in ("passed_on", "both"):
            _, printed, lines = self.run_case(name, log="info")
            self.assertEqual(lines, [])
            self.assertEqual(len(printed), 2 if name == "both" else 0)

    def test_a_forked_child_is_refused_with_and_without_it(self):
        for log in ("debug", "warn"):
            self.assertRegex(self.run_case("forked", log)[1][0], r"^-1 this context belongs to process \d+, this is its child \d+")


if __name__ == "__main__":
    LIBRARY = sys.argv[1]
    if len(sys.argv) == 3 and hasattr(Program, f"case_{sys.argv[2]}"):
        getattr(Program(LIBRARY), f"case_{sys.argv[2]}")()
    else:
        unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=2)
