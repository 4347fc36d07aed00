#!/usr/bin/python3
"""A TCP peer that is a stranger, broken, of another version, silent, or gone: one line, status 1, and never a wait without end."""
import signal
import socket
import threading
import unittest

from pair import (DONE, HELLO, READY, SORRY, VERSION, Case, client, fake_client, fake_server, header, hello, hello_body, hello_fields,
                  read_message, reset, server)

BROKEN_HELLOS = {
    "no QP": dict(qps=0, pairs=[]),
    "17 QPs": dict(qps=17),
    "many QPs": dict(qps=0xffffffff, pairs=[(2, 0)]),
    "fewer pairs than QPs": dict(qps=3, pairs=[(9, 9)]),
    "more pairs than QPs": dict(qps=1, pairs=[(9, 9), (10, 9)]),
    "MTU 0": dict(mtu=0),
    "MTU 1500": dict(mtu=1500),
    "MTU 8192": dict(mtu=8192),
    "no buffer": dict(buffer=0, message=0),
    "huge buffer": dict(buffer=0x80000000, message=0),
    "message beyond the buffer": dict(buffer=10, message=11),
    "QPN 0": dict(pairs=[(0, 5)]),
    "QPN 1": dict(pairs=[(1, 5)]),
    "QPN of 25 bits": dict(pairs=[(0x1000000, 5)]),
    "no GID": dict(gid="::"),
    "PSN of 25 bits": dict(pairs=[(77, 0x1000000)]),
}
BROKEN_HEADERS = {
    "kind READY": header(READY),
    "kind 0": header(0),
    "kind 999": header(999, 44) + hello_body("client"),
    "empty body": header(HELLO, 0),
    "body too short": header(HELLO, 35) + bytes(35),
    "body too long": header(HELLO, 36 + 8 * 17) + bytes(36 + 8 * 17),
    "endless body": header(HELLO, 0xffffffff),
}
STRANGERS = [b"GET / HTTP/1.0\r\n\r\n", bytes(64), b"\xff" * 4096, b"SSH-2.0-OpenSSH\r\n", b"01234567"]


class StrangeClient(Case):
    """Our server, and a client that is not ours."""

    def server_against(self, act):
        """What the server ends with when `act` is its client. The connection stays open until the server is gone, unless act closes it."""
        with server() as (s, port), fake_client(port) as connection:
            act(connection)
            return s.end()

    def test_stranger(self):
        for words in STRANGERS:
            with self.subTest(words=words[:16]):
                self.server_fails(self.server_against(lambda c: c.sendall(words)), "is not rdma_client", "127.0.0.1 port ")

    def test_strangers_bytes_are_not_printed_raw(self):
        result = self.server_against(lambda c: c.sendall(b"\x1b[31m%n\n\0 and more"))
        self.server_fails(result, 'it began with ".[31m%n."')

    def test_hang_up_at_once(self):
        self.server_fails(self.server_against(lambda c: c.close()), "left before the work was done")
        self.server_fails(self.server_against(reset), "left before the work was done")

    def test_half_a_message(self):
        whole = hello("client")
        for count in (1, 4, 8, 11, 12, 13, len(whole) - 1):
            with self.subTest(count=count):
                def act(c):
                    c.sendall(whole[:count])
                    c.shutdown(socket.SHUT_WR)
                self.server_fails(self.server_against(act), "left before the work was done")

    def test_other_version(self):
        for version in (0, 2, 0xffff):
            with self.subTest(version=version), server() as (s, port), fake_client(port) as c:
                body = bytes(100)  # whatever that version says
                c.sendall(header(HELLO, len(body), version=version) + body)
                self.assertEqual(read_message(c)[:2], (VERSION, SORRY), "the client is not told our version")
                self.server_fails(s.end(), f"speaks version {version}", f"this program version {VERSION}", "same release")

    def test_broken_hello(self):
        for name, fields in BROKEN_HELLOS.items():
            with self.subTest(name):
                self.server_fails(self.server_against(lambda c: c.sendall(hello("client", **fields))), "makes no sense")
        with self.subTest("a server's hello"):
            self.server_fails(self.server_against(lambda c: c.sendall(hello("server"))), "makes no sense")

    def test_broken_header(self):
        for name, data in BROKEN_HEADERS.items():
            with self.subTest(name):
                self.server_fails(self.server_against(lambda c: c.sendall(data)), "makes no sense")

    def test_other_link_layer(self):
        self.server_fails(self.server_against(lambda c: c.sendall(hello("client", link_layer=1, lid=7))), "InfiniBand", "Ethernet")

    def test_silence(self):
        self.server_fails(self.server_against(lambda c: None), "said nothing for 5 s")

    def test_silence_in_the_middle_of_a_message(self):
        """The time is for the whole message: a byte now and then does not prolong it."""
        stop = threading.Event()
        with server() as (s, port), fake_client(port) as c:
            def drip():
                for byte in hello("client"):
                    if stop.wait(0.4):
                        return
                    try:
                        c.sendall(bytes([byte]))
                    except OSError:
                        return
            feeder = threading.Thread(target=drip)
            feeder.start()
            result = s.end()
            stop.set()
            feeder.join()
        self.server_fails(result, "said nothing for 5 s")

    def test_message_in_pieces_is_taken(self):
        with server() as (s, port), fake_client(port) as c:
            for byte in hello("client", gid=own_gid(s)):
                c.sendall(bytes([byte]))
            _, kind, body = read_message(c)
            self.assertEqual(kind, HELLO)
            self.assertEqual(hello_fields(body)["message"], 0)
            self.assertEqual(read_message(c)[1], READY)
            c.sendall(header(SORRY))
            self.server_fails(s.end(), "rdma_client at 127.0.0.1", "gave up")

    def connect_queue_pair(self, s, c):
        c.sendall(hello("client", gid=own_gid(s)))
        self.assertEqual(read_message(c)[1], HELLO)
        self.assertEqual(read_message(c)[1], READY)

    def test_client_leaves_instead_of_sending(self):
        for leave in (socket.socket.close, reset):
            with server() as (s, port), fake_client(port) as c:
                self.connect_queue_pair(s, c)
                leave(c)
                self.server_fails(s.end(), "rdma_client at 127.0.0.1", "left before the work was done")

    def test_client_never_sends(self):
        with server() as (s, port), fake_client(port) as c:
            self.connect_queue_pair(s, c)
            self.server_fails(s.end(), "nothing was completed for 5 s", "4791")


def own_gid(program):
    """The GID that the program has printed: one that certainly can be reached."""
    return program.wait_for(": on RoCE").split("GID 1 is ")[1].split(": on RoCE")[0]


class StrangeServer(Case):
    """Our client, and a server that is not ours."""

    def client_against(self, act):
        """What the client ends with when `act(connection, client)` is its server."""
        with fake_server() as (listener, port), client(port) as c:
            connection, _ = listener.accept()
            with connection:
                act(connection, c)
                return c.end()

    def answer(self, *parts):
        def act(connection, _):
            _, kind, body = read_message(connection)
            self.assertEqual(kind, HELLO)
            self.assertEqual(hello_fields(body)["message"], 4096)
            for part in parts:
                connection.sendall(part)
        return self.client_against(act)

    def test_stranger(self):
        for words in STRANGERS:
            with self.subTest(words=words[:16]):
                self.client_fails(self.answer(words), "is not rdma_server", "127.0.0.1 port ")

    def test_other_version(self):
        self.client_fails(self.answer(header(SORRY, version=2)), "speaks version 2", "same release")
        self.client_fails(self.answer(header(HELLO, 8, version=9) + bytes(8)), "speaks version 9", "same release")

    def test_broken(self):
        for name, fields in BROKEN_HELLOS.items():
            with self.subTest(name):
                self.client_fails(self.answer(hello("server", **{"message": 0, **fields})) if name != "message beyond the buffer"
                                  else self.answer(hello("server", **fields)), "makes no sense")
        for name, data in BROKEN_HEADERS.items():
            with self.subTest(name):
                self.client_fails(self.answer(data), "makes no sense")
        with self.subTest("a client's hello"):
            self.client_fails(self.answer(hello("client")), "makes no sense")

    def test_server_gives_up(self):
        self.client_fails(self.answer(header(SORRY)), "rdma_server at 127.0.0.1", "gave up")

    def test_hang_up(self):
        for leave in (socket.socket.close, reset):
            def act(connection, c):
                c.wait_for("connected to")
                leave(connection)
            self.client_fails(self.client_against(act), "left before the work was done")

    def test_half_a_hello(self):
        def act(connection, c):
            read_message(connection)
            connection.sendall(hello("server")[:20])
            connection.close()
        self.client_fails(self.client_against(act), "left before the work was done")

    def test_silence(self):
        self.client_fails(self.answer(), "said nothing for 5 s", "rdma_server")

    def test_stopped_server(self):
        """The kernel still takes the connection for it, so only the missing answer tells."""
        with server() as (s, port):
            s.process.send_signal(signal.SIGSTOP)
            with client(port) as c:
                self.client_fails(c.end(), "said nothing for 5 s", "stopped")

    def test_never_ready(self):
        def act(connection, c):
            connection.sendall(hello("server", gid=own_gid(c)))
        self.client_fails(self.client_against(act), "said nothing for 5 s")

    def test_done_instead_of_ready(self):
        def act(connection, c):
            connection.sendall(hello("server", gid=own_gid(c)) + header(DONE))
        self.client_fails(self.client_against(act), "makes no sense")

    def test_ready_but_no_queue_pair(self):
        """Nobody answers for that QPN: the device gives up after its retries, or the 5 s are over first."""
        def act(connection, c):
            connection.sendall(hello("server", gid=own_gid(c)) + header(READY))
        self.client_fails(self.client_against(act), "4791", "GIDs")

    def test_ready_then_gone(self):
        def act(connection, c):
            connection.sendall(hello("server", gid=own_gid(c)) + header(READY))
            c.wait_for("send a message")
            reset(connection)
        self.client_fails(self.client_against(act), "rdma_server at 127.0.0.1", "left")


if __name__ == "__main__":
    unittest.main()
