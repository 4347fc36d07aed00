#!/usr/bin/python3
"""What a user can get wrong: each is one line that says what to do, and status 1."""
import os
import re
import socket
import unittest

from pair import CLIENT, DEVICE, EMPTY_GID, SERVER, Case, Program, client, free_port, run_pair, server


class Failures(Case):
    def run_program(self, path, *arguments):
        with Program(path, *arguments) as p:
            return p.end()

    def both_fail(self, *arguments, words):
        self.server_fails(self.run_program(SERVER, *arguments), *words)
        self.client_fails(self.run_program(CLIENT, "127.0.0.1", *arguments), *words)

    # ---- options ----

    def test_help_and_version(self):
        for path, name in ((SERVER, "rdma_server"), (CLIENT, "rdma_client")):
            status, out, err = self.run_program(path, "--help")
            self.assertEqual((status, err), (0, ""))
            for word in (f"Usage: {name}", "--size", "--qps", "--mtu", "(18515)"):
                self.assertIn(word, out)
            status, out, err = self.run_program(path, "--version")
            self.assertEqual((status, err), (0, ""))
            self.assertRegex(out, rf"^{name} \(ropeway\) \d+\.\d+")

    def test_numbers_out_of_range(self):
        for option, values in (("-n", ("0", "17", "-1", "two", "")), ("-s", ("0", "1073741825", "4k", "99999999999999999999")),
                               ("-m", ("100", "8192"))):
            for value in values:
                with self.subTest(option=option, value=value):
                    self.both_fail(option, value, words=(option, f'"{value}"', "must be a number from"))

    def test_mtu_that_does_not_exist(self):
        self.both_fail("-m", "1500", words=("1500", "512"))

    def test_option_that_does_not_exist(self):
        self.both_fail("--fast", words=("--fast", "--help"))
        self.both_fail("-n", words=("-n", "needs a value"))
        self.server_fails(self.run_program(SERVER, "-l", "5"), "no option -l")
        self.both_fail("--qps", words=("needs a value",))
        self.server_fails(self.run_program(SERVER, "--length", "5"), "no option --length")
        self.client_fails(self.run_program(CLIENT, "--bind", "127.0.0.1"), "no option --bind")

    def test_arguments(self):
        self.client_fails(self.run_program(CLIENT), "address is missing", "rdma_client <server_ip>")
        self.both_fail(DEVICE, "1", "1", "more", words=('"more"', "too many"))
        self.both_fail(DEVICE, "65536", words=("TCP port", "65535"))
        self.both_fail(DEVICE, "port", words=("TCP port", '"port"'))
        self.both_fail(DEVICE, "18515", "1x", words=("GID index", '"1x"'))
        self.both_fail(DEVICE, "18515", "-1", words=("no option -1",))

    def test_message_longer_than_its_buffer(self):
        self.client_fails(self.run_program(CLIENT, "-l", "5000", "127.0.0.1"), "5000", "4096", "-s 5000")

    # ---- devices ----

    def test_device_that_is_not_there(self):
        self.both_fail("nosuchdevice", words=('no device "nosuchdevice"', "only: "))
        self.both_fail("18515", words=('no device "18515"', "before the port"))

    def test_gid_index_out_of_range(self):
        self.both_fail(DEVICE, "18515", "60000", words=("GID index 60000 of ", "it has 0 to ", "in use: 0 ("))

    def test_empty_gid_index(self):
        self.both_fail(DEVICE, "18515", EMPTY_GID, words=(f"GID index {EMPTY_GID} of ", "is empty", "in use: 0 ("))

    def test_gids_of_different_kinds(self):
        with server(gid_index=0) as (s, port), client(port) as c:
            of_client = c.end()
            of_server = s.end()
        if "GID 1 is ::ffff:" not in of_client[1]:
            self.skipTest("the device has no IPv4 address")
        self.server_fails(of_server, "this side's GID is an IPv6 address, the other's an IPv4 address", "GID index")
        self.client_fails(of_client, "this side's GID is an IPv4 address, the other's an IPv6 address", "GID index")

    @unittest.skipIf(os.path.isdir("/sys/class/infiniband") and os.listdir("/sys/class/infiniband"), "this machine has RDMA devices")
    @unittest.skipUnless(os.environ.get("RDMA_SERVER_PLAIN"), "no program without the drop-in was built")
    def test_no_device_at_all(self):
        self.server_fails(self.run_program(os.environ["RDMA_SERVER_PLAIN"]), "no RDMA device", "ropeway run -- ", "rdma_rxe")

    # ---- the TCP connection ----

    def test_port_in_use(self):
        with server() as (_, port), Program(SERVER, "-b", "127.0.0.1", DEVICE, port) as second:
            self.server_fails(second.end(), f"TCP port {port} is in use", "ss -ltnp", str(port + 1))

    def test_port_in_use_on_any_family(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen(1)
            port = taken.getsockname()[1]
            with Program(SERVER, "-b", "127.0.0.1", DEVICE, port) as s:
                self.server_fails(s.end(), f"TCP port {port} is in use")

    def test_address_of_another_machine(self):
        self.server_fails(self.run_program(SERVER, "-b", "192.0.2.1", DEVICE, free_port()), "192.0.2.1", "ip address")
        self.server_fails(self.run_program(SERVER, "-b", "not an address", DEVICE, free_port()), '"not an address"', "IP address")
        self.client_fails(self.run_program(CLIENT, "300.1.1.1"), '"300.1.1.1"', "IP address")

    def test_server_not_running(self):
        port = free_port()
        self.client_fails(self.run_program(CLIENT, "127.0.0.1", DEVICE, port), "no rdma_server is running", f"rdma_server - {port}")

    def test_second_client_is_refused(self):
        with server() as (s, port):
            with socket.create_connection(("127.0.0.1", port)):
                s.wait_for("connection from")
                self.client_fails(self.run_program(CLIENT, "127.0.0.1", DEVICE, port), "no rdma_server is running")

    # ---- the two sides do not fit ----

    def test_different_numbers_of_queue_pairs(self):
        s, c = run_pair(("-n", 2), ("-n", 3))
        self.server_fails(s, "this side has 2 queue pairs, the other 3", "-n")
        self.client_fails(c, "this side has 3 queue pairs, the other 2", "-n")

    def test_message_longer_than_the_servers_buffer(self):
        s, c = run_pair((), ("-s", 4097))
        for check, result in ((self.server_fails, s), (self.client_fails, c)):
            check(result, "4097 bytes", "hold 4096", "-s 4097")

    def test_mtu_that_the_port_does_not_allow(self):
        status, out, _ = run_pair()[0]
        self.assertEqual(status, 0)
        most = int(re.search(r"is active, MTU (\d+)", out).group(1))
        if most == 4096:
            self.skipTest("this port allows every MTU")
        self.both_fail("-m", str(most * 2), DEVICE, words=(f"MTU of {most * 2} is more than the {most}", "-m"))


if __name__ == "__main__":
    unittest.main()
