#!/usr/bin/python3
"""Programs that know nothing of ropeway, under the drop-in.

Usage: smoke_test.py BUILD_DIR [unittest arguments]. BUILD_DIR has libropeway-verbs.so and ropeway; ASAN_PROGRAM, BY_HAND, NEXT_PROBE, HOOKS, DESCRIPTORS, MERGED, ALONE and FAKE_DIR are in the environment.
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
from preload import preloadable  # noqa: E402

HAS_IPV6 = os.path.exists("/proc/net/if_inet6") and bool(pathlib.Path("/proc/net/if_inet6").read_text())  # a line for each address
BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
DROPIN = preloadable(BUILD / "libropeway-verbs.so")
ROPEWAY = BUILD / "ropeway"
# Meson puts the fake libraries of the "depends" into LD_LIBRARY_PATH, where only some of these tests want them.
ENV = {k: v for k, v in os.environ.items() if not k.startswith("ROPEWAY_") and k not in ("LD_PRELOAD", "LD_LIBRARY_PATH", "ASAN_OPTIONS")}
ENV["ROPEWAY_DEVICES"] = "lo"  # the same on every machine


def run(*command, preload=True, **env):
    extra = {"LD_PRELOAD": str(DROPIN)} if preload else {}
    return subprocess.run([str(c) for c in command], env={**ENV, **extra, **env}, capture_output=True, text=True, timeout=60)


class Base(unittest.TestCase):
    def ok(self, r):
        self.assertEqual(r.returncode, 0, f"{r.args}\nstdout: {r.stdout}\nstderr: {r.stderr}")
        return r


class Preload(Base):
    def test_programs_without_verbs(self):
        self.assertEqual(self.ok(run("/bin/true")).stderr, "")
        r = self.ok(run("bash", "-c", "trap 'echo caught' USR1; kill -USR1 $$; cat /proc/self/comm; (exit 7); echo $?"))
        self.assertEqual(r.stdout, "caught\ncat\n7\n")
        self.ok(run("ls", "/"))
        self.assertEqual(run("bash", "-c", "kill -SEGV $$").returncode, -signal.SIGSEGV)

    def test_ctypes(self):
        code = """
import ctypes
verbs = ctypes.CDLL('libibverbs.so.1')
verbs.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)
verbs.ibv_get_device_name.restype = ctypes.c_char_p
verbs.ibv_get_device_name.argtypes = [ctypes.c_void_p]
n = ctypes.c_int()
devices = verbs.ibv_get_device_list(ctypes.byref(n))
print([verbs.ibv_get_device_name(devices[i]).decode() for i in range(n.value)][-1])
verbs.ibv_free_device_list(devices)
"""
        self.assertEqual(self.ok(run(sys.executable, "-c", code)).stdout, "rpw_lo\n")

    def test_lookups_by_hand(self):
        self.ok(run(os.environ["BY_HAND"], os.environ["NEXT_PROBE"]))

    def test_hooks(self):
        self.ok(run(os.environ["HOOKS"]))

    def test_a_number_that_was_a_channel_s_is_a_file_s(self):
        for case in ("close_range", "closefrom", "dup2", "syscall", "close_only", "child"):
            with self.subTest(case):
                self.ok(run(os.environ["DESCRIPTORS"], case))

    def test_what_a_vfork_child_closes_is_its_own(self):
        for case in ("vfork", "vfork_write"):
            with self.subTest(case):
                self.ok(run(os.environ["DESCRIPTORS"], case))

    @unittest.skipUnless(HAS_IPV6, "no IPv6 here")
    def test_each_family_may_have_a_listener_of_its_own(self):
        self.ok(run(os.environ["DESCRIPTORS"], "families"))

    def test_stats_are_printed_once_and_only_when_asked(self):
        self.assertEqual(self.ok(run("ibv_devinfo", "-d", "rpw_lo")).stderr, "")
        asked = self.ok(run("ibv_devinfo", "-d", "rpw_lo", ROPEWAY_STATS="1"))
        self.assertNotEqual(asked.stderr, "")
        # Listing opens nothing, so there is nothing to count.
        self.assertEqual(self.ok(run(sys.executable, "-c", "import ctypes; n = ctypes.c_int(); ctypes.CDLL('libibverbs.so.1').ibv_get_device_list(ctypes.byref(n))",
                                     ROPEWAY_STATS="1")).stderr, "")


class RealBeside(Base):
    """A made-up libibverbs with two devices stands for a machine that has some."""

    def fake(self, order, **env):
        self.ok(run(os.environ["MERGED"], order, LD_LIBRARY_PATH=os.environ["FAKE_DIR"], **env))

    def test_real_devices_come_first(self):
        self.fake("real-first")

    def test_software_devices_come_first_when_asked(self):
        self.fake("software-first", ROPEWAY_FIRST="software")  # the older name of the word `first`

    def test_words_for_real_devices(self):
        self.fake("hidden")

    def test_disabled(self):
        self.fake("disabled", ROPEWAY_DISABLE="1", ROPEWAY_FIRST="software")

    def test_no_libibverbs_at_all(self):
        with tempfile.TemporaryDirectory() as empty:
            pathlib.Path(empty, "libibverbs.so.1").write_bytes(b"")  # the loader takes this one and fails
            self.ok(run(os.environ["ALONE"], preload=False, LD_LIBRARY_PATH=empty))
            self.assertEqual(json.loads(self.ok(run(ROPEWAY, "devices", "--json", preload=False, LD_LIBRARY_PATH=empty)).stdout)["refused"], [])

    def test_the_command_lists_the_calls_of_this_rdma_core_that_are_refused(self):
        def refused(**env):
            return {row["lacks"]: (row["calls"].split(", "), row["instead"]) for row in json.loads(self.ok(run(ROPEWAY, "devices", "--json", preload=False, **env)).stdout)["refused"]}
        rows = refused()
        self.assertEqual(rows["XRC"], (["ibv_open_xrcd", "ibv_open_qp", "ibv_get_srq_num"], "use RC queue pairs, with an SRQ for many"))
        self.assertIn("ibv_query_ece", rows["enhanced connection establishment"][0])
        self.assertNotIn("calls newer than this ropeway", rows)
        text = self.ok(run(ROPEWAY, "devices", preload=False)).stdout
        self.assertEqual([name for calls, _ in rows.values() for name in calls if name not in text], [])
        rows = refused(LD_LIBRARY_PATH=os.environ["FAKE_DIR"])
        self.assertEqual(rows["calls newer than this ropeway"][0], ["ibv_of_tomorrow"])
        self.assertNotIn("enhanced connection establishment", rows)  # the made-up library has no ibv_query_ece


class Asan(Base):
    """The program lists devices, reads a GID's type, and with an argument writes one byte too far."""
    program = os.environ.get("ASAN_PROGRAM")

    def setUp(self):
        if not self.program:
            self.skipTest("this build is sanitized itself")

    def test_run_starts_it(self):
        r = self.ok(run(ROPEWAY, "run", "--", self.program, preload=False))
        self.assertIn("RoCE v2", r.stdout)
        self.assertEqual(r.stderr, "")

    def test_asan_still_works(self):
        r = run(ROPEWAY, "run", "--", self.program, "overflow", preload=False)
        self.assertIn("AddressSanitizer: heap-buffer-overflow", r.stderr)
        r = run(ROPEWAY, "run", "--", self.program, "null", preload=False)
        self.assertIn("AddressSanitizer: SEGV", r.stderr)

    def test_run_starts_it_from_a_shell(self):
        self.assertIn("RoCE v2", self.ok(run(ROPEWAY, "run", "--", "sh", "-c", f"'{self.program}'; true", preload=False)).stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
