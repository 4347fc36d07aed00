# SPDX-License-Identifier: BSD-3-Clause
"""Contexts, loops, threads: what begins, what ends, and what is left."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
import weakref

import pytest

import ucxx
from ucxx.exceptions import UCXConnectionResetError, UCXError
from ucxx_help import DEADLINE, asynchronous, pair, pattern, until


async def exchange(seed: int, size: int = 3000) -> None:
    async with pair() as (a, b):
        got = bytearray(size)
        await asyncio.gather(a.send(pattern(seed, size)), b.recv(got))
        assert got == pattern(seed, size)
        del a, b


@asynchronous
async def test_reset_is_refused_while_an_endpoint_or_a_listener_lives():
    kept = []
    listener = ucxx.create_listener(kept.append)
    ep = await ucxx.create_endpoint("127.0.0.1", listener.port)
    await until(lambda: kept, "nobody was accepted")
    with pytest.raises(UCXError, match="not all Endpoints and/or Listeners are closed"):
        ucxx.reset()
    ep.abort()
    kept.pop().abort()
    listener.close()
    del ep, listener
    ucxx.reset()
    assert ucxx.core._ctx is None
    await exchange(1)


@asynchronous
async def test_reset_in_the_callback_of_a_listener():
    seen = []

    def serve(ep):
        ep.abort()
        try:
            ucxx.reset()
        except UCXError:
            seen.append("refused")  # the listener and the client live

    listener = ucxx.create_listener(serve)
    ep = await ucxx.create_endpoint("127.0.0.1", listener.port)
    await until(lambda: seen, "no callback")
    await listener._wait_for_active_clients()
    ep.abort()
    del ep, listener
    ucxx.reset()


def test_a_reset_in_each_of_many_loops():
    for i in range(20):
        asyncio.run(exchange(i))
        ucxx.reset()


def test_several_loops_one_after_the_other_with_one_context():
    for i in range(5):
        asyncio.run(exchange(i))
    assert ucxx.core._ctx is not None


def test_loops_in_threads_at_the_same_time():
    wrong = []

    def use(k):
        try:
            for i in range(5):
                asyncio.run(asyncio.wait_for(exchange(10 * k + i, 100_000), DEADLINE))
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=use, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(DEADLINE)
        assert not t.is_alive()
    assert not wrong


def test_between_the_loops_of_two_threads():
    port = []
    ready = threading.Event()
    failed = []

    def serve():
        async def main():
            done = asyncio.Event()

            async def echo(ep):
                await ep.send_obj(await ep.recv_obj())
                await ep.close()
                done.set()

            listener = ucxx.create_listener(echo)
            port.append(listener.port)
            ready.set()
            await asyncio.wait_for(done.wait(), DEADLINE)

        try:
            asyncio.run(main())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=serve)
    thread.start()
    assert ready.wait(DEADLINE)

    async def client():
        ep = await ucxx.create_endpoint("127.0.0.1", port[0])
        await ep.send_obj(pattern(1, 500_000))
        assert await ep.recv_obj() == pattern(1, 500_000)
        await ep.close()

    asyncio.run(client())
    thread.join(DEADLINE)
    assert not failed and not thread.is_alive()


def test_what_was_made_outside_of_a_loop_serves_the_loops_that_come():
    """A worker's address and a listener, made before there is a loop, and used by two loops."""
    address = ucxx.get_worker_address()
    served = []

    async def serve(ep):
        served.append(await ep.recv_obj())

    listener = ucxx.create_listener(serve)

    async def use(i):
        ep = await ucxx.create_endpoint_from_worker_address(address)
        got = bytearray(1000)
        await asyncio.gather(
            ep.send(pattern(i, 1000), tag=i, force_tag=True), ucxx.recv(got, tag=i)
        )
        assert got == pattern(i, 1000)
        other = await ucxx.create_endpoint("127.0.0.1", listener.port)
        await other.send_obj(pattern(i, 10))
        await until(lambda: len(served) == i, "it was not served")
        await other.close()
        await ep.close()

    for i in (1, 2):
        asyncio.run(use(i))
    assert served == [pattern(1, 10), pattern(2, 10)]
    listener.close()


@asynchronous
async def test_a_listener_that_is_dropped_ends():
    listener = ucxx.create_listener(lambda ep: None)
    port = listener.port
    gone = weakref.ref(listener)
    del listener
    gc.collect()
    assert gone() is None
    await asyncio.sleep(0.01)
    with pytest.raises(ucxx.exceptions.UCXNotConnectedError):
        await ucxx.create_endpoint("127.0.0.1", port)


@asynchronous
async def test_an_endpoint_that_is_dropped_closes():
    async with pair() as (a, b):
        ep = await ucxx.create_endpoint("127.0.0.1", await listening(hold := []))
        await until(lambda: hold, "nobody was accepted")
        del ep
        gc.collect()
        await until(lambda: hold[0].closed, "its peer was not told")
        with pytest.raises(UCXConnectionResetError):
            await hold[0].recv(bytearray(1))
        hold.clear()
        kept.clear()
        del a, b


kept: list = []


async def listening(accepted: list) -> int:
    kept.append(ucxx.create_listener(accepted.append))
    return kept[0].port


@asynchronous
async def test_an_endpoint_that_another_thread_drops_or_aborts():
    """As Dask's finalizers do, when a worker thread happens to collect garbage."""
    for how in ("drop", "abort"):
        held = []
        listener = ucxx.create_listener(held.append)
        ep = [await ucxx.create_endpoint("127.0.0.1", listener.port)]
        await until(lambda: held, "nobody was accepted")
        thread = threading.Thread(target=ep.clear if how == "drop" else ep[0].abort)
        thread.start()
        thread.join(DEADLINE)
        await until(lambda: held[0].closed, f"{how}: its peer was not told")
        held.clear()
        ep.clear()
        listener.close()


@asynchronous
async def test_a_use_in_another_thread_is_refused_by_name():
    async with pair() as (a, b):
        errors = []

        def use():
            try:
                asyncio.run(a.send(b"x"))
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=use)
        thread.start()
        await asyncio.get_running_loop().run_in_executor(None, thread.join)
        assert isinstance(errors[0], RuntimeError) and "thread" in str(errors[0])
        del a, b


def test_descriptors_and_threads_come_back():
    def count():
        gc.collect()
        return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))

    asyncio.run(exchange(0))
    ucxx.reset()
    before = count()
    for i in range(10):
        asyncio.run(exchange(i, 200_000))
        ucxx.reset()
    after = count()
    assert after[0] <= before[0] and after[1] <= before[1], f"{before} before, {after} after"


def test_uvloop():
    uvloop = pytest.importorskip("uvloop", reason="uvloop is not installed")
    for i in range(3):
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(exchange(i, 300_000))
    ucxx.reset()


EXITS = {
    "with traffic under way": """
        async def main():
            listener, a, b = await two()
            asyncio.ensure_future(a.send(bytes(5_000_000)))
            asyncio.ensure_future(b.recv(bytearray(10), tag=3))
            await asyncio.sleep(0.05)
        asyncio.run(main())
    """,
    "by sys.exit in a callback": """
        async def main():
            listener, a, b = await two()
            asyncio.get_running_loop().call_later(0.05, lambda: None)
            asyncio.ensure_future(b.recv(bytearray(10)))
            await asyncio.sleep(0.05)
            sys.exit(0)
        asyncio.run(main())
    """,
    "with everything kept in globals": """
        async def main():
            global kept
            kept = await two()
        asyncio.run(main())
    """,
    "with the loop never closed": """
        loop = asyncio.new_event_loop()
        kept = loop.run_until_complete(two())
    """,
    "with a worker without a loop": """
        address = ucxx.get_worker_address()
        ep = ucxx._lib.libucxx.UCXEndpoint.create_from_worker_address(
            ucxx.core._get_ctx().worker, address)
        ep.tag_send(ucxx._lib.arr.Array(bytes(100_000)), ucxx.types.Tag(1))
    """,
    "with a progress thread": """
        from ucxx._lib import libucxx as api
        worker = api.UCXWorker(api.UCXContext())
        worker.start_progress_thread()
        listener = api.UCXListener.create(worker, 0, print)
    """,
}


@pytest.mark.parametrize("how", EXITS)
def test_the_interpreter_exits(how):
    import textwrap

    code = textwrap.dedent("""
        import asyncio, sys, ucxx
        async def two():
            got = asyncio.get_running_loop().create_future()
            listener = ucxx.create_listener(got.set_result)
            a = await ucxx.create_endpoint("127.0.0.1", listener.port)
            return listener, a, await got
    """) + textwrap.dedent(EXITS[how])
    got = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", code],
        text=True,
        capture_output=True,
        timeout=DEADLINE,
    )
    assert got.returncode == 0, got.stdout + got.stderr
    assert "Traceback" not in got.stderr and "rror" not in got.stderr, got.stderr


def test_what_was_sent_last_leaves_before_the_loop_closes():
    """A program that sends, aborts and ends at once: the other one has all."""
    code = (
        "import asyncio, sys, ucxx\n"
        "async def main():\n"
        "    ep = await ucxx.create_endpoint('127.0.0.1', int(sys.argv[1]))\n"
        "    for i in range(200): await ep.send(i.to_bytes(4, 'little') * 1000)\n"
        "    ep.abort()\n"
        "asyncio.run(main())\n"
    )

    async def main():
        served = asyncio.get_running_loop().create_future()

        async def serve(ep):
            got = bytearray(4000)
            try:
                for i in range(200):
                    await ep.recv(got)
                    assert got == i.to_bytes(4, "little") * 1000
            except BaseException as error:
                served.set_exception(error)
            else:
                served.set_result(None)

        listener = ucxx.create_listener(serve)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, str(listener.port)
        )
        await asyncio.wait_for(served, DEADLINE)
        assert await process.wait() == 0
        listener.close()

    asyncio.run(main())
