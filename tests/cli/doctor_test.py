#!/usr/bin/python3
"""`ropeway doctor`: its verdicts alone and with a peer, in namespaces where something is wrong on purpose.

Usage: doctor_test.py BUILD_DIR
"""
import ctypes
import json
import os
import pathlib
import re
import resource
import shutil
import socket
import struct
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

BUILD = pathlib.Path(".")
TIMEOUT_S = 90


def doctor(*args, wrapper=(), **kwargs):
    return subprocess.run([*wrapper, BUILD / "ropeway", "doctor", *map(str, args)], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=TIMEOUT_S,
                          check=False, **kwargs)


def forbid_process_vm_readv():
    forbid({"x86_64": 310, "aarch64": 270}[os.uname().machine])


def forbid_memfd_create():
    forbid({"x86_64": 319, "aarch64": 279}[os.uname().machine])


def forbid(number):
    """In this process from now on the call gives EPERM, as where Yama or a container's seccomp profile forbids it (seccomp(2))."""
    # Load the number; not this one: allow; else EPERM.
    filters = struct.pack("HBBI" * 4, 0x20, 0, 0, 0, 0x15, 0, 1, number, 0x06, 0, 0, 0x00050001, 0x06, 0, 0, 0x7fff0000)
    code = ctypes.create_string_buffer(filters)
    program = struct.pack("HxxxxxxP", 4, ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, program, 0, 0):
        raise OSError(ctypes.get_errno(), "seccomp")


class Case(unittest.TestCase):
    def serve(self, *args, address="127.0.0.1:0", wrapper=(), **kwargs):
        p = subprocess.Popen([*wrapper, BUILD / "ropeway", "doctor", "--serve", "-l", address, *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **kwargs)
        self.addCleanup(p.stdout.close)
        self.addCleanup(p.wait)
        self.addCleanup(lambda: p.poll() is None and p.kill())
        line = p.stdout.readline()
        found = re.match(r"listening on port (\d+)", line)
        self.assertTrue(found, line)
        return p, int(found[1])

    def verdicts(self, got):
        """{(side, what): verdict}; the exit status agrees with them."""
        self.assertTrue(got.stdout, got.stderr)
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
        verdicts = [line for line in got.stdout.splitlines()[:-1] if not line.startswith(" ")]
        column = next(m.end() for line in verdicts if (m := re.match(r"ok    version +", line)))
        for line in verdicts:
            self.assertRegex(line, r"^(ok  |warn|FAIL)  \S.{%d}  \S" % (column - 9))
        self.assertRegex(got.stdout.splitlines()[-1], r"^%d verdicts, \d+ warnings?, \d+ failures?$" % len(verdicts))

    @unittest.skipIf(os.geteuid(), "network namespaces need root")
    def test_what_fails_has_its_remedy_below(self):
        lines = doctor(wrapper=("unshare", "-n")).stdout.splitlines()
        at = next(i for i, line in enumerate(lines) if line.startswith("FAIL  loopback "))
        self.assertEqual(lines[at + 1].split(), ["remedy:", "`ip", "link", "set", "lo", "up`"])
        self.assertEqual(lines[at + 1].index("remedy"), lines[at].index("127.0.0.1"))

    def test_a_transport_that_is_forced_is_told(self):
        table = self.verdicts(doctor("--json", env=os.environ | {"ROPEWAY_TRANSPORT": "tcp"}))
        self.assertEqual(table["local", "environment"]["verdict"], "warn")
        self.assertIn("ROPEWAY_TRANSPORT=tcp", table["local", "environment"]["text"])
        self.assertEqual(table["local", "transport shm"]["verdict"], "ok", table)

    def test_json_has_what_is_looked_at(self):
        table = self.verdicts(doctor("--json"))
        for what in ("version", "memlock", "ptrace scope", "socket buffers", "transport shm", "transport tcp", "transport verbs"):
            self.assertIn(("local", what), table)
        self.assertEqual(table["local", "version"]["verdict"], "ok")
        self.assertIn("ibv_query_ece, ibv_set_ece: no enhanced connection establishment; connect without it", doctor().stdout)
        self.assertEqual(table["local", "transport tcp"]["verdict"], "ok")

    def test_memlock_is_told(self):
        got = doctor("--json", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536)))
        self.assertIn("64 KiB", self.verdicts(got)["local", "memlock"]["text"])

    def test_what_is_missing_is_what_is_told_to_get(self):
        for limit, remedy in (forbid_memfd_create, "let processes call memfd_create"), (lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (12, 12)), "ulimit -n"):
            table = self.verdicts(doctor("--json", preexec_fn=limit))
            self.assertIn(remedy, table["local", "transport shm"]["remedy"])
            for v in table.values():
                self.assertNotIn("4791", v["remedy"] or "", v)

    def test_problems_come_first(self):
        lines = [line[:4] for line in doctor(preexec_fn=forbid_memfd_create).stdout.splitlines()[:-1] if not line.startswith(" ")]
        self.assertEqual(lines, sorted(lines, key=["FAIL", "warn", "ok  "].index))
        self.assertEqual(lines[0], "FAIL")

    def test_a_ptrace_scope_that_forbids_single_copies(self):
        v = self.verdicts(doctor("--json", preexec_fn=forbid_process_vm_readv))
        self.assertEqual(v["local", "ptrace scope"]["verdict"], "warn")
        self.assertIn("copied twice", v["local", "ptrace scope"]["text"])
        self.assertIn("process_vm_readv", v["local", "ptrace scope"]["remedy"])
        self.assertEqual(v["local", "transport shm"]["verdict"], "ok", v)

    @unittest.skipIf(os.geteuid(), "network namespaces need root")
    def test_without_loopback_that_is_said_once(self):
        got = doctor("--json", wrapper=("unshare", "-n"))
        table = self.verdicts(got)
        self.assertEqual(table["local", "loopback"]["verdict"], "FAIL")
        self.assertEqual(table["local", "loopback"]["remedy"], "`ip link set lo up`")
        self.assertEqual(table["local", "devices"]["verdict"], "warn")
        self.assertFalse([what for _, what in table if what.startswith("transport")], table)

    @unittest.skipIf(os.geteuid(), "a smaller buffer needs privilege to be given up")
    def test_small_socket_buffers(self):
        default = int(pathlib.Path("/proc/sys/net/core/rmem_max").read_text())
        if default >= 2 << 20 or not shutil.which("setpriv"):
            self.skipTest(f"net.core.rmem_max is {default}, or there is no setpriv")
        v = self.verdicts(doctor("--json", wrapper=("setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin")))["local", "socket buffers"]
        self.assertEqual(v["verdict"], "warn")
        self.assertIn("rmem_max", v["remedy"])

    def test_wrong_usage(self):
        for args in (("--serve", "x"), ("--serve", "--json"), ("--once",), ("a", "b"), ("--nope",), ("[::1",), ("",)):
            got = doctor(*args)
            self.assertEqual((got.returncode, got.stdout), (2, ""), args)
            self.assertIn("--help", got.stderr)


class Peer(threading.Thread):
    """Somebody else on that port: says something to whoever connects, or nothing."""

    def __init__(self, say):
        super().__init__(daemon=True)
        self.say, self.listener, self.taken = say, socket.create_server(("127.0.0.1", 0)), []
        self.port = self.listener.getsockname()[1]
        self.start()

    def run(self):
        try:
            while True:
                s, _ = self.listener.accept()
                self.taken.append(s)
                if self.say:
                    s.sendall(self.say)
        except OSError:
            pass

    def stop(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for s in self.taken:
            s.close()


class FakeDoctor(threading.Thread):
    """Says what it is told to, over the library itself; says no more when it has said all."""

    def __init__(self, answers):
        super().__init__(daemon=True)
        self.lib, self.answers, self.ending = ctypes.CDLL(str(BUILD / "libropeway.so")), list(answers), False
        self.context, self.listener, self.endpoints, self.keep = ctypes.c_void_p(), ctypes.c_void_p(), [], []
        self.accept = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(lambda _, ep, __: self.endpoints.append(ctypes.c_void_p(ep)))
        self.room = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)(self.allocate)
        if self.lib.rpw_context_create(None, ctypes.byref(self.context)) or self.lib.rpw_listener_create(
                self.context, b"127.0.0.1:0", self.accept, None, ctypes.byref(self.listener)):
            raise OSError("no listener")
        self.port = self.lib.rpw_listener_port(self.listener)
        self.start()

    def allocate(self, size, _):
        self.keep.append(ctypes.create_string_buffer(size + 1))
        return ctypes.addressof(self.keep[-1])

    def run(self):
        receiving, bytes_at, size = None, ctypes.c_void_p(), ctypes.c_size_t()
        while not self.ending:
            if not self.lib.rpw_context_progress(self.context):
                time.sleep(0.001)
            if self.endpoints and self.answers and not receiving:
                receiving = ctypes.c_void_p()
                self.lib.rpw_recv_obj(self.context, self.endpoints[0], self.room, None, ctypes.byref(bytes_at), ctypes.byref(size), ctypes.byref(receiving))
            if receiving and self.lib.rpw_request_test(receiving, None) <= 0:
                self.lib.rpw_request_destroy(receiving)
                receiving, answer = None, self.answers.pop(0)
                self.keep.append(answer)
                self.lib.rpw_send_obj(self.endpoints[0], answer, ctypes.c_size_t(len(answer)), ctypes.byref(ctypes.c_void_p()))
        self.lib.rpw_context_destroy(self.context)

    def stop(self):
        self.ending = True
        self.join()


class Together(Case):
    def test_both_sides_are_told_of(self):
        p, port = self.serve("--once")
        table = self.verdicts(doctor("--json", f"127.0.0.1:{port}"))
        for what in ("bootstrap port", "path", "path by verbs", "versions", "UDP port 4791", "UDP port 4791 back", "MTU", "MTU back"):
            self.assertEqual(table["between", what]["verdict"], "ok", table)
        for what in ("version", "memlock", "transport tcp"):
            self.assertEqual(table["peer", what]["verdict"], "ok", table)
        self.assertRegex(table["between", "path"]["text"], r"^shm \(.*\), because same host")
        out, _ = p.communicate(timeout=TIMEOUT_S)
        self.assertEqual((p.returncode, out), (0, "a client was served\n"))

    def test_three_sections(self):
        _, port = self.serve("--once")
        got = doctor(f"localhost:{port}").stdout
        self.assertEqual(re.findall(r"^(\S.*):$", got, re.M), ["this machine", "localhost", "this machine and localhost"])

    def test_what_is_forced_on_one_side_is_not_on_the_talk(self):
        for here, there in (("verbs", "tcp"), ("shm", ""), ("", "shm")):
            _, port = self.serve("--once", env=os.environ | {"ROPEWAY_TRANSPORT": there})
            table = self.verdicts(doctor("--json", f"127.0.0.1:{port}", env=os.environ | {"ROPEWAY_TRANSPORT": here}))
            self.assertEqual(table["between", "bootstrap port"]["verdict"], "ok", table)
            self.assertEqual(table["between", "UDP port 4791 back"]["verdict"], "ok", table)
            if here:
                self.assertIn(f"only {here} was asked for", table["between", "path"]["text"])
            self.assertEqual(("peer", "environment") in table, bool(there))

    def test_one_client_after_another(self):
        p, port = self.serve()
        for _ in range(3):
            self.assertEqual(self.verdicts(doctor("--json", f"127.0.0.1:{port}"))["between", "versions"]["verdict"], "ok")
            self.assertEqual(p.stdout.readline(), "a client was served\n")

    def test_nobody_there(self):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            v = self.verdicts(doctor("--json", f"127.0.0.1:{s.getsockname()[1]}"))["between", "bootstrap port"]
        self.assertEqual(v["verdict"], "FAIL")
        self.assertIn("Connection refused", v["text"])
        self.assertIn("doctor --serve", v["remedy"])
        self.assertNotIn("firewall", v["remedy"])

    def test_a_key_that_is_too_short(self):
        with tempfile.NamedTemporaryFile("w") as f:
            f.write("abc12\n")
            f.flush()
            v = self.verdicts(doctor("--json", "-k", f.name, "127.0.0.1:9"))["between", "bootstrap port"]
        self.assertIn("too short", v["text"])
        self.assertIn("openssl rand -hex 32", v["remedy"])

    def test_a_wrong_key(self):
        with tempfile.NamedTemporaryFile("w") as ours, tempfile.NamedTemporaryFile("w") as theirs:
            for f, text in (ours, "a"), (theirs, "b"):
                f.write(text * 40 + "\n")
                f.flush()
            _, port = self.serve("-k", theirs.name)
            v = self.verdicts(doctor("--json", "-k", ours.name, f"127.0.0.1:{port}"))["between", "bootstrap port"]
            self.assertEqual(v["verdict"], "FAIL")
            self.assertIn(ours.name, v["text"])
            self.assertIn("the same --key-file", v["remedy"])
            self.assertEqual(self.verdicts(doctor("--json", "-k", theirs.name, f"127.0.0.1:{port}"))["between", "bootstrap port"]["verdict"], "ok")

    def test_a_peer_that_is_no_doctor(self):
        echo = subprocess.Popen([BUILD / "examples" / "echo_server", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True)
        self.addCleanup(echo.stdout.close)
        self.addCleanup(echo.wait)
        self.addCleanup(echo.kill)
        port = int(re.match(r"listening on port (\d+)", echo.stdout.readline())[1])
        v = self.verdicts(doctor("--json", f"127.0.0.1:{port}"))["between", "peer"]
        self.assertEqual(v["verdict"], "FAIL")
        self.assertIn("not from a doctor", v["text"])
        self.assertIn("ropeway doctor --serve", v["remedy"])

    def test_a_peer_that_is_no_ropeway(self):
        for say, told in ((b"HTTP/1.1 400 Bad Request\r\n\r\n", "it speaks HTTP"), (b"SSH-2.0-OpenSSH_9.2\r\n", "it speaks SSH"), (b"", "says no hello")):
            peer = Peer(say)
            self.addCleanup(peer.stop)
            v = self.verdicts(doctor("--json", f"127.0.0.1:{peer.port}"))["between", "bootstrap port"]
            self.assertEqual(v["verdict"], "FAIL")
            self.assertIn(told, v["text"])
            self.assertIn("ropeway doctor --serve", v["remedy"])

    def test_a_peer_that_is_stopped(self):
        p, port = self.serve()
        p.send_signal(signal.SIGSTOP)
        v = self.verdicts(doctor("--json", f"127.0.0.1:{port}"))["between", "bootstrap port"]
        p.send_signal(signal.SIGCONT)
        self.assertEqual(v["verdict"], "FAIL")
        self.assertIn("not stopped", v["remedy"])

    def told_by(self, *answers):
        d = FakeDoctor([a if isinstance(a, bytes) else json.dumps(a).encode() for a in answers])
        self.addCleanup(d.stop)
        return doctor("--json", f"127.0.0.1:{d.port}")

    def test_a_doctor_of_another_version(self):
        v = self.verdicts(self.told_by({"doctor": 77, "version": "9.8.7"}))["between", "versions"]
        self.assertEqual(v["verdict"], "FAIL")
        self.assertIn("ropeway 9.8.7) speaks version 77", v["text"])
        self.assertIn("the same release", v["remedy"])

    def test_another_release_that_speaks_the_same(self):
        hello = {"doctor": 3, "version": "9.8.7", "port": 9, "mtu": 1500, "nonce": "0" * 32}
        theirs = {"verdict": "warn", "side": "local", "what": "device \x9b31mx", "text": "a\x1b[2Jb\u202ec", "remedy": "d\ne"}
        table = self.verdicts(self.told_by(hello, {"doctor": 3}, {"doctor": 3, "verdicts": []}, {"doctor": 3, "verdicts": [theirs]}))
        self.assertEqual(table["between", "versions"]["verdict"], "warn")
        self.assertIn("9.8.7 there", table["between", "versions"]["text"])
        told = table["peer", "device ?31mx"]  # no control character gets through
        self.assertEqual((told["text"], told["remedy"]), ("a?[2Jb?c", "d?e"))

    def test_answers_that_no_doctor_gives(self):
        hello = {"doctor": 3, "version": "1", "port": 9, "mtu": 1500, "nonce": "0" * 32}
        for answers in ([b"not json"], [b"[]"], [b""], [{"doctor": "3"}], [{"doctor": 3}], [hello | {"port": 65536}], [hello | {"nonce": "0" * 31}], [hello | {"mtu": -1}],
                        [hello, {}], [hello, {"doctor": 3}, {"doctor": 3, "verdicts": {}}], [hello, {"doctor": 3}, {"doctor": 3, "verdicts": [{"verdict": "fine"}]}],
                        [b"0" * (1 << 19)]):
            v = self.verdicts(self.told_by(*answers))["between", "peer"]
            self.assertEqual(v["verdict"], "FAIL", answers)
            self.assertTrue(v["remedy"])

    def test_two_clients_at_once(self):
        """Served in turn, or told that it is busy."""
        _, port = self.serve()
        both = [subprocess.Popen([BUILD / "ropeway", "doctor", "--json", f"127.0.0.1:{port}"], stdout=subprocess.PIPE, text=True) for _ in range(2)]
        tables = []
        for p in both:
            out, _ = p.communicate(timeout=TIMEOUT_S)
            tables.append(self.verdicts(subprocess.CompletedProcess([], p.returncode, out)))
        served = [("between", "path") in table for table in tables]
        self.assertTrue(any(served), tables)
        for table, was_served in zip(tables, served):
            self.assertTrue(was_served or "busy" in table["between", "peer"]["remedy"], table)

    def test_a_name_that_nobody_knows(self):
        v = self.verdicts(doctor("--json", "no-such-host.invalid"))["between", "bootstrap port"]
        self.assertEqual(v["verdict"], "FAIL")
        self.assertIn("name service", v["text"])
        self.assertIn("/etc/hosts", v["remedy"])

    @unittest.skipIf(os.geteuid(), "a resolv.conf and a network of its own need root")
    def test_a_name_service_that_refuses_or_is_silent(self):
        """EAI_AGAIN: what is to be mended is here, not there, and it is no firewall."""
        inside = ("import socket, subprocess, sys\n"
                  "subprocess.run(['sh', '-c', 'ip link set lo up && mount --bind \"$0\" /etc/resolv.conf && { umount /etc/nsswitch.conf 2>/dev/null; mount --bind \"$1\" /etc/nsswitch.conf; }', sys.argv[1], sys.argv[2]], check=True)\n"
                  "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
                  "sys.argv[3] == 'silent' and s.bind(('127.0.0.1', 53))\n"
                  "sys.exit(subprocess.call(sys.argv[4:]))")
        for how, said in ("refuses", "Temporary failure in name resolution"), ("silent", "its name service does not answer"):
            with self.subTest(how), tempfile.NamedTemporaryFile("w") as f, tempfile.NamedTemporaryFile("w") as order:
                f.write("nameserver 127.0.0.1\n")
                f.flush()
                order.write("hosts: files dns\n")  # script/test's stages have files alone, in a file that is deleted: the kernel mounts nothing over it
                order.flush()
                v = self.verdicts(doctor("--json", "node7.example", wrapper=("unshare", "-mn", sys.executable, "-c", inside, f.name, order.name, how)))["between", "bootstrap port"]
                self.assertEqual(v["verdict"], "FAIL")
                self.assertIn(said, v["text"])
                self.assertTrue(v["remedy"].startswith("give this host a name service that answers"), v["remedy"])
                for word in ("firewall", "--serve"):
                    self.assertNotIn(word, v["remedy"])


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
        table = self.verdict()
        for what in "MTU", "MTU back":
            self.assertEqual(table["between", what]["verdict"], "ok")
            self.assertIn("1500 bytes arrive, and their answers: RoCE can use an MTU of 1024", table["between", what]["text"])
        for what in "UDP port 4791", "UDP port 4791 back":
            self.assertEqual(table["between", what]["verdict"], "ok")
            self.assertIn("reachable at 10.77.0.", table["between", what]["text"])
        self.assertIn("verbs: would do", table["between", "path"]["text"])
        self.assertIn("rpw_v0", table["between", "path by verbs"]["text"])

    def test_a_way_by_ipv6(self):
        for i in (0, 1):
            self.run_in(i, f"ip address add fd77::{i + 1}/64 dev v{i} nodad")
        _, port = self.serve(address=":0", wrapper=self.inside(1))
        table = self.verdicts(doctor("--json", f"[fd77::2]:{port}", wrapper=self.inside(0)))
        for what in "bootstrap port", "UDP port 4791", "UDP port 4791 back", "MTU", "MTU back", "path":
            self.assertEqual(table["between", what]["verdict"], "ok", table)
        self.assertIn("fd77::1", table["between", "UDP port 4791 back"]["text"])

    def test_interfaces_that_differ_in_mtu(self):
        """The route says 1500, and packets of 1300 arrive: enough for RoCE, which agrees on what both interfaces take."""
        for mtu, roce in ((1300, 1024), (1000, 512)):
            self.run_in(1, f"ip link set v1 mtu {mtu}")
            table = self.verdict()
            self.assertEqual(table["between", "MTU"]["verdict"], "warn", table)
            self.assertIn(f"1500 bytes, as the interface takes, do not arrive; up to {mtu} they do", table["between", "MTU"]["text"])
            self.assertIn(f"mtu {mtu}`", table["between", "MTU"]["remedy"])
            self.assertEqual(table["between", "MTU back"]["verdict"], "ok", table)
            self.assertIn(f"MTU of {roce}", table["between", "MTU back"]["text"])

    def test_a_link_between_that_is_narrower(self):
        """Both interfaces take 1500 bytes, what lies between them 1000, and nobody says so."""
        p = subprocess.Popen(["unshare", "-n", "sh", "-c", "echo && exec sleep 300"], stdout=subprocess.PIPE)
        self.addCleanup(p.stdout.close)
        self.addCleanup(p.wait)
        self.addCleanup(p.kill)
        p.stdout.readline()
        self.ns.append(p.pid)
        self.run_in(0, "ip link del v0")
        for i in (0, 1):
            self.run_in(i, f"ip link add v{i} type veth peer name b{i} netns {p.pid} && ip address add 10.77.0.{i + 1}/24 dev v{i} && ip link set v{i} up")
        if subprocess.run([*self.inside(2), "sh", "-c", "ip link add br0 type bridge"], stderr=subprocess.DEVNULL, check=False).returncode:
            self.skipTest("this kernel has no bridges")
        self.run_in(2, "for b in b0 b1; do ip link set $b mtu 1000 master br0 up; done; ip link set br0 up")
        for i in (0, 1):
            self.run_in(i, f"for i in $(seq 100); do ip link show v{i} | grep -q 'state UP' && exit; sleep 0.1; done; exit 1")
        table = self.verdict()
        for what in "MTU", "MTU back":
            self.assertEqual(table["between", what]["verdict"], "FAIL", table)
            self.assertIn("up to 1000 they do: larger messages hang", table["between", what]["text"])
        self.assertTrue(("peer", "version") in table or "MTU" in table["between", "peer"]["remedy"], table)

    def test_a_firewall_before_the_bootstrap_port(self):
        _, port = self.serve(address=":0", wrapper=self.inside(1))
        self.block(1, "tcp", port)
        v = self.verdicts(doctor("--json", f"10.77.0.2:{port}", wrapper=self.inside(0)))["between", "bootstrap port"]
        self.assertEqual(v["verdict"], "FAIL")
        self.assertIn("a firewall that drops", v["text"])
        self.assertIn("firewalls of both sides", v["remedy"])

    def test_no_route(self):
        v = self.verdicts(doctor("--json", "192.0.2.7", wrapper=self.inside(0)))["between", "bootstrap port"]
        self.assertEqual(v["verdict"], "FAIL")
        self.assertIn("Network is unreachable: has this host a route to it", v["text"])
        self.assertIn("ip route add", v["remedy"])

    def test_another_namespace_of_this_host_is_told_from_another_host(self):
        _, port = self.serve(address=":0", wrapper=self.inside(1))
        v = self.verdicts(doctor("--json", f"10.77.0.2:{port}", wrapper=self.inside(0)))["between", "place"]
        self.assertEqual(v["verdict"], "warn")
        self.assertIn("on this host, in another namespace (net):", v["text"])
        for flags, what in (["-pf", "--kill-child", "--mount-proc"], "net, pid"), (["-U"], "net, user"):
            _, port = self.serve(address=":0", wrapper=[*self.inside(1), "unshare", *flags])
            v = self.verdicts(doctor("--json", f"10.77.0.2:{port}", wrapper=self.inside(0)))["between", "place"]
            self.assertIn(f"in another namespace ({what}):", v["text"])

    def block(self, i, protocol, port):
        """A packet for that port that comes to side i is lost there, as by a firewall; answers to what it sent itself are not for that port."""
        rules = f"ip rule add pref 10 lookup local && ip rule del pref 0 && ip rule add pref 5 iif v{i} ipproto {protocol} dport {port} blackhole"
        if subprocess.run([*self.inside(i), "sh", "-c", rules], stderr=subprocess.DEVNULL, timeout=TIMEOUT_S, check=False).returncode:
            self.skipTest("this kernel has no such rules")

    def test_port_4791_is_looked_at_from_both_sides(self):
        there, back = ("between", "UDP port 4791"), ("between", "UDP port 4791 back")
        for blocked, key, other in ((1, there, back), (0, back, there)):
            self.block(blocked, "udp", 4791)
            table = self.verdict()
            self.assertEqual(table[key]["verdict"], "FAIL", table)
            self.assertIn("4791", table[key]["remedy"])
            self.assertIn(f"10.77.0.{blocked + 1}", table[key]["text"])
            self.assertEqual(table[other]["verdict"], "ok", table)
            self.assertEqual(table["between", "path"]["verdict"], "ok", table)
            self.assertEqual(table["between", "path by verbs"]["verdict"], "warn", table)
            self.run_in(blocked, "ip rule del pref 5")

    def hold(self, line):
        """A process on side 1 that holds UDP port 4791."""
        holder = subprocess.Popen([*self.inside(1), sys.executable, "-c",
                                   f"import socket,sys\ns=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\n{line}\nprint('held',flush=True)\nsys.stdin.read()"],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.addCleanup(holder.stdout.close)
        self.addCleanup(holder.wait)
        self.addCleanup(holder.stdin.close)
        holder.stdout.readline()

    def test_a_held_port_is_not_taken_for_reachable(self):
        self.hold("s.bind(('',4791))")
        table = self.verdict()
        self.assertEqual(table["between", "UDP port 4791"]["verdict"], "warn", table)
        self.assertIn("another program at 10.77.0.2", table["between", "UDP port 4791"]["text"])
        self.assertIn("ss -uanp", table["between", "UDP port 4791"]["remedy"])
        self.assertEqual(table["between", "UDP port 4791 back"]["verdict"], "ok", table)
        held = [v for (side, what), v in table.items() if side == "peer" and what.startswith("device") and v["verdict"] == "FAIL"]
        self.assertTrue(held and all("4791" in v["text"] for v in held), table)

    def test_a_port_in_use_is_reachable_if_a_path_goes_by_it(self):
        """What holds it there does so at another address, as another program's software device may."""
        self.hold("s.bind(('127.0.0.1',4791))")
        table = self.verdict()
        self.assertEqual(table["between", "path by verbs"]["verdict"], "ok", table)
        self.assertEqual(table["between", "UDP port 4791"]["verdict"], "ok", table)
        self.assertIn("a path over verbs uses it", table["between", "UDP port 4791"]["text"])

    def test_what_one_client_held_is_free_for_the_next(self):
        _, port = self.serve(address=":0", wrapper=self.inside(1))
        for _ in range(2):
            table = self.verdicts(doctor("--json", f"10.77.0.2:{port}", wrapper=self.inside(0)))
            self.assertEqual(table["between", "path by verbs"]["verdict"], "ok", table)
            self.assertIn("reachable at 10.77.0.2", table["between", "UDP port 4791"]["text"])


if __name__ == "__main__":
    BUILD = pathlib.Path(sys.argv[1]).resolve()
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
