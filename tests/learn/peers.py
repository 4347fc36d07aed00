"""What the tests of rdma-server, rdma-client, rdma-send-recv-server and rdma-send-recv-client share.

From the environment (tests/learn/meson.build sets it):
  PEER_PROGRAMS                 the folder of the four programs
  STRANGE_PEER                  strange_peer.c, built
  PEER_ADDRESS, PEER_ADDRESS6   of this machine, on an RDMA device; unset: loopback
"""
import contextlib
import os
import re
import select
import socket
import time

from pair import END_S, Case, Program

PROGRAMS = os.environ["PEER_PROGRAMS"]
STRANGE = os.environ["STRANGE_PEER"]
ADDRESS = os.environ.get("PEER_ADDRESS") or "127.0.0.1"
ADDRESS6 = os.environ.get("PEER_ADDRESS6") or "::1"


def addresses():
    """One of each family that this host has."""
    try:
        with socket.create_server((ADDRESS6, 0), family=socket.AF_INET6):
            return ADDRESS, ADDRESS6
    except OSError as e:
        print(f"SKIPPED: no IPv6 here ({os.strerror(e.errno)}): IPv4 alone")
        return (ADDRESS,)


FLUSHED = "wc->status = 5 (Work Request Flushed Error)"
C_LOCALE = {"LC_ALL": "C", "LANGUAGE": ""}


def program(name):
    return os.path.join(PROGRAMS, name)


def listening(process):
    """The port on which a program listens, once it does."""
    out = process.wait_for(".\n")
    found = re.match(r"listening on port (\d+)\.\n", out)
    if not found:
        raise AssertionError(f"the server does not listen: {out}\n{process.end()}")
    return int(found[1])


@contextlib.contextmanager
def server(*words, name="rdma-server", address=ADDRESS, env=C_LOCALE):
    """A server on any free port: (program, port). The words are its options and its mode."""
    with Program(program(name), "-b", address, *words, 0, env=env) as process:
        yield process, listening(process)


def client(port, *words, name="rdma-client", address=ADDRESS, env=C_LOCALE):
    return Program(program(name), *words, address, port, env=env)


def text_server(*words, **more):
    return server(*words, name="rdma-send-recv-server", **more)


def text_client(port, *words, **more):
    return client(port, *words, name="rdma-send-recv-client", **more)


def strange_client(port, behaviour):
    return Program(STRANGE, "client", behaviour, ADDRESS, port, env=C_LOCALE)


@contextlib.contextmanager
def strange_server(behaviour):
    with Program(STRANGE, "server", behaviour, ADDRESS, env=C_LOCALE) as process:
        yield process, listening(process)


def stop(process):
    """Ask a server to end, as Ctrl-C does: (status, out, err)."""
    process.process.terminate()
    return process.end()


def descriptors(process):
    return len(os.listdir(f"/proc/{process.process.pid}/fd"))


def wait_until(condition, limit_s=60):
    """The limit only ends what hangs."""
    end = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def wait_for_count(process, text, count):
    """Read stdout until it holds the text so often."""
    end = time.monotonic() + END_S
    while process.seen.count(text.encode()) < count:
        ready, _, _ = select.select([process.process.stdout], [], [], max(0, end - time.monotonic()))
        chunk = os.read(process.process.stdout.fileno(), 65536) if ready else b""
        process.seen += chunk
        if not chunk:
            process.process.kill()
            raise AssertionError(f"{text!r} came {process.seen.count(text.encode())} times, not {count}: {process.seen.decode()}\n{process.end()}")


def local_buffers(out):
    """{text: checksum} of what a side wrote down before it sent it."""
    return dict(re.findall(r'local buffer: "(.*)", and a pattern: 4096 bytes with checksum ([0-9a-f]{16})', out))


def remote_buffers(out):
    """The same of what came from the other side."""
    return dict(re.findall(r"remote buffer: (.*)\n    all 4096 bytes are as they should be, checksum ([0-9a-f]{16})\n", out))


class PeerCase(Case):
    def check_line_order(self, out, *lines):
        """Each of these is a line of its own, and they come in this order."""
        at = 0
        whole = out.splitlines()
        for line in lines:
            self.assertIn(line, whole[at:], f"after line {at} of:\n{out}")
            at = whole.index(line, at) + 1

    def check_pair(self, of_server, of_client):
        """Both ended well, and each got what the other had."""
        self.check_success(of_server)
        self.check_success(of_client)
        s, c = of_server[1], of_client[1]
        self.assertEqual(len(local_buffers(s)), 1, s)
        self.assertEqual(remote_buffers(s), local_buffers(c))
        self.assertEqual(remote_buffers(c), local_buffers(s))

    def check_serves(self, port, mode="write"):
        """Whatever happened before: the next client is served."""
        with client(port, mode) as c:
            self.check_success(c.end())
