#!/usr/bin/python3
"""Runs the examples as their readers would: a process that listens and one that connects, over one transport.

Usage: examples_test.py DIR_OF_EXAMPLES TRANSPORT
"""
import os
import pathlib
import re
import subprocess
import sys
import unittest

DIR = pathlib.Path(".")
TRANSPORT = ""
TIMEOUT_S = 60


class Program:
    """A process whose output is read line by line; killed when the test is over, whatever happened."""

    def __init__(self, case, *args, stdin=subprocess.DEVNULL):
        env = dict(os.environ, ROPEWAY_TRANSPORT=TRANSPORT)
        self.p = subprocess.Popen([DIR / args[0], *map(str, args[1:])], env=env, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        case.addCleanup(self.stop)
        self.case = case

    def stop(self):
        if self.p.poll() is None:
            self.p.kill()
        self.p.wait()
        for stream in (self.p.stdin, self.p.stdout):
            if stream and not stream.closed:
                stream.close()

    def port(self):
        line = self.p.stdout.readline()
        found = re.fullmatch(r"listening on port (\d+)\n", line)
        self.case.assertTrue(found, line)
        return int(found[1])

    def end(self, text=None):
        """Its remaining output, after a successful end."""
        out, _ = self.p.communicate(text, timeout=TIMEOUT_S)
        self.case.assertEqual(self.p.returncode, 0, out)
        return out


class Examples(unittest.TestCase):
    def pair(self, name, *args):
        """One program that listens and connects; both outputs."""
        server = Program(self, name, "listen", "127.0.0.1:0", *args)
        client = Program(self, name, "connect", f"127.0.0.1:{server.port()}", *args)
        outs = client.end(), server.end()
        for out in outs:
            self.assertIn(f" by {TRANSPORT} (", out)
        return outs

    def test_echo_gives_back_objects_of_any_size_to_several_clients(self):
        sizes = 0, 1, 1000, 65537, 5000001
        server = Program(self, "echo_server", "127.0.0.1:0", len(sizes))
        address = f"127.0.0.1:{server.port()}"
        clients = [Program(self, "echo_client", address, n) for n in sizes]
        for n, client in zip(sizes, clients):
            out = client.end()
            self.assertIn(f"{n} bytes came back as they went", out)
            self.assertIn(f" by {TRANSPORT} (", out)
        out = server.end()
        for n in sizes:
            self.assertIn(f"an object of {n} bytes", out)
        self.assertEqual(out.count("a client has left"), len(sizes), out)

    def test_echo_client_without_a_server_says_so(self):
        # A port that was free a moment ago.
        server = Program(self, "echo_server", "127.0.0.1:0")
        port = server.port()
        server.stop()
        out, _ = Program(self, "echo_client", f"127.0.0.1:{port}").p.communicate(timeout=TIMEOUT_S)
        self.assertIn("rpw_endpoint_create: RPW_ERR_", out)
        self.assertIn(str(port), out)

    def test_ping_pong_checks_every_message(self):
        for count, size in ((1000, 8), (300, 0), (50, 300001)):
            for out in self.pair("ping_pong", count, size):
                self.assertRegex(out, rf"(?m)^{count} rounds of {size} bytes, [\d.]+ us one way$")

    def test_ping_pong_notices_what_is_not_as_expected(self):
        server = Program(self, "ping_pong", "listen", "127.0.0.1:0", 10, 64)
        client = Program(self, "ping_pong", "connect", f"127.0.0.1:{server.port()}", 10, 32)
        out, _ = server.p.communicate(timeout=TIMEOUT_S)
        self.assertEqual(server.p.returncode, 1, out)
        self.assertIn("round 0: 32 bytes with tag 0x100 came", out)
        client.stop()

    def test_put_notify_tells_after_the_bytes_are_there(self):
        client, server = self.pair("put_notify", 50)
        self.assertIn("50 blocks were put, and the peer has checked them", client)
        self.assertIn("50 blocks of 100000 bytes arrived, each as it should be", server)

    def said(self, program, lines):
        """So many lines of what the peer typed; the line about the connection is somewhere between them."""
        got = [program.p.stdout.readline() for _ in range(lines + 1)]
        self.assertEqual(sum(line.startswith("connected to") for line in got), 1, got)
        return "".join(line for line in got if not line.startswith("connected to"))

    def test_epoll_loop_carries_what_is_typed_both_ways(self):
        server = Program(self, "epoll_loop", "listen", "127.0.0.1:0", stdin=subprocess.PIPE)
        client = Program(self, "epoll_loop", "connect", f"127.0.0.1:{server.port()}", stdin=subprocess.PIPE)
        there = "".join(f"line {i} of the client {i * i}\n" for i in range(2000))
        back = "".join(f"line {i} of the server {i * 7}\n" for i in range(50))
        server.p.stdin.write(back)
        server.p.stdin.flush()
        self.assertEqual(self.said(client, 50), back)
        client.p.stdin.write(there)
        client.p.stdin.close()
        client.p.stdin = None
        self.assertEqual(self.said(server, 2000), there)
        server.p.stdin.close()
        server.p.stdin = None
        self.assertEqual((client.end(), server.end()), ("", ""))

    def test_epoll_loop_notices_a_peer_that_dies(self):
        server = Program(self, "epoll_loop", "listen", "127.0.0.1:0", stdin=subprocess.PIPE)
        client = Program(self, "epoll_loop", "connect", f"127.0.0.1:{server.port()}", stdin=subprocess.PIPE)
        self.assertIn("connected to", server.p.stdout.readline())
        client.stop()
        out, _ = server.p.communicate(timeout=TIMEOUT_S)
        self.assertEqual(server.p.returncode, 1, out)
        self.assertIn("gone without a goodbye (RPW_ERR_PEER_GONE)", out)


if __name__ == "__main__":
    DIR, TRANSPORT = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2]
    unittest.main(argv=sys.argv[:1], verbosity=2)
