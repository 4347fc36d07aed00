"""What the tests of rdma_server and rdma_client share: starting them, a peer made of Python, and what a failure has to look like.

From the environment (tests/learn/meson.build sets it):
  RDMA_SERVER, RDMA_CLIENT   the programs
  LEARN_DEVICE               the device to use; unset: the first one, as a user would
  LEARN_EMPTY_GID            an index of the GID table that is in range and empty
"""
import contextlib
import os
import re
import select
import socket
import struct
import subprocess
import time
import unittest

SERVER = os.environ["RDMA_SERVER"]
CLIENT = os.environ["RDMA_CLIENT"]
DEVICE = os.environ.get("LEARN_DEVICE") or "-"
EMPTY_GID = os.environ.get("LEARN_EMPTY_GID", "15")

ENGLISH = {"LC_ALL": "C.UTF-8", "LANGUAGE": ""}
END_S = 60  # far beyond anything the programs wait for: whoever is still there then hangs

# The exchange as exchange.h describes it, written down a second time.
MAGIC, VERSION = 0x52505752, 1
HELLO, READY, DONE, SORRY = 1, 2, 3, 4


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Program:
    """One of the two programs, running. Use as a context: it is gone afterwards whatever happens."""

    def __init__(self, path, *arguments, env=None):
        environment = {**os.environ, **ENGLISH, **(env or {})}
        self.process = subprocess.Popen([path, *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        env={k: v for k, v in environment.items() if v != ""})
        self.seen = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def wait_for(self, text):
        """Read stdout until it holds the text; what it holds so far if the program ends before."""
        end = time.monotonic() + END_S
        while text.encode() not in self.seen:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0, end - time.monotonic()))
            chunk = os.read(self.process.stdout.fileno(), 65536) if ready else b""
            if not chunk:
                break
            self.seen += chunk
        return self.seen.decode()

    def end(self):
        """(exit status, stdout, stderr)"""
        out, err = self.process.communicate(timeout=END_S)
        return self.process.returncode, (self.seen + out).decode(), err.decode()


@contextlib.contextmanager
def server(*options, port=None, device=DEVICE, gid_index=1, env=None, path=SERVER):
    """A server that listens: (program, port)."""
    port = port or free_port()
    with Program(path, "-b", "127.0.0.1", *options, device, port, gid_index, env=env) as program:
        out = program.wait_for("Ctrl-C")
        if "Ctrl-C" not in out:
            raise AssertionError(f"the server does not listen: {out}\n{program.end()}")
        yield program, port


def client(port, *options, device=DEVICE, gid_index=1, env=None, path=CLIENT):
    return Program(path, *options, "127.0.0.1", device, port, gid_index, env=env)


def run_pair(server_options=(), client_options=(), env=None, path=(SERVER, CLIENT)):
    """Both to their ends: ((status, out, err) of the server, the same of the client)."""
    with server(*server_options, env=env, path=path[0]) as (s, port), client(port, *client_options, env=env, path=path[1]) as c:
        of_client = c.end()
        return s.end(), of_client


class Case(unittest.TestCase):
    maxDiff = None

    def check_success(self, result):
        status, out, err = result
        self.assertEqual((status, err), (0, ""), out)

    def check_failure(self, result, name, *words):
        """Status 1, and on stderr one line of that program, with these words in it."""
        status, out, err = result
        self.assertEqual(status, 1, f"{out}\n{err}")
        self.assertEqual(len(err.splitlines()), 1, err)
        self.assertTrue(err.startswith(name + ": "), err)
        for word in words:
            self.assertIn(word, err)
        self.assertRegex(err, r": .*: |; |, then |\(--help", "the line does not say what to do")

    def server_fails(self, result, *words):
        self.check_failure(result, "rdma_server", *words)

    def client_fails(self, result, *words):
        self.check_failure(result, "rdma_client", *words)


def sides(out, name):
    """[(LID, QPN, PSN, GID)] of one side in the printed table."""
    return re.findall(rf"{name}:\s+LID (\S+)\s+QPN (\S+)\s+PSN (\S+)\s+GID (\S+)", out)


# ---- a peer made of Python, which says what the test wants ----

def header(kind, length=0, version=VERSION, magic=MAGIC):
    return struct.pack(">IHHI", magic, version, kind, length)


def hello_body(role, mtu=1024, qps=1, buffer=4096, message=None, link_layer=2, lid=0, gid="::ffff:127.0.0.1", pairs=None):
    """link_layer 2 is Ethernet (enum in verbs.h)."""
    if message is None:
        message = buffer if role == "client" else 0
    pairs = pairs if pairs is not None else [(0x900000 + i, 0x123456) for i in range(qps)]
    return struct.pack(">IIIIBBH16s", mtu, qps, buffer, message, link_layer, 0, lid, socket.inet_pton(socket.AF_INET6, gid)) + b"".join(
        struct.pack(">II", *p) for p in pairs)


def hello(role, **fields):
    body = hello_body(role, **fields)
    return header(HELLO, len(body)) + body


def read_whole(connection, count):
    data = b""
    while len(data) < count:
        chunk = connection.recv(count - len(data))
        if not chunk:
            raise AssertionError(f"the program hung up after {len(data)} of {count} bytes")
        data += chunk
    return data


def read_message(connection):
    """(version, kind, body)"""
    magic, version, kind, length = struct.unpack(">IHHI", read_whole(connection, 12))
    if magic != MAGIC:
        raise AssertionError(f"magic 0x{magic:x}")
    return version, kind, read_whole(connection, length)


def hello_fields(body):
    names = ("mtu", "qps", "buffer", "message", "link_layer", "zero", "lid", "gid")
    fields = dict(zip(names, struct.unpack(">IIIIBBH16s", body[:36])))
    fields["pairs"] = list(struct.iter_unpack(">II", body[36:]))
    return fields


@contextlib.contextmanager
def fake_client(port):
    with socket.create_connection(("127.0.0.1", port), timeout=END_S) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield connection


@contextlib.contextmanager
def fake_server():
    """(listening socket, port)"""
    with socket.socket() as listener:
        listener.settimeout(END_S)
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        yield listener, listener.getsockname()[1]


def reset(connection):
    """Close with RST, as a crashing host does."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
