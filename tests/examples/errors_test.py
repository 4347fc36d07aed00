#!/usr/bin/python3
"""What a program says when it cannot connect: the stage, what both sides are, the likely cause, and what to do. By examples/echo_client and echo_server.

Usage: errors_test.py DIR_OF_EXAMPLES
"""
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import threading
import unittest

DIR = pathlib.Path(".")
TIMEOUT_S = 60
VERSION_AT = 10  # src/boot/hello.h: two bytes


def environment(**more):
    return {**{k: v for k, v in os.environ.items() if not k.startswith("ROPEWAY_")}, **more}


class Meddler:
    """Stands between a client and a server, and makes one side's hello say another version."""

    def __init__(self, case, to_port, side):
        self.side, self.to_port = side, to_port
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        case.addCleanup(self.listener.close)
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        try:
            while True:
                client, _ = self.listener.accept()
                server = socket.create_connection(("127.0.0.1", self.to_port))
                threading.Thread(target=self.carry, args=(client, server, self.side == "client"), daemon=True).start()
                threading.Thread(target=self.carry, args=(server, client, self.side == "server"), daemon=True).start()
        except OSError:
            pass

    @staticmethod
    def carry(source, sink, meddle):
        try:
            data = b""
            while len(data) <= VERSION_AT + 1:
                got = source.recv(4096)
                if not got:
                    return
                data += got
            if meddle:
                data = data[:VERSION_AT] + b"\x03\xe7" + data[VERSION_AT + 2:]
            while data:
                sink.sendall(data)
                data = source.recv(4096)
        except OSError:
            pass
        finally:
            sink.close()


class Errors(unittest.TestCase):
    def server(self, **env):
        p = subprocess.Popen([DIR / "echo_server", "127.0.0.1:0"], env=environment(**env), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(p.stdout.close)
        self.addCleanup(p.stderr.close)
        self.addCleanup(p.wait)
        self.addCleanup(p.kill)
        return p, int(re.match(r"listening on port (\d+)", p.stdout.readline())[1])

    def key(self, text, mode=0o600):
        f = tempfile.NamedTemporaryFile("w", prefix="ropeway-key-")
        self.addCleanup(f.close)
        f.write(text + "\n")
        f.flush()
        os.chmod(f.name, mode)
        return f.name

    def says(self, program, address, pieces, **env):
        """One line, with all of the pieces."""
        got = subprocess.run([DIR / program, address], env=environment(**env), capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        self.assertEqual(got.returncode, 1, got.stdout)
        lines = [line for line in got.stderr.splitlines() if not line.startswith("ropeway: ")]
        self.assertEqual(len(lines), 1, got.stderr)
        for piece in pieces:
            self.assertIn(piece, lines[0])

    def client_says(self, port, *pieces, **env):
        self.says("echo_client", f"127.0.0.1:{port}", ["rpw_endpoint_create: RPW_ERR_", f"connecting to 127.0.0.1:{port}", *pieces], **env)

    def test_a_closed_port(self):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.client_says(s.getsockname()[1], "RPW_ERR_UNREACHABLE", "10000 ms", "Connection refused", "is the program there started, and does it listen on this port?")

    def test_a_wrong_key(self):
        ours, theirs = self.key("a" * 32), self.key("b" * 32)
        server, port = self.server(ROPEWAY_KEY_FILE=theirs)
        self.client_says(port, "RPW_ERR_REFUSED", ours, "both need the same", ROPEWAY_KEY_FILE=ours)
        self.assertIn(theirs, server.stderr.readline())

    def test_a_key_on_one_side_only(self):
        key = self.key("c" * 32)
        _, port = self.server(ROPEWAY_KEY_FILE=key)
        self.client_says(port, "RPW_ERR_REFUSED", "This side has none (ROPEWAY_KEY_FILE); both need the same, or neither has one")
        _, port = self.server()
        self.client_says(port, "RPW_ERR_REFUSED", key, "it has no key, this side has one", "both need the same, or neither has one", ROPEWAY_KEY_FILE=key)

    def test_another_version_on_either_side(self):
        for side in "client", "server":
            server, port = self.server()
            meddler = Meddler(self, port, side)
            ours = "it speaks version 999 of ropeway's control path, this side version 1"
            self.client_says(meddler.port, "RPW_ERR_REFUSED", ours if side == "server" else "it speaks version 1 of ropeway's control path", "install the same ropeway on both")
            if side == "client":
                line = server.stderr.readline()
                self.assertIn(ours, line)
                self.assertIn("install the same ropeway on both", line)

    def test_a_name_that_does_not_resolve(self):
        self.says("echo_client", "no-such-host.invalid:7471", ["RPW_ERR_UNREACHABLE", "connecting to no-such-host.invalid:7471", "name service", "?"])
        self.says("echo_server", "no-such-host.invalid:7471", ["RPW_ERR_INVALID", "cannot listen at no-such-host.invalid:7471", "looking its name up", "is it spelled right"])

    def test_something_else_listens_there(self):
        with socket.create_server(("127.0.0.1", 0)) as s:
            def answer():
                c, _ = s.accept()
                with c:
                    c.sendall(b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n")
                    c.recv(100)

            t = threading.Thread(target=answer, daemon=True)
            t.start()
            self.client_says(s.getsockname()[1], "RPW_ERR_PROTOCOL", "it speaks SSH, not ropeway: is the port right?")
            t.join()

    def test_a_transport_that_there_is_not(self):
        self.says("echo_client", "127.0.0.1:1", ["rpw_context_create: RPW_ERR_INVALID", "there is no transport 'rdma'", "this ropeway has shm, verbs, tcp", "ROPEWAY_TRANSPORT"],
                  ROPEWAY_TRANSPORT="tcp,rdma")

    def test_no_transport_in_common(self):
        _, port = self.server(ROPEWAY_TRANSPORT="tcp")
        self.says("echo_client", f"127.0.0.1:{port}", ["RPW_ERR_UNREACHABLE", "no path to ", f"127.0.0.1:{port}", "shm: the peer has only tcp", "ropeway doctor"], ROPEWAY_TRANSPORT="shm")

    def test_a_key_that_others_can_read(self):
        key = self.key("d" * 32, 0o644)
        self.says("echo_client", "127.0.0.1:1", ["rpw_context_create: RPW_ERR_INVALID", key, "can be read by users other", f"chmod 600 {key}"], ROPEWAY_KEY_FILE=key)

    def test_a_port_in_use(self):
        _, port = self.server()
        self.says("echo_server", f"127.0.0.1:{port}", ["rpw_listener_create: RPW_ERR_SYSTEM", f"port {port} is in use there by another program", "ss -ltnp"])


if __name__ == "__main__":
    DIR = pathlib.Path(sys.argv[1]).resolve()
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=2)
