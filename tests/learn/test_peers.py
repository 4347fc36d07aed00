#!/usr/bin/python3
"""The write/read programs and the send-recv programs with each other: each gets what the other had, and says what the reader expects."""
import os
import re
import unittest

from pair import Program
from peers import (ADDRESS, C_LOCALE, FLUSHED, PeerCase, addresses, client, descriptors, local_buffers, program, remote_buffers, server, stop,
                   text_client, text_server, wait_for_count, wait_until)


class WriteRead(PeerCase):
    def one(self, mode, address):
        with server("-n", 1, mode, address=address) as (s, port), client(port, mode, address=address) as c:
            of_client = c.end()
            of_server = s.end()
        self.check_pair(of_server, of_client)
        return of_server[1], of_client[1]

    def test_both_modes_on_both_families(self):
        for mode in ("write", "read"):
            for address in addresses():
                with self.subTest(mode=mode, address=address):
                    self.one(mode, address)

    def test_what_they_print(self):
        for mode, doing in (("write", "    writing 4096 bytes to the peer's memory"), ("read", "    reading 4096 bytes of the peer's memory")):
            with self.subTest(mode=mode):
                s, c = self.one(mode, ADDRESS)
                self.check_line_order(s, "received connection request.", "connected. posting send...", doing, "peer disconnected.")
                self.check_line_order(c, "address resolved.", "route resolved.", "connected. posting send...", doing, "disconnected.")
                for out in (s, c):
                    # MR, DONE, and the receive that nothing comes for. A peer that has our DONE may leave before our device knows that
                    # it has: then our DONE is flushed, too.
                    sends = out.count("send completed successfully.\n")
                    self.assertIn(sends, (1, 2), out)
                    self.assertEqual(sends + out.count(FLUSHED + "\n"), 3, out)
                    self.assertRegex(out, r"(?m)^received message: MR, address 0x[0-9a-f]+, rkey 0x[0-9a-f]+, length 4096$")
                    self.assertIn("\nreceived message: DONE\n", out)
                    changes = re.findall(r"(?m)^([SR]S_\w+ -> \w+)$", out)
                    self.assertEqual([c for c in changes if c.startswith("SS")],
                                     ["SS_INIT -> SS_MR_SENT", "SS_MR_SENT -> SS_RDMA_SENT", "SS_RDMA_SENT -> SS_DONE_SENT"][:sends + 1])
                    self.assertEqual([c for c in changes if c.startswith("RS")],
                                     ["RS_INIT -> RS_MR_RECV", "RS_MR_RECV -> RS_DONE_RECV"])
                    self.assertRegex(out, r"(?m)^remote buffer: message from (server|client) \d+, number 1, seed [0-9a-f]{16}$")

    def test_status_of_each_completion(self):
        for mode in ("write", "read"):
            with server("-n", 1, "-v", mode) as (s, port), client(port, "--verbose", mode) as c:
                of_client, of_server = c.end(), s.end()
            self.check_pair(of_server, of_client)
            for _, out, _ in (of_server, of_client):
                # besides the SENDs: the RDMA operation, and the receives of MR and DONE
                self.assertEqual(out.count("wc->status = 0 (success)\n"), out.count("send completed successfully.\n") + 3, out)
        self.assertNotIn("wc->status = 0", "".join(self.one("write", ADDRESS)))

    def test_texts_tell_who_wrote_them(self):
        with server("-n", 1, "write") as (s, port), client(port, "write") as c:
            of_client, of_server = c.end(), s.end()
            self.assertIn(f"remote buffer: message from client {c.process.pid}, ", of_server[1])
            self.assertIn(f"remote buffer: message from server {s.process.pid}, ", of_client[1])

    def test_two_pairs_at_once(self):
        with server("-n", 1, "write") as (s1, port1), server("-n", 1, "read") as (s2, port2):
            with client(port1, "write") as c1, client(port2, "read") as c2:
                results = [p.end() for p in (c1, c2, s1, s2)]
        self.check_pair(results[2], results[0])
        self.check_pair(results[3], results[1])

    def test_many_clients_at_once(self):
        many = 20
        with server("-n", many, "write") as (s, port):
            clients = [client(port, "write") for _ in range(many)]
            try:
                results = [c.end() for c in clients]
            finally:
                for c in clients:
                    c.__exit__()
            for result in results:  # before the server: it waits for one who failed
                self.check_success(result)
            of_server = s.end()
        self.check_success(of_server)
        theirs, got = {}, {}
        for result in results:
            self.check_success(result)
            theirs |= local_buffers(result[1])
            got |= remote_buffers(result[1])
        self.assertEqual(len(theirs), many)
        self.assertEqual(remote_buffers(of_server[1]), theirs)
        self.assertEqual(local_buffers(of_server[1]), got)

    def test_one_after_the_other_leaves_nothing_behind(self):
        with server("read") as (s, port):
            self.check_serves(port, "read")
            s.wait_for("peer disconnected.")
            self.assertTrue(wait_until(lambda: os.path.exists(f"/proc/{s.process.pid}/fd")))
            before = None
            for _ in range(5):
                self.check_serves(port, "read")
                if before is None:
                    wait_until(lambda: descriptors(s) <= self.quiet(s))
                    before = descriptors(s)
            self.assertTrue(wait_until(lambda: descriptors(s) <= before), f"{descriptors(s)} descriptors, {before} before")
            wait_for_count(s, "peer disconnected.", 6)
            status, out, err = stop(s)
        self.assertEqual((status, err), (0, ""))
        self.assertEqual(len(remote_buffers(out)), 6)

    def quiet(self, process):
        """The number of descriptors once it has not changed for a while."""
        last, same = descriptors(process), 0
        while same < 5:
            wait_until(lambda: False, 0.05)
            now = descriptors(process)
            last, same = now, same + 1 if now == last else 0
        return last

    def test_default_port(self):
        with Program(program("rdma-server"), "-b", ADDRESS, "-n", 1, "write", env=C_LOCALE) as s:
            out = s.wait_for(".\n")
            if not out:
                self.assertIn("port 22222 is in use", s.end()[2])
                self.skipTest("somebody has port 22222 here")
            self.assertEqual(out, "listening on port 22222.\n")
            with Program(program("rdma-client"), "write", ADDRESS, env=C_LOCALE) as c:
                of_client = c.end()
            self.check_pair(s.end(), of_client)

    def test_everywhere(self):
        """Without -b the server listens on every address, IPv4 and IPv6."""
        found = addresses()
        with Program(program("rdma-server"), "-n", len(found), "read", 0, env=C_LOCALE) as s:
            port = int(re.match(r"listening on port (\d+)\.", s.wait_for(".\n"))[1])
            for address in found:
                with client(port, "read", address=address) as c:
                    self.check_success(c.end())
            self.check_success(s.end())


class SendRecv(PeerCase):
    def test_on_both_families(self):
        for address in addresses():
            with self.subTest(address=address), text_server("-n", 1, address=address) as (s, port), text_client(port, address=address) as c:
                of_client, of_server = c.end(), s.end()
                self.check_success(of_client)
                self.check_success(of_server)
                self.check_line_order(of_client[1], "address resolved.", "route resolved.", "connected. posting send...", "disconnected.")
                self.check_line_order(of_server[1], "received connection request.", "connected. posting send...", "peer disconnected.")
                self.assertIn(f"\nreceived message: message from client {c.process.pid}\n", of_server[1])
                self.assertIn(f"\nreceived message: greeting from server {s.process.pid} to its client number 1\n", of_client[1])
                for out in (of_client[1], of_server[1]):
                    sends = out.count("send completed successfully.\n")
                    self.assertIn(sends, (0, 1) if out == of_server[1] else (1,), out)
                    self.assertEqual(sends + out.count(FLUSHED + "\n"), 2, out)

    def test_many_clients_at_once(self):
        many = 20
        with text_server("-n", many) as (s, port):
            clients = [text_client(port) for _ in range(many)]
            try:
                results = [c.end() for c in clients]
            finally:
                for c in clients:
                    c.__exit__()
            for result in results:  # before the server: it waits for one who failed
                self.check_success(result)
            of_server = s.end()
        self.check_success(of_server)
        numbers = set()
        for c, result in zip(clients, results):
            self.check_success(result)
            self.assertIn(f"received message: message from client {c.process.pid}\n", of_server[1])
            numbers |= set(re.findall(rf"greeting from server {s.process.pid} to its client number (\d+)\n", result[1]))
        self.assertEqual(numbers, {str(i + 1) for i in range(many)})


if __name__ == "__main__":
    unittest.main()
