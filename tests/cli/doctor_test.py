#!/usr/bin/python3
"""`ropeway doctor`: its verdicts alone and with a peer, in namespaces where something is wrong on purpose.

Usage: doctor_test.py BUILD_DIR
"""
import json
import os
import pathlib
import re
import resource
import socket
import subprocess
import sys
import unittest

BUILD = pathlib.Path(".")
TIMEOUT_S = 90


def doctor(*args, wrapper=(), **kwargs):
    return subprocess.run([*wrapper, BUILD / "ropeway", "doctor", *map(str, args)], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=TIMEOUT_S,
                          check=False, **kwargs)


class Case(unittest.TestCase):
    def serve(self, *args, address="127.0.0.1:0", wrapper=()):
        p = subprocess.Popen([*wrapper, BUILD / "ropeway", "doctor", "--serve", "-l", address, *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(p.stdout.close)
        self.addCleanup(p.wait)
        self.addCleanup(lambda: p.poll() is None and p.kill())
        line = p.stdout.readline()
        found = re.match(r"listening on port (\d+)", line)
        self.assertTrue(found, line)
        return p, int(found[1])

    def verdicts(self, got):
        """{(side, what): verdict}; the exit status agrees with them."""
        root = json.loads(got.stdout)
        table = {(v["side"], v["what"]): v for v in root["verdicts"]}
        self.assertEqual(got.returncode, 1 if any(v["verdict"] == "FAIL" for v in root["verdicts"]) else 0)
        for v in root["verdicts"]:
            self.assertIn(v["verdict"], ("ok", "warn", "FAIL"))
            self.assertTrue(v["text"], v)
            if v["verdict"] == "ok":
                self.assertIsNone(v["remedy"], v)
        return table


class Alone(Case):
    def test_a_line_for_each_verdict(self):
        got = doctor()
        for line in got.stdout.splitlines()[:-1]:
            self.assertRegex(line, r"^(ok  |warn|FAIL)  .+: .+")
        self.assertRegex(got.stdout.splitlines()[-1], r"^\d+ verdicts, \d+ warnings, \d+ failures$")

    def test_json_has_what_is_looked_at(self):
        table = self.verdicts(doctor("--json"))
        for what in ("version", "memlock", "ptrace scope", "transport shm", "transport tcp", "transport verbs"):
            self.assertIn(("local", what), table)
        self.assertEqual(table["local", "version"]["verdict"], "ok")
        self.assertEqual(table["local", "transport tcp"]["verdict"], "ok")

    def test_memlock_is_told(self):
        got = doctor("--json", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536)))
        self.assertIn("64 KiB", self.verdicts(got)["local", "memlock"]["text"])

    def test_wrong_usage(self):
        for args in (("--serve", "x"), ("--serve", "--json"), ("--once",), ("a", "b"), ("--nope",), ("[::1",), ("",)):
            got = doctor(*args)
            self.assertEqual((got.returncode, got.stdout), (2, ""), args)
            self.assertIn("--help", got.stderr)


class Together(Case):
    def test_both_sides_are_told_of(self):
        p, port = self.serve("--once")
        table = self.verdicts(doctor("--json", f"127.0.0.1:{port}"))
        for key in (("local", "bootstrap"), ("local", "path"), ("local", "versions"), ("local", "MTU"), ("peer", "version"), ("peer", "memlock")):
            self.assertEqual(table[key]["verdict"], "ok", table)
        self.assertTrue(any(what.startswith("UDP port") for _, what in table))
        out, _ = p.communicate(timeout=TIMEOUT_S)
        self.assertEqual((p.returncode, out), (0, "a client was served\n"))

    def test_one_client_after_another(self):
        p, port = self.serve()
        for _ in range(3):
            self.assertEqual(self.verdicts(doctor("--json", f"127.0.0.1:{port}"))["local", "versions"]["verdict"], "ok")
            self.assertEqual(p.stdout.readline(), "a client was served\n")

    def test_nobody_there(self):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            v = self.verdicts(doctor("--json", f"127.0.0.1:{s.getsockname()[1]}"))["local", "bootstrap"]
        self.assertEqual(v["verdict"], "FAIL")
        self.assertIn("doctor --serve", v["remedy"])

    def test_a_peer_that_is_no_doctor(self):
        echo = subprocess.Popen([BUILD / "examples" / "echo_server", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True)
        self.addCleanup(echo.stdout.close)
        self.addCleanup(echo.wait)
        self.addCleanup(echo.kill)
        port = int(re.match(r"listening on port (\d+)", echo.stdout.readline())[1])
        v = self.verdicts(doctor("--json", f"127.0.0.1:{port}"))["local", "peer"]
        self.assertEqual(v["verdict"], "FAIL")
        self.assertIn("no answer of a doctor", v["text"])


@unittest.skipIf(os.geteuid(), "network namespaces need root")
class Network(Case):
    def setUp(self):
        self.ns = []
        for _ in range(2):
            p = subprocess.Popen(["unshare", "-n", "sh", "-c", "ip link set lo up && echo && exec sleep 300"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            self.addCleanup(p.stdout.close)
            self.addCleanup(p.wait)
            self.addCleanup(p.kill)
            if not p.stdout.readline():
                self.skipTest("no network namespace can be made here")
            self.ns.append(p.pid)
        self.run_in(0, f"ip link add v0 type veth peer name v1 netns {self.ns[1]}")
        for i in (0, 1):
            self.run_in(i, f"ip address add 10.77.0.{i + 1}/24 dev v{i} && ip link set v{i} up")
        for i in (0, 1):  # the kernel tells of the carrier a moment later
            self.run_in(i, f"for i in $(seq 100); do ip link show v{i} | grep -q 'state UP' && exit; sleep 0.1; done; exit 1")

    def inside(self, i):
        return ["nsenter", "-t", str(self.ns[i]), "-n"]

    def run_in(self, i, line):
        subprocess.run([*self.inside(i), "sh", "-c", line], check=True, timeout=TIMEOUT_S)

    def verdict(self):
        _, port = self.serve(address=":0", wrapper=self.inside(1))
        return self.verdicts(doctor("--json", f"10.77.0.2:{port}", wrapper=self.inside(0)))

    def test_a_way_that_is_as_wide_as_it_says(self):
        v = self.verdict()["local", "MTU"]
        self.assertEqual(v["verdict"], "ok")
        self.assertIn("1500 bytes arrive both ways: RoCE can use an MTU of 1024", v["text"])

    def test_a_peer_that_takes_less_than_the_route_says(self):
        self.run_in(1, "ip link set v1 mtu 1300")
        v = self.verdict()["local", "MTU"]
        self.assertEqual(v["verdict"], "FAIL", v)
        self.assertIn("do not arrive at the peer", v["text"])
        self.assertIn("mtu", v["remedy"])

    def test_a_held_port_is_not_taken_for_reachable(self):
        holder = subprocess.Popen([*self.inside(1), sys.executable, "-c",
                                   "import socket,sys\ns=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\ns.bind(('',4791))\nprint('held',flush=True)\nsys.stdin.read()"],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.addCleanup(holder.stdout.close)
        self.addCleanup(holder.wait)
        self.addCleanup(holder.stdin.close)
        holder.stdout.readline()
        table = self.verdict()
        udp = [v for (side, what), v in table.items() if side == "local" and what.startswith("UDP port")]
        self.assertEqual(len(udp), 1)
        self.assertIn("4791 is in use there", udp[0]["text"])
        held = [v for (side, what), v in table.items() if side == "peer" and what.startswith("device") and v["verdict"] == "FAIL"]
        self.assertTrue(held and all("4791" in v["text"] for v in held), table)


if __name__ == "__main__":
    BUILD = pathlib.Path(sys.argv[1]).resolve()
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
