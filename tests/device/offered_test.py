#!/usr/bin/python3
"""Which devices stock programs see, and reach each other by, while interfaces come and go: in a network namespace that begins with loopback alone.

Usage: offered_test.py BUILD_DIR. What each rule says is tested by itself in tests/io/offer_test.c.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
import unittest

BUILD = pathlib.Path(sys.argv[1]).resolve()
INSIDE = "ROPEWAY_OFFERED_INSIDE"
LO, BOTH = ["rpw_lo"], ["rpw_aa", "rpw_lo"]


def ropeway(*words, devices=None):
    env = {k: v for k, v in os.environ.items() if not k.startswith("ROPEWAY_")}
    if devices:
        env["ROPEWAY_DEVICES"] = devices
    return {"args": [str(BUILD / "ropeway"), "run", "--", *words], "env": env, "stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}


def run(*words, devices=None, limit_s=30):
    return subprocess.run(**ropeway(*words, devices=devices), timeout=limit_s, check=False)


def seen(devices=None):
    return [word for word in run("ibv_devices", devices=devices).stdout.split() if word.startswith("rpw_")]


def ip(*words):
    subprocess.run(["ip", *words], check=True)


class Offered(unittest.TestCase):
    def setUp(self):
        self.processes = []
        self.addCleanup(self.end)

    def end(self):
        for p in self.processes:
            p.kill()
            p.wait()
            p.stdout.close()
        subprocess.run(["ip", "link", "del", "aa"], stderr=subprocess.DEVNULL, check=False)
        self.wait(lambda: seen() == LO)

    def start(self, *words, devices=None):
        self.processes.append(subprocess.Popen(**ropeway(*words, devices=devices)))
        return self.processes[-1]

    def wait(self, there, limit_s=20):
        end = time.monotonic() + limit_s
        while not there():
            self.assertLess(time.monotonic(), end, "it does not come")
            time.sleep(0.05)

    def listens(self, port):
        return f":{port:04X} " in "".join(pathlib.Path(f"/proc/net/{table}").read_text() for table in ("tcp", "tcp6"))

    def serves(self, port):
        return f"/service/{0x1060000 | port:x}/" in pathlib.Path("/proc/net/unix").read_text()

    def comes_up(self):
        ip("link", "add", "aa", "type", "veth", "peer", "name", "pa")
        for name in ("aa", "pa"):
            ip("link", "set", name, "addrgenmode", "none")
        ip("addr", "add", "10.9.0.1/24", "dev", "aa")
        for name in ("aa", "pa"):
            ip("link", "set", name, "up")

    def test_an_interface_that_comes_up_takes_the_device_from_nobody(self):
        """A job that began with loopback alone: its later processes find its device, and the list is the same in all."""
        server = self.start("ibv_rc_pingpong", "-d", "rpw_lo", "-g", "1", "-n", "50", "-c", "-p", "17801")
        self.wait(lambda: self.listens(17801))
        self.comes_up()
        self.assertEqual(seen(), BOTH)
        client = run("ibv_rc_pingpong", "-d", "rpw_lo", "-g", "1", "-n", "50", "-c", "-p", "17801", "127.0.0.1")
        self.assertEqual(client.returncode, 0, client.stdout)
        self.assertEqual(server.wait(20), 0, server.stdout.read())
        self.assertEqual(seen(), ["rpw_aa"])

    def test_who_chose_it_changes_no_other_list(self):
        self.comes_up()
        self.start("ibv_rc_pingpong", "-d", "rpw_lo", "-g", "1", "-p", "17802", devices="lo")
        self.wait(lambda: self.listens(17802))
        self.assertEqual(seen(), ["rpw_aa"])
        self.assertEqual(seen(devices="all"), BOTH)

    def test_rdma_cm_reaches_127_0_0_1_by_another_device(self):
        """rping compares what it reads back (-V). Also where the listener began with loopback alone and the client did not."""
        for first, later in ((True, False), (False, True)):
            with self.subTest(listener_before_the_interface=later):
                if first:
                    self.comes_up()
                server = self.start("rping", "-s", "-a", "127.0.0.1", "-p", "7811", "-C", "20", "-V", "-S", "5000")
                self.wait(lambda: self.serves(7811))
                if later:
                    self.comes_up()
                client = run("rping", "-c", "-a", "127.0.0.1", "-p", "7811", "-C", "20", "-V", "-S", "5000")
                self.assertEqual(client.returncode, 0, client.stdout)
                self.assertEqual(server.wait(20), 0)
                ip("link", "del", "aa")
                self.wait(lambda: seen() == LO)

    def test_two_that_chose_differently_are_told(self):
        """The data of both ends go by one device: a peer that cannot have it is refused at once, with the remedy."""
        self.comes_up()
        for ours, theirs in (("lo", None), (None, "lo")):
            with self.subTest(listener=ours, client=theirs):
                server = self.start("rping", "-s", "-a", "127.0.0.1", "-p", "7812", "-C", "2", devices=ours)
                self.wait(lambda: self.serves(7812))
                client = run("rping", "-c", "-a", "127.0.0.1", "-p", "7812", "-C", "2", devices=theirs)
                self.assertIn("RDMA_CM_EVENT_REJECTED", client.stdout)
                server.kill()
                self.assertIn("give both programs the same ROPEWAY_DEVICES", server.communicate()[0])

    def test_a_name_that_nothing_has_is_reported_once(self):
        got = run("ibv_devices", devices="ethernet7,lo")
        self.assertEqual(re.findall(r"rpw_\w+", got.stdout), LO)
        self.assertEqual(got.stdout.count("ROPEWAY_DEVICES names 'ethernet7'"), 1, got.stdout)


def enter_namespace():
    if os.environ.get(INSIDE):
        ip("link", "set", "lo", "up")
        return
    flags = ["-n"] if os.geteuid() == 0 else ["-Urn"]
    for program in ("ibv_devices", "ibv_rc_pingpong", "rping", "ip"):
        if not shutil.which(program):
            print(f"SKIPPED: no {program}")
            sys.exit(77)
    if subprocess.run(["unshare", *flags, "true"], stderr=subprocess.DEVNULL, check=False).returncode:
        print("SKIPPED: no network namespace can be made here")
        sys.exit(77)
    os.execvpe("unshare", ["unshare", *flags, sys.executable, "-B", *sys.argv], {**os.environ, INSIDE: "1"})


if __name__ == "__main__":
    enter_namespace()
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
