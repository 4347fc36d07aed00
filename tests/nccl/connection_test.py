#!/usr/bin/python3
"""test_connection between two processes: each version of the plugin API, who starts first, what does not fit, who is not there, who is killed, and strangers.

Usage: connection_test.py TEST_CONNECTION PLUGIN OTHER_PLUGIN QUIRK_PLUGIN MUTANTS
"""
import contextlib
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import unittest

PROGRAM = PLUGIN = OTHER = QUIRK = MUTANTS = ""  # MUTANTS: their path with %d in it
TIMEOUT_S = 100
QUICK = ("--max-size", "64K")
HEX = re.compile(r"(own|its) handle, 32 of (\d+) bytes: ((?:[0-9a-f]{2} ){31}[0-9a-f]{2})$", re.M)


class Side:
    """One process; its lines are read as they come."""

    def __init__(self, case, *args, env=None, wrapper=()):
        self.case, self.lines = case, []
        self.process = subprocess.Popen([*wrapper, PROGRAM, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                        env=dict(os.environ, LC_ALL="C", **(env or {})))
        case.addCleanup(self.process.stdout.close)
        case.addCleanup(self.process.wait)
        case.addCleanup(lambda: self.process.poll() is None and self.process.kill())

    def until(self, pattern):
        """The match in the first line that has it."""
        for line in self.process.stdout:
            self.lines.append(line)
            found = re.search(pattern, line)
            if found:
                return found
        self.case.fail(f"no line has {pattern!r}:\n{self.text()}")

    def text(self):
        return "".join(self.lines)

    def end(self):
        """Exit status."""
        self.lines += self.process.stdout.readlines()
        return self.process.wait(TIMEOUT_S)

    def kill(self, number=signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)


class Case(unittest.TestCase):
    def server(self, *args, plugin=None, **kw):
        s = Side(self, "server", "--plugin", plugin or PLUGIN, "--bind", "127.0.0.1", "--port", 0, *args, **kw)
        return s, int(s.until(r"waiting for a client on port (\d+)")[1])

    def client(self, port, *args, plugin=None, **kw):
        return Side(self, "client", "127.0.0.1", "--plugin", plugin or PLUGIN, "--port", port, *args, **kw)

    def passes(self, *sides):
        for s in sides:
            self.assertEqual(s.end(), 0, s.text())
            self.assertRegex(s.text(), r"(?m)^PASSED: ")
        return [s.text() for s in sides]

    def fails(self, side, *patterns):
        self.assertEqual(side.end(), 1, side.text())
        last = [line for line in side.lines if line.startswith("test_connection: FAILED")]
        self.assertEqual(len(last), 1, side.text())
        for pattern in patterns:
            self.assertRegex(last[0], pattern)
        self.assertNotIn("PASSED", side.text())


class Runs(Case):
    def test_every_version(self):
        for v in range(5, 13):
            with self.subTest(abi=v):
                server, port = self.server("--abi", f"v{v}", *QUICK)
                for text in self.passes(self.client(port, "--abi", f"v{v}", *QUICK), server):
                    self.assertIn(f"API v{v} (NCCL ", text)
                    self.assertEqual(re.findall(r"(?m)^step (\d): ok", text), list("12345678"))
                    self.assertIn('"Hello from TCPX client!", 24 bytes with its NUL', text)
                    self.assertRegex(text, r"memory type 0, which is none: refused")
                    self.assertEqual(len(re.findall(r"device handle 0x", text)), 2 if v >= 7 else 0)
                    self.assertEqual(re.findall(r"(\d+) bytes, 4 each way, every byte right", text), ["0", "1", "4095", "4096", "4097", "65536"])

    def test_all_sizes_and_the_handle_in_hex(self):
        server, port = self.server()
        texts = self.passes(self.client(port), server)
        handles = [{whose: (n, octets) for whose, n, octets in HEX.findall(text)} for text in texts]
        self.assertEqual(handles[0]["own"], handles[1]["its"])
        self.assertEqual(handles[1]["own"], handles[0]["its"])
        self.assertEqual(handles[0]["own"][0], "128")
        self.assertNotEqual(handles[0]["own"][1], handles[1]["own"][1])
        for text in texts:
            self.assertRegex(text, r"67108864 bytes, 1 each way, every byte right, received at [\d.]+ GB/s")

    def test_client_first(self):
        with socket.socket() as held:  # bound by two that both allow it: the port stays free until the server listens at it
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            held.bind(("127.0.0.1", 0))
            port = held.getsockname()[1]
            client = self.client(port, *QUICK)
            client.until(r"retry 1: .*(refused|is the program there started)")
            client.until(r"retry 2: ")
            self.passes(Side(self, "server", "--plugin", PLUGIN, "--bind", "127.0.0.1", "--port", port, *QUICK), client)

    def test_every_call_is_shown_on_demand(self):
        for env, shown in (({"UCCL_TCPX_DEBUG": "1"}, True), ({"ROPEWAY_LOG": "debug"}, True), ({"UCCL_TCPX_DEBUG": "0"}, False)):
            server, port = self.server("--max-size", 0)
            text = self.passes(self.client(port, "--max-size", 0, env=env), server)[0]
            for call in ("init", "listen", "connect", "accept", "regMr", "isend", "irecv", "test", "deregMr", "closeSend"):
                self.assertEqual(bool(re.search(rf"plugin v\d+: {call}\(.* = \d+ \(", text)), shown, call)

    def test_the_smaller_size_counts(self):
        server, port = self.server("--max-size", "4K")
        for text in self.passes(self.client(port, "--max-size", 1), server):
            self.assertEqual(re.findall(r"(\d+) bytes, 4 each", text), ["0", "1"])

    def test_without_a_plugin_it_is_our_own(self):
        if pathlib.Path(PROGRAM).parent != pathlib.Path(PLUGIN).parent:
            self.skipTest("the plugin is not beside the program")
        server = Side(self, "server", "--bind", "127.0.0.1", "--port", 0, *QUICK)
        port = server.until(r"waiting for a client on port (\d+)")[1]
        for text in self.passes(Side(self, "client", "localhost", "--port", port, *QUICK), server):
            self.assertIn(f'plugin {PLUGIN} ("ropeway"), API v12 (NCCL', text)


TWO_NAMESPACES = """
set -e
unshare -n sleep 100 & other=$!
trap 'kill $other' EXIT
until [ "$(readlink /proc/$other/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.01; done
ip link add veth0 type veth peer name veth1 netns $other
ip addr add 10.78.0.1/24 dev veth0
ip link set veth0 up
nsenter -t $other -n ip addr add 10.78.0.2/24 dev veth1
nsenter -t $other -n ip link set veth1 up
until ip link show veth0 | grep -q 'state UP' && nsenter -t $other -n ip link show veth1 | grep -q 'state UP'; do sleep 0.01; done
nsenter -t $other -n "$0" client 10.78.0.1 "$@" & client=$!
"$0" server --bind 10.78.0.1 "$@"
wait $client
"""


class Hosts(unittest.TestCase):
    def test_two_network_namespaces(self):
        """As two machines: no shared memory, no loopback; the client may be first."""
        unshare = ["unshare", "-n"] if os.geteuid() == 0 else ["unshare", "-Urn"]
        if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode:
            self.skipTest("no network namespace can be made here")
        got = subprocess.run([*unshare, "bash", "-c", TWO_NAMESPACES, PROGRAM, "--plugin", PLUGIN, "--max-size", "1025K", "--timeout", "60"], capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
                             env=dict(os.environ, NCCL_DEBUG="INFO"))
        text = got.stdout + got.stderr
        self.assertEqual(got.returncode, 0, text)
        self.assertEqual(len(re.findall(r"(?m)^PASSED: ", text)), 2, text)
        self.assertEqual(set(re.findall(r"device 0: (\w+),", text)), {"veth0", "veth1"}, text)
        for whose, mine, its in (("server", 0, "10.78.0.1"), ("client", 1, "10.78.0.2")):
            where = rf"listens on device 0, veth{mine}, address(?:es)? [^;]*\b{re.escape(its)}\b[^;]*; which address and port are in use, only the handle says$"
            self.assertRegex(text, rf"(?m)^  2  the plugin {where}")
            self.assertRegex(text, rf"(?m)^  3  the {whose} says that its plugin {where}")
        self.assertRegex(text, r"waiting for a client on port 12345 of 10\.78\.0\.1, for 60 s at most")
        self.assertNotIn("by shm", text)


class Misfits(Case):
    def test_another_version(self):
        server, port = self.server("--abi", "v7")
        client = self.client(port, "--abi", "v5")
        self.fails(client, r"in step 3", r"server uses v7, you v5; start both with --abi v5$")
        self.fails(server, r"in step 3", r"client uses v5, you v7; start both with --abi v5$")

    def test_another_plugin(self):
        server, port = self.server("--abi", "v9", plugin=OTHER)
        client = self.client(port, "--abi", "v9")
        self.fails(client, r'server uses the plugin "\S+", you "\S+".*same --plugin')
        self.fails(server, r'client uses the plugin "\S+", you "\S+".*same --plugin')

    def test_no_server(self):
        with socket.socket() as held:
            held.bind(("127.0.0.1", 0))
            client = self.client(held.getsockname()[1], "--timeout", 1)
            self.fails(client, r"in step 3.*no server within 1 s.*is the program there started")
            self.assertIn("retry 1: ", client.text())

    def test_no_client(self):
        server, port = self.server("--timeout", 1)
        self.fails(server, rf"no client has come within 1 s.*--port {port}")

    def test_what_is_no_plugin(self):
        for args, why in ((("--plugin", "/nonexistent/plugin.so"), "cannot open shared object"), (("--plugin", "libc.so.6"), "exports none of ncclNetPlugin_v"),
                          (("--plugin", PLUGIN, "--device", "77"), r"device 77 was asked for")):
            with self.subTest(args=args):
                self.fails(Side(self, "server", *args, "--bind", "127.0.0.1", "--port", 0), why)

    def test_wrong_usage(self):
        for args, why in (((), "expected 'server', or 'client'"), (("both",), "not 'both'"), (("client",), "needs the address"), (("server", "127.0.0.1"), "--bind"),
                          (("client", "::1", "--bind", "::1"), "is the server's"), (("client", "::1", "--port", "0"), "port 0"), (("server", "--abi", "v13"), "v4 to v12"),
                          (("server", "--abi", "v"), "v4 to v12"), (("server", "--port", "65536"), "65535"), (("server", "--timeout", "0"), "seconds"),
                          (("server", "--max-size", "65M"), "64M"), (("server", "--max-size", "1x"), "64M"), (("server", "--device", "-1"), "number"), (("server", "--nonsense"), "nonsense")):
            with self.subTest(args=args):
                s = Side(self, *args)
                self.assertEqual(s.end(), 2, s.text())
                self.assertIn(why, s.text())
                self.assertIn("--help", s.text())
        s = Side(self, "--help")
        self.assertEqual(s.end(), 0)
        self.assertIn("--plugin", s.text())


class Others(Case):
    """Other people's plugins: those that differ, and those that are wrong."""

    def pair(self, plugin, *args, env=None):
        server, port = self.server(*QUICK, *args, plugin=plugin, env=env)
        return self.client(port, *QUICK, *args, plugin=plugin, env=env), server

    def test_quirks_are_lived_with(self):
        for quirk in ("fifo", "sixteen", "nosizes", "mhandle", "stale", "consumed", "unpack", "device", "notnow", "flush", "blocks", "once", "fifo,nosizes,notnow,consumed,flush,blocks"):
            with self.subTest(quirk=quirk):
                for text in self.passes(*self.pair(QUIRK, env={"QUIRK": quirk})):
                    self.assertEqual("test says nothing of sizes" in text, "nosizes" in quirk)
        self.passes(*self.pair(QUIRK, "--abi", "v4", env={"QUIRK": "blocks"}))

    def test_a_device_that_is_no_network_interface(self):
        for text in self.passes(*self.pair(QUIRK, env={"QUIRK": "hca"})):
            self.assertEqual(len(re.findall("listens on device 0, quirk_0, its port 1, which is not the name of a network interface with an address; which address and port are in use, only the handle says\n", text)), 2, text)

    def test_what_cannot_be_is_said(self):
        for quirk, why in (("nohost", "none of the host's"), ("nodevice", "device 0 was asked for"), ("noinit", "init gave")):
            with self.subTest(quirk=quirk):
                s = Side(self, "server", "--plugin", QUIRK, "--bind", "127.0.0.1", "--port", 0, "--timeout", 5, env={"QUIRK": quirk})
                if quirk == "nohost":
                    port = s.until(r"waiting for a client on port (\d+)")[1]
                    self.client(port, "--timeout", 5, plugin=QUIRK, env={"QUIRK": quirk}).end()
                self.fails(s, why)

    def test_a_call_that_does_not_return(self):
        client, server = self.pair(QUIRK, "--timeout", 2, env={"QUIRK": "stuck"})
        self.fails(server, r"in step 4 \(accept.*a call of the plugin has not returned")
        self.fails(client, r"in step 4|gone")

    def test_mutants_are_found(self):
        for number, sides in ((1, r"test says that \d+ bytes came, \d+ were sent"), (2, r"accept \(the comm stays NULL\): not over within 3 s"), (14, r"is damaged: when test says done, byte \d+ is wrong \(0x..\)")):
            with self.subTest(mutant=number):
                client, server = self.pair(MUTANTS % number, "--timeout", 3)
                self.assertEqual((client.end(), server.end()), (1, 1), client.text() + server.text())
                self.assertRegex(client.text() + server.text(), sides)


class Faults(Case):
    def killed(self, who, line):
        """Where the other one was faster than the kill, again."""
        for _ in range(4):
            server, port = self.server("--timeout", 20)
            client = self.client(port, "--timeout", 20)
            victim, other = (server, client) if who == "server" else (client, server)
            victim.until(line)
            victim.kill()
            if victim.end() == -signal.SIGKILL and other.end():
                self.fails(other, r"FAILED in step \d", r"gone|gives .*error")
                return
        self.fail("four times the kill came too late")

    def test_server_killed_while_connecting(self):
        self.killed("server", "step 3: ok")

    def test_server_killed_between_messages(self):
        self.killed("server", "step 7 of 8")

    def test_client_killed_between_messages(self):
        self.killed("client", "step 7 of 8")

    def test_a_side_that_stops_is_not_waited_for_beyond_the_deadline(self):
        server, port = self.server("--timeout", 3)
        client = self.client(port, "--timeout", 3)
        server.until("step 7 of 8")
        server.kill(signal.SIGSTOP)
        self.fails(client, r"not over within 3 s|not returned")
        server.kill()

    def test_strangers(self):
        server, port = self.server(*QUICK)
        with contextlib.ExitStack() as stack:
            for octets in (b"", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"\x93ropeway" + b"\xff" * 600, b"", bytes(4096)):
                s = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
                with contextlib.suppress(OSError):
                    s.sendall(octets)
            self.passes(self.client(port, *QUICK), server)

    def test_another_program_of_ropeway_is_a_stranger(self):
        server, port = self.server(*QUICK)
        other = subprocess.run([pathlib.Path(PROGRAM).parent / "ropeway", "perf", f"127.0.0.1:{port}"], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        self.assertEqual(other.returncode, 1, other.stdout + other.stderr)
        self.assertIn("is not a test_connection of this version", self.passes(self.client(port, *QUICK), server)[1])

    def test_one_client_at_a_time(self):
        server, port = self.server("--timeout", 60, plugin=QUIRK)
        first = self.client(port, "--timeout", 60, plugin=QUIRK, env={"QUIRK": "stuck"})
        first.until("step 4 of 8")
        self.fails(self.client(port, plugin=QUIRK), "the server gave up: it is busy with another client")
        first.kill()
        self.fails(server, "the other side is gone")


if __name__ == "__main__":
    PROGRAM, PLUGIN, OTHER, QUIRK, MUTANTS = (str(pathlib.Path(p).resolve()) for p in sys.argv[1:6])
    unittest.main(argv=sys.argv[:1] + sys.argv[6:], verbosity=2)
