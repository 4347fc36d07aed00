#!/usr/bin/python3
"""rdma_server and rdma_client with each other: messages of every size arrive and are answered, and the output tells what happened."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
from preload import preloadable  # noqa: E402
from pair import CLIENT, DEVICE, Case, Program, client, run_pair, server, sides


class Messages(Case):
    def exchange(self, server_options=(), client_options=()):
        of_server, of_client = run_pair(server_options, client_options)
        self.check_success(of_server)
        self.check_success(of_client)
        return of_server[1], of_client[1]

    def check_arrived(self, out, size, qps=1):
        arrived = re.findall(r"QP (\d+) received (\d+) bytes, each one as it should be", out)
        self.assertEqual(sorted((int(q), int(b)) for q, b in arrived), [(i + 1, size) for i in range(qps)])

    def test_defaults(self):
        s, c = self.exchange()
        self.check_arrived(s, 4096)
        self.check_arrived(c, 4096)
        self.assertIn('"Hello from rdma_client, QP 1 of 1!', s)
        self.assertIn('"Hello from rdma_server, QP 1 of 1!', c)
        for word in ("(PD)", "(MR)", "(CQ)", "(QP)", "RESET -> INIT", "INIT -> RTR", "RTR -> RTS", "GID 1 is"):
            self.assertIn(word, s)
            self.assertIn(word, c)
        self.assertEqual(re.findall(r"Step (\d+):", s), [str(i + 1) for i in range(s.count("Step "))])

    def test_status_of_each_completion(self):
        for out in self.exchange(("-n", 3, "-v"), ("-n", 3, "--verbose")):
            self.assertEqual(re.findall(r"(?m)^wc->status = .*$", out), ["wc->status = 0 (success)"] * 6)
        for out in self.exchange():
            self.assertNotIn("wc->status", out)

    def test_each_side_knows_the_other(self):
        s, c = self.exchange(("-n", 3), ("-n", 3))
        self.assertEqual(len(sides(s, "local")), 3)
        self.assertEqual(sides(s, "local"), sides(c, "remote"))
        self.assertEqual(sides(c, "local"), sides(s, "remote"))
        numbers = [side[1] for side in sides(s, "local")]
        self.assertEqual(len(set(numbers)), 3, "a QPN twice")

    def test_sizes(self):
        for size in (1, 2, 79, 80, 1023, 1025, 65536, 1 << 20):
            with self.subTest(size=size):
                s, c = self.exchange(("-s", size), ("-s", size))
                self.check_arrived(s, size)
                self.check_arrived(c, size)

    def test_message_shorter_than_the_buffer(self):
        s, c = self.exchange(("-s", 8192), ("-l", 5, "-s", 64))
        self.check_arrived(s, 5)
        self.check_arrived(c, 5)

    def test_sixteen_queue_pairs(self):
        s, c = self.exchange(("-n", 16, "-s", 65536), ("-n", 16, "-s", 65536))
        self.check_arrived(s, 65536, 16)
        self.check_arrived(c, 65536, 16)

    def test_the_smaller_mtu_counts(self):
        for ours, theirs in ((512, 1024), (1024, 256)):
            s, c = self.exchange(("-m", ours), ("-m", theirs))
            for out in (s, c):
                self.assertIn(f"first PSN, MTU {min(ours, theirs)}.", out)
            self.assertIn(f"MTU {ours} here, {theirs} there", s)

    @unittest.skipUnless(shutil.which("tshark") and "DROP_IN" in os.environ, "needs tshark, and the software device, which writes captures")
    def test_hop_limit_on_the_wire(self):
        with tempfile.TemporaryDirectory() as folder:
            for result in run_pair(env={"ROPEWAY_PCAP": f"{folder}/%p.pcapng"}):
                self.check_success(result)
            seen = set()
            for capture in pathlib.Path(folder).glob("*.pcapng"):
                out = subprocess.run(["tshark", "-r", capture, "-Y", "infiniband", "-T", "fields", "-e", "ip.ttl", "-e", "ipv6.hlim"],
                                     capture_output=True, text=True, check=True).stdout
                seen |= set(out.split())
            self.assertEqual(seen, {pathlib.Path("/proc/sys/net/ipv4/ip_default_ttl").read_text().strip()})

    @unittest.skipUnless("DROP_IN" in os.environ and "RDMA_SERVER_PLAIN" in os.environ, "needs the drop-in, and the programs without it")
    def test_the_same_program_without_the_drop_in_takes_it_by_preload(self):
        plain = os.environ["RDMA_SERVER_PLAIN"], os.environ["RDMA_CLIENT_PLAIN"]
        for result in run_pair(env={"LD_PRELOAD": str(preloadable(os.environ["DROP_IN"]))}, path=plain):
            self.check_success(result)
            self.check_arrived(result[1], 4096)

    def test_options_after_the_arguments(self):
        with server() as (s, port), client(port) as c:
            self.check_success(c.end())
            self.check_success(s.end())
        with server("-s", 100) as (s, port):
            with Program(CLIENT, "127.0.0.1", DEVICE, port, 1, "--size=100", "--qps", 1) as c:
                of_client = c.end()
            self.check_success(of_client)
            self.check_success(s.end())
            self.check_arrived(of_client[1], 100)

    def test_two_pairs_at_once(self):
        with server("-n", 4) as (s1, port1), server("-s", 100) as (s2, port2):
            with client(port1, "-n", 4) as c1, client(port2, "-s", 100) as c2:
                results = [p.end() for p in (c1, c2, s1, s2)]
        for result in results:
            self.check_success(result)
        self.check_arrived(results[2][1], 4096, 4)
        self.check_arrived(results[3][1], 100)

    def test_no_two_runs_alike(self):
        first, second = self.exchange()[0], self.exchange()[0]
        self.assertNotEqual([s[2] for s in sides(first, "local")], [s[2] for s in sides(second, "local")], "the PSN is not drawn anew")


if __name__ == "__main__":
    unittest.main()
