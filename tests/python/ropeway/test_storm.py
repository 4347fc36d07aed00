# SPDX-License-Identifier: BSD-3-Clause
"""Random kills, closes and cancels of either side, in the middle of everything: every future ends,
and nothing is left. A hundred each time, a thousand with --long."""

import asyncio
import gc
import os
import random
import signal
import subprocess
import sys

import pytest
import ropeway
from helpers import HERE, SEED, descriptors, run, settled, threads
from ropeway import Error

# A process that forks one peer for each line of its input: it imports once, and never has a context.
ZYGOTE = """
import asyncio, os, random, signal, sys
import ropeway
from test_storm import everything

async def peer(address, seed):
    rng = random.Random(seed)
    c = ropeway.context()
    c.on_am(1, lambda *x: None)
    ep = await ropeway.connect(address, timeout=20)
    m = c.memory.allocate(1 << 16)
    await ep.send(m.rkey(), 99)
    ops = everything(ep, rng, None)
    await asyncio.sleep(rng.random() * 0.005)
    how = rng.randrange(6)
    if how == 0:
        os._exit(0)
    elif how == 1:
        for op in ops: op.cancel()
        ep.close()
    elif how == 2:
        sys.exit(0)
    elif how == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == 4:
        for op in rng.sample(ops, len(ops) // 2): op.cancel()
        await asyncio.sleep(60)
    else:
        await asyncio.sleep(60)

signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for line in sys.stdin:
    address, seed = line.rsplit(" ", 1)
    pid = os.fork()
    if pid == 0:
        sys.stderr = open(os.devnull, "w")
        sys.stdin.close()
        try:
            asyncio.run(peer(address, int(seed)))
        except BaseException:
            os._exit(1)
        os._exit(0)
    print(pid, flush=True)
"""


def everything(ep, rng, key):
    """Operations of every kind, of random sizes, none of them awaited."""
    ops = []
    for n in range(rng.randrange(1, 12)):
        size = rng.choice([0, 8, 5000, 100_000, 3_000_000])
        what = rng.randrange(10 if key else 8)
        try:
            if what == 0:
                ops.append(ep.send(bytearray(size), n % 4))
            elif what == 1:
                ops.append(ep.recv(bytearray(size), n % 4))
            elif what == 2:
                ops.append(ep.send_obj(bytearray(size)))
            elif what == 3:
                ops.append(ep.recv_obj())
            elif what == 4:
                ops.append(ep.recv_many([bytearray(100) for _ in range(20)], n % 4))
            elif what == 5:
                ops.append(ep.send_many([bytearray(100) for _ in range(20)], n % 4))
            elif what == 6:
                ops.append(ep.am_send(1, bytearray(size)))
            elif what == 7:
                ops.append(ep.flush())
            elif what == 8:
                ops.append(ep.put(key, 0, bytearray(min(size, 1 << 16))))
            else:
                ops.append(ep.fetch_add(key, 0, 1))
        except Error:
            pass  # it has ended by now
    return ops


async def one(listener, zygote, lock, rng):
    async with lock:  # who connects is who was forked
        zygote.stdin.write(f"{listener.address} {rng.randrange(1 << 30)}\n")
        zygote.stdin.flush()
        pid = int(await asyncio.to_thread(zygote.stdout.readline))
        ep = await asyncio.wait_for(listener.accept(), 20)
    buf = bytearray(512)
    try:
        n, _ = await ep.recv(buf, 99)
        key = ep.unpack(memoryview(buf)[:n])
    except Error:
        key = None
    ops = everything(ep, rng, key)
    waits = [asyncio.create_task(_wait(op)) for op in rng.sample(ops, len(ops) // 2)]
    await asyncio.sleep(rng.random() * 0.005)
    how = rng.randrange(6)
    if how == 0:
        ep.close()
    elif how in (1, 2, 3):
        try:
            os.kill(pid, (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL)[how - 1])
        except ProcessLookupError:
            pass
    elif how == 4:
        for op in ops:
            op.cancel()
    else:
        for task in waits:
            task.cancel()
    await asyncio.sleep(rng.random() * 0.005)
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    ended = await asyncio.gather(*[_wait(op) for op in ops], *waits, return_exceptions=True)
    for e in ended:
        assert e is None or isinstance(e, Error | asyncio.CancelledError), e
    assert all(op.done() for op in ops)
    ep.close()
    return len(ops)


async def _wait(op):
    try:
        await op
    except Error:
        pass


def storm(times, deadline_s):
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(
        [HERE, os.path.dirname(os.path.abspath(__file__)), os.environ.get("PYTHONPATH", "")]))

    async def main():
        rng = random.Random(SEED)
        zygote = subprocess.Popen([sys.executable, "-c", ZYGOTE], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True, env=env)
        try:
            c = ropeway.context()
            c.on_am(1, lambda *x: None)
            lock, operations = asyncio.Lock(), 0
            async with ropeway.listen() as listener:
                for k in range(0, times, 8):
                    operations += sum(
                        await asyncio.gather(*[one(listener, zygote, lock, rng) for _ in range(8)]))
            for _ in range(1000):
                s = c.statistics()
                if not s.requests and not s.endpoints:
                    break
                await asyncio.sleep(0.001)
            assert (s.requests, s.endpoints) == (0, 0), s
            print(f"{times} ends, {operations} operations")
        finally:
            zygote.stdin.close()
            zygote.wait(20)
            zygote.stdout.close()

    run(main(), deadline_s)


def counts():
    gc.collect()
    return descriptors(), threads()


def test_a_hundred_random_ends(transport):
    storm(8, 60)  # what stays is there: pytest's, the device's
    before = counts()
    storm(104, 100)
    gc.collect()
    assert settled(before) == before


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_thousand_random_ends(transport):
    storm(8, 60)
    before = counts()
    storm(1000, 800)
    gc.collect()
    assert settled(before) == before
