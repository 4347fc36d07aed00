# SPDX-License-Identifier: BSD-3-Clause
"""Large buffers for memory that the receiver makes (recv_multi, am_recv): over shared memory they
are views of the sender's loans."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys

import numpy as np
import pytest
import ropeway
from ucxx_help import asynchronous, pair, pattern, start

MIB = 1 << 20
SIZES = [2 * MIB, 100, 0, MIB, MIB - 1, 5 * MIB + 3]


def right(buffers, seeds=None):
    seeds = seeds or range(len(SIZES))
    return all(bytes(b) == pattern(i, SIZES[i]) for i, b in zip(seeds, buffers))


async def passed(a, b, way):
    """The buffers of SIZES, from a to b."""
    data = [pattern(i, n) for i, n in enumerate(SIZES)]
    if way == "multi":
        _, got = await asyncio.gather(a.send_multi(data), b.recv_multi())
        return got
    sends = [asyncio.ensure_future(a.am_send(d)) for d in data]
    got = [await b.am_recv() for _ in data]
    await asyncio.gather(*sends)
    return got


def held(ep):
    return ep._core.info().view_bytes


@pytest.mark.parametrize("way", ["multi", "am"])
@asynchronous
async def test_large_buffers_are_views_that_can_be_written(transport, way):
    start(transport)
    async with pair() as (a, b):
        for _ in range(3):
            got = await passed(a, b, way)
            assert right(got)
            assert (held(b) >= 8 * MIB) == (transport == "shm")
            assert all(g.flags.writeable for g in got)
            got[0][:] = 7
            part = got[5][1000:2000]
            del got
            await asyncio.sleep(0)  # what woke this task has the result, too
            gc.collect()
            assert (0 < held(b) < 8 * MIB) == (transport == "shm")
            assert bytes(part) == pattern(5, SIZES[5])[1000:2000]
            del part
            gc.collect()
            assert held(b) == 0
        del a, b


@pytest.mark.parametrize("way", ["multi", "am"])
@asynchronous
async def test_without_a_loan_a_buffer_is_sent_as_it_is(way, monkeypatch):
    """As where the receiver keeps all that it has."""
    start("shm")
    async with pair() as (a, b):
        loans, take = [], ropeway.Endpoint.loan

        def loan(ep, nbytes, writable=False):
            if loans:
                raise ropeway.Error(ropeway.Status.LIMIT, "all are out")
            loans.append(nbytes)
            return take(ep, nbytes, writable)

        monkeypatch.setattr(ropeway.Endpoint, "loan", loan)
        got = await passed(a, b, way)
        assert right(got) and loans == [2 * MIB]
        assert 0 < held(b) < 3 * MIB
        del a, b, got
        gc.collect()


@asynchronous
async def test_strided_and_fortran_arrays_arrive_as_ever():
    start("shm")
    array = np.arange(MIB, dtype="u4").reshape(1024, 1024)
    async with pair() as (a, b):
        _, got = await asyncio.gather(a.send_multi([array, np.asfortranarray(array)]), b.recv_multi())
        assert (got[0].view("u4").reshape(array.shape) == array).all()
        assert (got[1].view("u4").reshape(array.shape).T == array).all()
        del a, b, got
        gc.collect()


SENDER = """if 1:
    import asyncio, os, signal, sys, ucxx
    async def main():
        ep = await ucxx.create_endpoint("127.0.0.1", int(sys.argv[1]))
        sys.path.insert(0, sys.argv[2])
        from ucxx_help import pattern
        await ep.send_multi([pattern(i, 2 << 20) for i in range(4)])
        await ep.recv(bytearray(1))
        os.kill(os.getpid(), signal.SIGKILL)
    asyncio.run(main())
"""


@asynchronous
async def test_a_view_outlives_its_sender():
    import ucxx

    start("shm")
    came, over = asyncio.get_running_loop().create_future(), asyncio.Event()

    async def serve(ep):
        came.set_result(ep)
        await over.wait()

    listener = ucxx.create_listener(serve)
    here = __file__.rsplit("/", 1)[0]
    sender = subprocess.Popen([sys.executable, "-c", SENDER, str(listener.port), here])
    ep = await came
    got = await ep.recv_multi()
    assert held(ep) >= 8 * MIB
    await ep.send(b"x")
    while sender.poll() is None or ep.alive:
        await asyncio.sleep(0.01)
    assert [bytes(g) for g in got] == [pattern(i, 2 * MIB) for i in range(4)]
    over.set()
    await ep.close()
    assert [bytes(g) for g in got] == [pattern(i, 2 * MIB) for i in range(4)]
    listener.close()
