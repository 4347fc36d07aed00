#!/usr/bin/python3
"""Plugins as a transport: hosting_test.py CONFORMANCE ROPEWAY OWN_PLUGIN ONESTREAM QUIRK.

The suite of transports (tests/tran) over our own plugin at each version of the API, over somebody else's, and over one that has each quirk of src/ncclnet/host/quirks.c; what has to be refused, and with which words.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

CONFORMANCE, ROPEWAY, OWN, ONESTREAM, QUIRK = sys.argv[1:6]
del sys.argv[1:6]


def conformance(spec, *cases, quirk=""):
    done = subprocess.run([CONFORMANCE, "ncclnet", *cases], env=dict(os.environ, TRAN_PLUGIN=spec, QUIRK=quirk), capture_output=True, text=True, timeout=400, check=False)
    return done.returncode, done.stdout, done.stderr


def ropeway(spec, *args, **more):
    return subprocess.run([ROPEWAY, *args], env=dict(os.environ, ROPEWAY_TRANSPORT=spec), capture_output=True, text=True, timeout=120, check=False, **more)


class Hosting(unittest.TestCase):
    def passes(self, spec, *cases, quirk=""):
        with self.subTest(plugin=os.path.basename(spec), quirk=quirk):
            rc, out, err = conformance(spec, *cases, quirk=quirk)
            self.assertEqual(rc, 0, out + err)
            plan = int(re.search(r"^1\.\.(\d+)$", out, re.M).group(1))
            self.assertEqual(len(re.findall("^ok ", out, re.M)), len(cases) or plan, out)
            return err

    def refused(self, spec, *words, quirk=""):
        with self.subTest(plugin=os.path.basename(spec), quirk=quirk):
            rc, out, _ = conformance(spec, quirk=quirk)
            self.assertEqual(rc, 77, out)
            for word in words:
                self.assertIn(word, out)

    def test_our_own_at_each_version(self):
        """Frames of 0 to 64 KiB in both directions, gets and puts of 0 to 9 MiB; every byte is looked at."""
        for v in range(5, 13):
            self.passes(f"{OWN}@v{v}", "order", "rma")
        self.refused(f"{OWN}@v4", "has no ncclNetPlugin_v4: it speaks v5 to v12")

    def test_our_own_whole(self):
        self.passes(f"{OWN}@v8", "room", "regions", "released", "rma-mixed", "access", "close", "close-full", "killed", "same-process")

    def test_somebody_elses_whole(self):
        self.passes(ONESTREAM)

    def test_each_quirk(self):
        cases = ("order", "rma", "released", "rma-mixed", "close", "same-process")
        for quirk, abi in (("", 4), ("late", 8), ("fifo", 8), ("sixteen", 5), ("nosizes", 9), ("mhandle", 10), ("stale,notnow", 9), ("consumed", 8), ("unpack", 7), ("device", 7), ("device", 11),
                           ("flush", 9), ("blocks", 5), ("once", 6), ("anybody", 6), ("fifo,nosizes,mhandle,stale,consumed,device,notnow,flush,sixteen", 12)):
            self.passes(f"{QUIRK}@v{abi}", *(cases if abi == 12 else ("order", "rma")), quirk=quirk)

    def test_what_cannot_be_hosted(self):
        self.refused(f"{QUIRK}@v8", "takes no host memory (NCCL_PTR_HOST) on any of its 1 devices", quirk="nohost")
        self.refused(f"{QUIRK}@v8", "has 0 devices here", quirk="nodevice")
        self.refused(f"{QUIRK}@v8", "does not start: init gave 3 (internal error)", quirk="noinit")
        self.refused("/nowhere/libnccl-net.so", "/nowhere/libnccl-net.so", "No such file")
        self.refused(f"{ONESTREAM}@v13", "expected a version of the plugin API after the @, v4 to v12")
        self.refused("", "no network plugin was named: ncclnet:PATH[@vN]")

    def test_an_accept_that_never_comes_back_holds_up_nobody(self):
        for quirk, abi in (("stuck", 5), ("blocks", 5), ("", 4)):
            began = time.monotonic()
            self.passes(f"{QUIRK}@v{abi}", "never-started", quirk=quirk)
            self.assertLess(time.monotonic() - began, 60)

    def perf(self, spec, *more):
        return ropeway(spec, "perf", "-s", "8,100K", "-n", "20", "-v", "--no-bare", *more)

    def test_the_command_over_a_plugin(self):
        done = self.perf(f"ncclnet:{ONESTREAM}@v7", "-o", "tag,put,get")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("ncclnet: plugin OneStream, API v7, device 0 lo", done.stdout)
        for spec in (f"ncclnet:{OWN}@v9,tcp", f"ncclnet:{OWN}"):
            done = self.perf(spec)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertIn("ncclnet: plugin ropeway, API v9" if "@" in spec else "ncclnet: plugin ropeway, API v12", done.stdout)

    def test_a_file_over_a_plugin(self):
        with tempfile.TemporaryDirectory() as d:
            body = bytes((i * 2654435761 >> 11) & 255 for i in range(3_000_001))
            with open(f"{d}/file", "wb") as f:
                f.write(body)
            env = dict(os.environ, ROPEWAY_TRANSPORT=f"ncclnet:{ONESTREAM}@v11")
            os.mkdir(f"{d}/in")
            with subprocess.Popen([ROPEWAY, "recv", "-1", "-l", "127.0.0.1:0", f"{d}/in"], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as receiver:
                try:
                    line = receiver.stdout.readline()
                    port = re.search(r"port (\d+)", line)
                    self.assertTrue(port, line)
                    done = ropeway(env["ROPEWAY_TRANSPORT"], "send", f"{d}/file", f"127.0.0.1:{port[1]}")
                    self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                    out, _ = receiver.communicate(timeout=60)
                    self.assertEqual(receiver.returncode, 0, out)
                finally:
                    receiver.kill()
            with open(f"{d}/in/file", "rb") as f:
                self.assertEqual(f.read(), body)

    def test_versions_and_plugins_are_not_mixed(self):
        """The classic failure: here it is a sentence with both sides' names."""
        says = "the peer hosts network plugin {} with API v{}, this side {} with v{}: name the same plugin and version on both sides"
        for server, client, one, other in ((f"{ONESTREAM}@v7", f"{ONESTREAM}@v5", ("OneStream", 7), ("OneStream", 5)), (f"{ONESTREAM}@v8", f"{QUIRK}@v8", ("OneStream", 8), ("Quirk", 8))):
            env = dict(os.environ, ROPEWAY_TRANSPORT=f"ncclnet:{server}")
            with subprocess.Popen([ROPEWAY, "perf", "--serve", "127.0.0.1:0"], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as serving:
                try:
                    line = serving.stdout.readline()
                    port = re.search(r":(\d+)", line)
                    self.assertTrue(port, line)
                    done = self.perf(f"ncclnet:{client}", f"127.0.0.1:{port[1]}")
                    self.assertNotEqual(done.returncode, 0)
                    # Whichever side is the first to see it.
                    self.assertRegex(done.stdout + done.stderr, f"{says.format(*one, *other)}|{says.format(*other, *one)}")
                finally:
                    serving.kill()

    def test_a_plugins_path_may_have_a_space(self):
        with tempfile.TemporaryDirectory(prefix="ropeway plugin ") as folder:
            plugin = shutil.copy(ONESTREAM, folder)
            for spec in f"ncclnet:{plugin}", f"ncclnet:{plugin}@v8 , tcp":
                done = self.perf(spec)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                self.assertIn("ncclnet: plugin OneStream", done.stdout)

    def test_lists_that_do_not_do(self):
        for spec, words in ((f"ncclnet:{ONESTREAM},ncclnet:{QUIRK}", "two plugins are named"), ("tcp:x", "there is no transport 'tcp:x'"), ("ncclnet:" + "x" * 300, "is too long"),
                            ("ncclnet", "no network plugin was named"), ("ncclnet:/nowhere.so", "/nowhere.so")):
            with self.subTest(spec=spec[:40]):
                done = self.perf(spec)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(words, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
