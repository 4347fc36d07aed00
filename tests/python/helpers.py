# SPDX-License-Identifier: BSD-3-Clause
"""What the tests of all three packages share: a deadline for everything, patterns, other
processes."""

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time

DEADLINE_S = float(os.environ.get("ROPEWAY_TEST_DEADLINE_S", "30"))
SEED = int(os.environ.get("TEST_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)
HERE = os.path.dirname(os.path.abspath(__file__))


def run(coro, deadline_s=DEADLINE_S, loop_factory=None):
    """asyncio.run with a deadline; a test that hangs says where."""

    async def bounded():
        try:
            return await asyncio.wait_for(coro, deadline_s)
        except TimeoutError:
            raise AssertionError(f"not done within {deadline_s} s (seed {SEED})") from None

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(bounded())


def pattern(length, seed=0):
    """Bytes of no simple form, the same for the same seed."""
    return random.Random(SEED * 1000003 + seed).randbytes(length)


def descriptors():
    """How many this process has open."""
    return len(os.listdir("/proc/self/fd")) - 1


def threads():
    """How many this process has, those of libraries too."""
    return len(os.listdir("/proc/self/task"))


def settled(before, deadline_s=5.0):
    """(descriptors, threads) when they are what they were, or when time is up: a thread that has
    been joined may still be listed for a moment."""
    until = time.monotonic() + deadline_s
    while (now := (descriptors(), threads())) != before and time.monotonic() < until:
        time.sleep(0.01)
    return now


@contextlib.contextmanager
def python(code, *args, env=None, stdin=None):
    """Another Python process with this code; it is killed at the end, if it has not ended. The code
    can import helpers. Its standard output is a pipe of lines."""
    full = dict(os.environ, PYTHONPATH=os.pathsep.join([HERE, os.environ.get("PYTHONPATH", "")]))
    full["TEST_SEED"] = str(SEED)
    full["PYTHONUNBUFFERED"] = "1"
    full.update(env or {})
    p = subprocess.Popen(
        [sys.executable, "-X", "faulthandler", "-c", code, *map(str, args)],
        stdout=subprocess.PIPE,
        stdin=stdin,
        env=full,
        text=True,
    )
    watchdog = threading.Timer(DEADLINE_S * 2, p.kill)
    watchdog.daemon = True
    watchdog.start()
    try:
        yield p
    finally:
        watchdog.cancel()
        if p.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                p.send_signal(signal.SIGCONT)
                p.kill()
        p.wait()
        p.stdout.close()
        if p.stdin:
            p.stdin.close()


@contextlib.asynccontextmanager
async def pair(**options):
    """Two endpoints of the running loop's context, connected with each other."""
    import ropeway

    c = ropeway.context() if not options else ropeway.Context(asyncio.get_running_loop(), **options)
    async with c.listen("127.0.0.1:0") as listener:
        a, b = await asyncio.gather(c.connect(listener.address), listener.accept())
    try:
        yield a, b
    finally:
        a.close()
        b.close()
        if options:
            c.close()
