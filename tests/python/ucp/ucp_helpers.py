# SPDX-License-Identifier: BSD-3-Clause
"""What the tests of ucp share: payloads from seeds, deadlines, processes on the other side."""

import asyncio
import contextlib
import ctypes
import gc
import os
import random
import signal
import socket
import subprocess
import sys
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
CLONE_NEWNET = 0x40000000
LIMIT_S = 30


def payload(seed, n):
    """n bytes that only this seed gives."""
    return random.Random(seed).randbytes(n)


def run(coro, limit=LIMIT_S):
    """Runs a coroutine in a loop of its own. TimeoutError: the deadline."""

    async def bounded():
        return await asyncio.wait_for(coro, limit)

    return asyncio.run(bounded())


async def soon(what, limit=LIMIT_S):
    """Waits until what() is true."""
    async with asyncio.timeout(limit):
        while not what():
            await asyncio.sleep(0.002)


async def pair(ucp, address):
    """Both ends of a connection, and the listener."""
    accepted = asyncio.get_running_loop().create_future()

    async def serve(ep):
        accepted.set_result(ep)

    listener = ucp.create_listener(serve)
    here = await ucp.create_endpoint(address, listener.port)
    return here, await accepted, listener


async def close(*things):
    for thing in things:
        closing = thing.close()
        if closing is not None:
            await closing


@contextlib.contextmanager
def deadline(seconds):
    """An exception in the main thread where a test takes longer, whatever it does."""

    def late(signum, frame):
        raise TimeoutError(f"the test took more than {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


class Peer:
    """A program of programs/ in a process of its own: lines come and go."""

    def __init__(self, program, *args, **environment):
        self.process = subprocess.Popen(
            [sys.executable, os.path.join(HERE, "programs", program), *map(str, args)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )

    @property
    def pid(self):
        return self.process.pid

    def line(self, limit=LIMIT_S):
        """Its next line, without the end. EOFError: it has ended. TimeoutError: the deadline."""
        got = []
        thread = threading.Thread(
            target=lambda: got.append(self.process.stdout.readline()), daemon=True
        )
        thread.start()
        thread.join(limit)
        if not got:
            raise TimeoutError("the program on the other side says nothing")
        if not got[0]:
            raise EOFError("the program on the other side has ended")
        return got[0].rstrip("\n")

    async def next_line(self, limit=LIMIT_S):
        """line(), while the loop goes on."""
        return await asyncio.get_running_loop().run_in_executor(None, self.line, limit)

    def say(self, text):
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def kill(self):
        os.kill(self.process.pid, signal.SIGKILL)

    def end(self, limit=LIMIT_S):
        """Its exit code, negative for a signal."""
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            return self.process.wait(limit)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            self.process.stdout.close()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        if self.process.poll() is None:
            self.process.kill()
        self.end()


def free_port():
    """A port that was free a moment ago."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def descriptors():
    """How many descriptors this process has open."""
    return len(os.listdir("/proc/self/fd"))


def threads():
    """How many threads this process has, Python's and others."""
    return len(os.listdir("/proc/self/task"))


def collect():
    for _ in range(3):
        gc.collect()


class Namespace:
    """A network namespace for this thread and what it starts: lo, and eth0 with an address.

    ucp listens at all addresses, as UCX-Py does: in here nobody else reaches it."""

    def __init__(self):
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.before = None

    def enter(self):
        """None, or why there is none."""
        self.before = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        if self.libc.unshare(CLONE_NEWNET):
            why = os.strerror(ctypes.get_errno())
            os.close(self.before)
            self.before = None
            return why
        for command in (
            "link set lo up",
            "link add eth0 type veth peer name veth0",
            "addr add 10.9.9.1/24 dev eth0",
            "link set eth0 up",
            "link set veth0 up",
        ):
            subprocess.run(["ip", *command.split()], check=True)
        return None

    def leave(self):
        if self.before is not None:
            self.libc.setns(self.before, CLONE_NEWNET)
            os.close(self.before)
            self.before = None
