# SPDX-License-Identifier: BSD-3-Clause
"""Cancelling, ends of every kind, loops, threads, fork, exit: every wait ends, nothing is left."""

import asyncio
import contextlib
import gc
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref

import pytest
import ropeway
from helpers import DEADLINE_S, descriptors, pair, pattern, python, run, settled, threads
from ropeway import Error, Status

# ---- cancelling ----


def test_a_cancelled_receive_gives_no_later_message_away(transport):
    async def main():
        async with pair() as (a, b):
            for n in range(50):
                lost, kept = bytearray(8), bytearray(8)
                op = b.recv(lost, 1)
                if n & 1:
                    await asyncio.sleep(0)
                assert op.cancel("why") is True and op.cancelled() and op.done()
                assert op.cancel() is False
                op2 = b.recv(kept, 1)
                await a.send(b"%8d" % n, 1)
                await op2
                assert kept == b"%8d" % n and lost == bytes(8)
                with pytest.raises(asyncio.CancelledError, match="why"):
                    await op
                with pytest.raises(asyncio.CancelledError):
                    op.result()

    run(main())


def test_a_receive_that_has_its_message_cannot_be_cancelled(transport):
    """Its completion may wait in the list, or in the library: the message is not lost."""

    async def main():
        async with pair() as (a, b):
            cancelled = 0
            for n in range(100):
                buf = bytearray(8)
                op = b.recv(buf, 1)
                a.send(b"%8d" % n, 1)
                await a.flush() if n % 3 == 0 else await asyncio.sleep(0)
                if op.cancel():
                    cancelled += 1
                    buf = bytearray(8)
                    await b.recv(buf, 1)  # it goes to the next one
                else:
                    assert op.result() == (8, 1)
                assert buf == b"%8d" % n
            print(f"{cancelled} of 100 were in time")

    run(main())


def test_a_timeout_withdraws(transport):
    async def main():
        async with pair() as (a, b):
            buf = bytearray(4)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await b.recv(buf, 1)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(b.recv(buf, 1), 0.01)
            await a.send(b"late", 1)
            assert await b.recv(buf, 1) == (4, 1) and buf == b"late"
            assert b.context.statistics().requests == 0

    run(main())


def test_cancelling_while_bytes_move_holds_the_buffer(transport):
    async def main():
        async with pair() as (a, b):
            for n in range(8):
                source, target = pattern(30_000_000, n), bytearray(30_000_000)
                op, s = b.recv(target, 1), a.send(source, 1)
                for _ in range(n):
                    await asyncio.sleep(0)
                if op.cancel():
                    s.cancel()
                    for _ in range(10_000):
                        with contextlib.suppress(BufferError):
                            target.append(1)
                            break
                        await asyncio.sleep(0.001)
                    else:
                        raise AssertionError("the buffer is still held")
                    while (b.probe(1)) is not None:  # not withdrawn in time: it waits
                        await b.recv(bytearray(len(source)), 1)
                else:
                    assert await op == (30_000_000, 1) and target == source
                    await s

    run(main())


def test_many_are_cancelled_as_one(transport):
    async def main():
        async with pair() as (a, b):
            bufs = [bytearray(8) for _ in range(100)]
            op = b.recv_many(bufs, range(100))
            await a.send(b"one", 40)
            await a.flush()
            assert op.cancel() and op.cancelled()
            await a.send_many([b"%3d" % n for n in range(100)], range(100))
            bufs = [bytearray(8) for _ in range(100)]
            for n, r in enumerate(await b.recv_many(bufs, range(100))):
                assert r == (3, n) and bufs[n][:3] == b"%3d" % n

    run(main())


# ---- what asyncio asks of a future ----


def test_an_operation_is_a_future_to_asyncio():
    async def main():
        loop = asyncio.get_running_loop()
        async with pair() as (a, b):
            buf = bytearray(8)
            op = b.recv(buf, 1)
            assert asyncio.isfuture(op) and asyncio.ensure_future(op) is op and op.get_loop() is loop
            with pytest.raises(asyncio.InvalidStateError):
                op.result()
            called = []
            op.add_done_callback(called.append)
            op.add_done_callback(called.append)
            op.add_done_callback(print)
            assert op.remove_done_callback(print) == 1
            assert op.remove_done_callback(called.append) == 2
            op.add_done_callback(called.append)
            shielded = asyncio.shield(op)
            shielded.cancel()
            done, pending = await asyncio.wait([op], timeout=0.001)
            assert not done and pending == {op} and op.exception is not None
            await a.send(b"x", 1)
            done, pending = await asyncio.wait([op], timeout=5)
            assert done == {op} and not pending and op.exception() is None
            await asyncio.sleep(0)
            assert called == [op] and await op == (1, 1) and op.result() is op.result()
            op.add_done_callback(called.append)  # late: soon
            await asyncio.sleep(0)
            assert called == [op, op]
            sent = a.send(b"x", 1)
            assert sent.done() and sent.result() is None and not sent.cancel()
            assert asyncio.isfuture(sent) and sent.get_loop() is loop
            await asyncio.gather(sent, a.send(b"y", 2))
            first = await next(asyncio.as_completed([b.recv(buf, 1), b.recv(bytearray(8), 9)]))
            assert first == (1, 1)
            for finished in asyncio.as_completed([b.recv(buf, 2)]):
                assert (await finished).tag == 2
            # two tasks wait for one operation
            op = b.recv(buf, 3)

            async def wait():
                return await op

            waiting = [asyncio.create_task(wait()) for _ in range(3)]
            await asyncio.sleep(0)
            await a.send(b"z", 3)
            assert await asyncio.gather(*waiting) == [(1, 3)] * 3
            # gather's cancel reaches its children
            ops = [b.recv(bytearray(1), 50 + n) for n in range(3)]
            g = asyncio.gather(*ops)
            g.cancel()
            with pytest.raises(asyncio.CancelledError):
                await g
            assert all(op.cancelled() for op in ops)
            assert "pending" in repr(b.recv(buf, 99))

    run(main())


def test_a_task_that_is_cancelled_withdraws_its_receive(transport):
    async def main():
        async with pair() as (a, b):
            async def receive():
                await b.recv(bytearray(8), 1)

            task = asyncio.create_task(receive())
            await asyncio.sleep(0.005)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await a.send(b"for the next", 1)
            assert (await b.recv(bytearray(20), 1)).length == 12

    run(main())


def test_others_get_their_turn():
    """A task whose every await is done at once does not starve those beside it."""

    async def main():
        async with pair() as (a, b):
            turns = 0

            async def beside():
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0)

            task = asyncio.create_task(beside())
            buf = bytearray(8)
            for _ in range(2000):
                await a.send(b"12345678", 1)
                await b.recv(buf, 1)
                op = b.recv(buf, 2)
                await a.send(b"12345678", 2)
                await op
            task.cancel()
            timer = []
            asyncio.get_running_loop().call_later(0.001, timer.append, 1)
            rounds = 0
            while not timer:
                op = b.recv(buf, 2)
                await a.send(b"12345678", 2)
                await op
                rounds += 1
                assert rounds < 5_000_000
            print(f"{turns} turns beside 4,000 messages; a timer of 1 ms after {rounds} messages")
            assert turns > 10

    run(main())


# ---- ends ----


def test_the_peers_orderly_end_comes_after_its_messages(transport):
    async def main():
        async with pair() as (a, b):
            told = asyncio.get_running_loop().create_future()
            b.on_close(lambda status, sentence: told.set_result((status, sentence)))
            data = [pattern(n * 3001, n) for n in range(20)]
            for d in data:
                a.send(d, 1)
            waits = b.recv(bytearray(9), 2)
            # the peer takes large ones while the end waits for it
            end = a.shutdown()
            with pytest.raises(Error):
                a.send(b"too late", 1)
            for d in data:
                buf = bytearray(len(d))
                await b.recv(buf, 1)
                assert buf == d
            await end
            a.close()
            assert (await told)[0] == 0
            with pytest.raises(Error) as e:
                await waits
            assert e.value.status == Status.PEER_GONE and b.closed
            with pytest.raises(Error):
                await b.send(b"nobody is there", 1)
            again = asyncio.get_running_loop().create_future()
            b.on_close(lambda status, sentence: again.set_result(status))  # late: told at once
            assert await again == 0

    run(main())


def test_closing_this_side_ends_its_operations(transport):
    async def main():
        async with pair() as (a, b):
            ops = [b.recv(bytearray(8), n) for n in range(10)] + [b.recv_obj()]
            b.close()
            for op in ops:
                with pytest.raises(Error) as e:
                    await op
                assert e.value.status == Status.CANCELED
            assert b.closed
            b.close()
            for call in (lambda: b.send(b"", 1), lambda: b.recv(bytearray(1)), b.info, b.flush):
                with pytest.raises(Error, match="closed by this side"):
                    call()
            assert b.peer_message_tag == a.message_tag

    run(main())


PEER = """
import asyncio, os, sys, ropeway
async def main():
    ep = await ropeway.connect(sys.argv[1])
    await ep.send(b"here", 1)
    await ep.flush()  # a send that is done may still be on its way, and end with its process
    print("connected", flush=True)
    mode = sys.argv[2]
    buf = bytearray(100)
    op = ep.recv(buf, 7)
    if mode == "exit":
        sys.exit(0)
    elif mode == "_exit":
        os._exit(0)
    elif mode == "close":
        ep.close(); await asyncio.sleep(0.2)
    elif mode == "drop":
        del ep, op; await asyncio.sleep(0.2)
    elif mode == "end":
        pass
    elif mode == "raise":
        raise ValueError("on purpose")
    else:
        await asyncio.sleep(600)
asyncio.run(main())
"""


@pytest.mark.parametrize("mode", ["kill", "exit", "_exit", "close", "end", "raise", "term"])
def test_the_peers_end_ends_every_wait(transport, mode):
    async def main():
        async with ropeway.listen() as listener:
            with python(PEER, listener.address, mode) as peer:
                ep = await listener.accept()
                told = asyncio.get_running_loop().create_future()
                ep.on_close(lambda status, sentence: told.set_result((status, sentence)))
                await ep.recv(bytearray(8), 1)
                await asyncio.to_thread(peer.stdout.readline)
                big = pattern(40_000_000)

                async def each(op):
                    with pytest.raises(Error) as e:
                        print(op, await op)
                    return e.value

                # where it has ended by now, posting says so; then there is nothing to flush
                posts = [
                    lambda: ep.recv(bytearray(8), 2),
                    lambda: ep.recv_obj(),
                    lambda: ep.recv_many([bytearray(8)] * 3, 3),
                    lambda: ep.send(big, 5),
                    lambda: ep.send_obj(big),
                ]
                ops, errors = [], []
                for post in posts:
                    try:
                        ops.append(post())
                    except Error as e:
                        errors.append(e)
                if not errors:
                    ops.append(ep.flush())
                if mode in ("kill", "term"):
                    await asyncio.sleep(0.02)
                    peer.send_signal(signal.SIGKILL if mode == "kill" else signal.SIGTERM)
                began = time.monotonic()
                errors += await asyncio.gather(*map(each, ops))
                status, sentence = await told
                print(f"{mode}: all told {time.monotonic() - began:.3f} s later: {sentence}")
                assert status == Status.PEER_GONE and ep.closed
                for e in errors:
                    assert e.status == Status.PEER_GONE and e.sentence and e.peer, e

    run(main())


def test_nobody_listens():
    async def main():
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        with pytest.raises(Error) as e:
            await ropeway.connect(f"127.0.0.1:{port}", timeout=0.1)
        assert e.value.status == Status.UNREACHABLE and "refused" in str(e.value)
        with pytest.raises(Error) as e:
            await ropeway.connect(f"127.0.0.1:{port}", timeout=1000, retry=False)
        assert e.value.status == Status.UNREACHABLE and "refused" in str(e.value)
        with pytest.raises(Error) as e:
            await ropeway.connect("no address", timeout=0.1)
        assert e.value.status == Status.INVALID
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(ropeway.connect(f"127.0.0.1:{port}"), 0.05)
        with pytest.raises(ValueError, match="timeout"):
            await ropeway.connect(f"127.0.0.1:{port}", timeout=0)
        assert ropeway.context().statistics().endpoints == 0

    run(main())


def test_a_mute_server_is_a_timeout():
    async def main():
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            s.listen()
            with pytest.raises(ropeway.Timeout) as e:
                await ropeway.connect(f"127.0.0.1:{s.getsockname()[1]}", timeout=0.2)
            assert isinstance(e.value, TimeoutError) and e.value.status == Status.TIMEOUT

    run(main())


def test_listeners():
    async def main():
        got = []

        async def callback(ep):
            got.append(ep)
            await ep.send(b"welcome", 1)

        listener = ropeway.listen(callback=callback)
        assert 0 < listener.port < 65536 and not listener.closed
        a = await ropeway.connect(f"127.0.0.1:{listener.port}")
        assert (await a.recv(bytearray(10), 1)).length == 7
        with pytest.raises(Error, match="callback"):
            await listener.accept()
        with pytest.raises(Error) as e:
            ropeway.listen(f"127.0.0.1:{listener.port}")
        assert e.value.status == Status.SYSTEM
        listener.close()
        assert listener.closed
        b = got[0]
        await a.send(b"stays", 2)
        assert (await b.recv(bytearray(9), 2)).length == 5
        seen = []
        async with ropeway.listen() as listener:

            async def serve():
                async for ep in listener:
                    seen.append(ep)

            task = asyncio.create_task(serve())
            eps = await asyncio.gather(*[ropeway.connect(listener.address) for _ in range(20)])
            while len(seen) < 20:
                await asyncio.sleep(0.001)
        await task
        with pytest.raises(Error) as e:
            await listener.accept()
        assert e.value.status == Status.CANCELED
        for ep in (*eps, *seen, a, b):
            ep.close()
        # a waiter that is cancelled leaves its endpoint to the next
        async with ropeway.listen() as listener:
            first, second = (asyncio.ensure_future(listener.accept()) for _ in range(2))
            await asyncio.sleep(0)
            first.cancel()
            x = await ropeway.connect(listener.address)
            y = await second
            await x.send(b"1", 1)
            await y.recv(bytearray(1), 1)

        # a dropped endpoint closes
        async with ropeway.listen(callback=lambda ep: None) as listener:
            x = await ropeway.connect(listener.address)
            with pytest.raises(Error) as e:
                await x.recv(bytearray(1), 1)
            assert e.value.status == Status.PEER_GONE

    run(main())


def test_async_with_ends_in_order(transport):
    async def main():
        async with ropeway.listen() as listener:
            told = asyncio.get_running_loop().create_future()
            data = pattern(2_000_000)

            async def client():
                async with await ropeway.connect(listener.address) as ep:
                    ep.send(data, 1)  # not awaited: the end is a flush

            task = asyncio.create_task(client())
            ep = await listener.accept()
            ep.on_close(lambda status, sentence: told.set_result(status))
            buf = bytearray(len(data))
            await ep.recv(buf, 1)
            await task
            assert buf == data and await told == 0
            ep.close()

    run(main())


# ---- loops and threads ----


def factories():
    yield pytest.param(None, id="asyncio")
    try:
        import uvloop

        yield pytest.param(uvloop.new_event_loop, id="uvloop")
    except ImportError:
        yield pytest.param(None, id="uvloop", marks=pytest.mark.skip(reason="uvloop is not installed"))


async def chat(n=50):
    async with pair() as (a, b):
        m = b.context.memory.allocate(4096)
        key = a.unpack(m.rkey())
        for k in range(n):
            data, buf = pattern(k * 1999, k), bytearray(k * 1999)
            await asyncio.gather(b.recv(buf, 1), a.send(data, 1))
            assert buf == data
            await a.put(key, 0, data[:100])
            got, _ = await asyncio.gather(a.recv_obj(), b.send_obj(data))
            assert got == data
        m.close()


@pytest.mark.parametrize("factory", list(factories()))
def test_loops_one_after_the_other(transport, factory):
    gc.collect()
    run(chat(), loop_factory=factory)
    before = descriptors(), threads()
    for _ in range(5):
        run(chat(), loop_factory=factory)
    gc.collect()
    assert settled(before) == before


@pytest.mark.parametrize("factory", list(factories()))
def test_loops_in_threads(transport, factory):
    failed = []

    def work():
        try:
            run(chat(30), loop_factory=factory)
        except BaseException as e:
            failed.append(e)
            raise

    pool = [threading.Thread(target=work) for _ in range(4)]
    for t in pool:
        t.start()
    for t in pool:
        t.join(DEADLINE_S * 2)
    assert not failed and not any(t.is_alive() for t in pool)


@pytest.mark.parametrize("factory", list(factories()))
def test_a_closed_loop_closes_its_context(factory):
    gc.collect()
    before = descriptors()
    kept = []

    async def main():
        async with ropeway.listen() as listener:
            a, b = await asyncio.gather(ropeway.connect(listener.address), listener.accept())
            kept.extend([a, b, b.recv(bytearray(8), 1), ropeway.context()])
            b.recv(bytearray(8), 2)  # nobody holds it
            a.send(pattern(50_000_000), 2)

    run(main(), loop_factory=factory)
    gc.collect() if factory else None
    a, b, op, c = kept
    assert c.closed and a.closed and b.closed and op.done()
    with pytest.raises(Error):
        op.result()
    with pytest.raises(Error, match="context"):
        a.send(b"x", 1)
    with pytest.raises(Error, match="closed"):
        c.recv(bytearray(1))
    c.close()
    assert descriptors() == before
    del a, b, op, c
    kept.clear()
    gc.collect()


def test_a_loop_that_nobody_closes_is_collected_with_its_context():
    gc.collect()
    before = descriptors()

    async def main():
        async with ropeway.listen() as listener:
            a, b = await asyncio.gather(ropeway.connect(listener.address), listener.accept())
            b.recv(bytearray(8), 2)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(main())
    watch = weakref.ref(loop)
    loop._ssock.close(), loop._csock.close(), loop._selector.close()  # for their warnings
    loop._closed = True
    del loop
    gc.collect()
    assert watch() is None
    assert descriptors() == before


def test_another_thread_is_refused_by_name():
    async def main():
        async with pair() as (a, b):
            op = b.recv(bytearray(8), 1)
            for call in (
                lambda: a.send(b"x", 1),
                lambda: b.recv(bytearray(1), 1),
                op.cancel,
                a.close,
                a.context.close,
                a.context.progress,
                lambda: op.wait(1),
                a.info,
            ):
                with pytest.raises(RuntimeError, match="belongs to one thread at a time"):
                    await asyncio.to_thread(call)
            a.context.wake()
            await asyncio.to_thread(a.context.wake)
            op.cancel()

    run(main())


def test_what_another_threads_collector_frees():
    """Endpoints, memory and keys that die elsewhere are closed by their own thread."""

    async def main():
        c = ropeway.context()
        async with ropeway.listen() as listener:
            for _ in range(20):
                a, b = await asyncio.gather(ropeway.connect(listener.address), listener.accept())
                m = c.memory.register(bytearray(4096))
                box = [a, m, b.unpack(m.rkey())]
                del a, m
                await asyncio.to_thread(box.clear)
                with pytest.raises(Error) as e:
                    await b.recv(bytearray(1), 1)
                assert e.value.status == Status.PEER_GONE
        b.close()
        await asyncio.sleep(0.01)
        assert c.statistics().endpoints == 0

    run(main())


def test_contexts_without_a_loop(transport):
    c, d = ropeway.Context(), ropeway.Context()
    accepted = []
    listener = c._listen("127.0.0.1:0", accepted.append)
    ep, connected = d._connect(listener.address)
    while not (connected.done() and accepted):
        c.progress(), d.progress()
    assert connected.result() is None
    buf = bytearray(10)
    op = accepted[0].recv(buf, 1)
    with pytest.raises(RuntimeError, match="no loop"):
        op.get_loop()
    with pytest.raises(ropeway.Timeout) as e:
        op.wait(0.01)
    assert e.value.status == Status.EXPIRED and not op.done()
    called = []
    op.add_done_callback(called.append)
    ep.send(b"hello", 1).wait(5)
    assert op.wait(5) == (5, 1) and called == [op]
    op = accepted[0].recv(buf, 2)
    threading.Timer(0.05, c.wake).start()
    assert c.wait(10) is False
    assert op.done() is False and op.cancel()
    c.close()
    assert accepted[0].closed
    d.close()


def test_blocking(transport):
    data = pattern(3_000_000)
    with ropeway.blocking.Context() as server, ropeway.blocking.Context() as client:
        with server.listen() as listener:
            with pytest.raises(ropeway.Timeout):
                listener.accept(0.01)
            failed = []

            def serve():
                try:
                    with listener.accept(DEADLINE_S) as ep:
                        while True:
                            got = ep.recv_obj(timeout=DEADLINE_S)
                            ep.send_obj(got, timeout=DEADLINE_S)
                except Error as e:
                    failed.append(e)

            t = threading.Thread(target=serve)
            t.start()
            with client.connect(listener.address) as ep:
                assert ep.info().transport == transport
                ep.send_obj(data, timeout=DEADLINE_S)
                assert ep.recv_obj(timeout=DEADLINE_S) == data
                with pytest.raises(ropeway.Timeout) as e:
                    ep.recv(bytearray(8), 1, timeout=0.02)
                assert e.value.status == Status.EXPIRED
                op = ep.start.recv(bytearray(8), 1)
                assert not op.done() and op.cancel()
                assert client.statistics().requests == 0
            t.join(DEADLINE_S)
            assert not t.is_alive() and failed[0].status == Status.PEER_GONE


def test_a_blocking_wait_hears_signals():
    with ropeway.blocking.Context() as c, c.listen() as listener:
        def ring(*_):
            raise InterruptedError("rung")

        old = signal.signal(signal.SIGALRM, ring)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            with pytest.raises(InterruptedError, match="rung"):
                listener.accept(DEADLINE_S)
        finally:
            signal.signal(signal.SIGALRM, old)


# ---- fork and exit ----


def test_fork_is_refused_by_name(transport):
    async def main():
        async with pair() as (a, b):
            op = b.recv(bytearray(8), 1)
            pid = os.fork()
            if pid == 0:
                code = 1
                try:
                    refused = 0
                    for call in (
                        lambda: a.send(b"x", 1),
                        lambda: b.recv(bytearray(1), 1),
                        a.context.progress,
                        lambda: a.context._listen("127.0.0.1:0", print),
                        lambda: ropeway.context()._statistics() and None,
                    ):
                        try:
                            call()
                        except Error as e:
                            refused += e.status == Status.INVALID and "make one after fork" in str(e)
                    a.close()
                    # a new loop, a new context: in the child, too
                    code = 0 if refused >= 4 else 10 + refused

                    def other():
                        nonlocal code
                        try:
                            asyncio.run(chat(5))
                        except BaseException as e:
                            print("the child:", repr(e), file=sys.stderr)
                            code = 3

                    t = threading.Thread(target=other)
                    t.start()
                    t.join(DEADLINE_S)
                finally:
                    os._exit(code)
            while os.waitpid(pid, os.WNOHANG)[0] == 0:
                await asyncio.sleep(0.01)
            await a.send(b"parent", 1)
            assert (await op).length == 6

    run(main())


EXIT = """
import asyncio, gc, os, sys, threading, time, ropeway
async def traffic(end=None):
    async with ropeway.listen() as listener:
        a, b = await asyncio.gather(ropeway.connect(listener.address), listener.accept())
        big = bytearray(8_000_000)
        ropeway.context().on_am(1, lambda *x: None)
        keep.extend([a, b, ropeway.context(), asyncio.current_task()])
        n = 0
        while True:
            ops = [b.recv(bytearray(8_000_000), 1), a.send(big, 1), b.recv_obj(), a.send_obj(big),
                a.am_send(1, big), b.recv(bytearray(8), 5), b.recv_many([bytearray(8)] * 50, 6)]
            keep.append(ops)
            await asyncio.sleep(0)
            await ops[1]
            n += 1
            if end and n == 3:
                end()
keep = []
def end():
    if sys.argv[1] == "exit": sys.exit(3)
    if sys.argv[1] == "_exit": os._exit(3)
    if sys.argv[1] == "gc":
        gc.collect(); sys.exit(3)
if sys.argv[1] == "thread":
    threading.Thread(target=lambda: asyncio.run(traffic()), daemon=True).start()
    time.sleep(0.3)
    sys.exit(3)
if sys.argv[1] == "blocking":
    s = ropeway.blocking.Context(); c = ropeway.blocking.Context()
    l = s.listen()
    def serve():
        ep = l.accept(20)
        while True:
            ep.recv_obj()
    threading.Thread(target=serve, daemon=True).start()
    ep = c.connect(l.address)
    for _ in range(5): ep.send_obj(bytes(5_000_000))
    ops = [ep.start.send_obj(bytes(50_000_000)) for _ in range(5)]
    sys.exit(3)
if sys.argv[1] == "open":
    # a loop that nobody closes
    loop = asyncio.new_event_loop()
    task = loop.create_task(traffic(loop.stop))
    loop.run_forever()
    sys.exit(3)
asyncio.run(traffic(end))
"""


@pytest.mark.parametrize("mode", ["exit", "_exit", "gc", "thread", "blocking", "open"])
def test_exit_with_traffic_under_way(transport, mode):
    with python(EXIT, mode) as p:
        assert p.wait(DEADLINE_S) == 3


def test_import_costs_little(capsys):
    """Not asserted but as a bound of sanity: the figure is the bench's."""
    code = "import asyncio, time; t = time.perf_counter(); import ropeway; print(time.perf_counter() - t)"
    took = []
    for _ in range(5):
        r = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
        took.append(float(r.stdout))
    print(f"import ropeway beyond asyncio: {min(took) * 1e3:.1f} ms")


def test_the_end_leaves_nothing(transport):
    run(chat(5))
    gc.collect()
    before = descriptors(), threads()

    async def main():
        async with ropeway.listen() as listener:
            for _ in range(10):
                a, b = await asyncio.gather(ropeway.connect(listener.address), listener.accept())
                ops = [b.recv(bytearray(100), n) for n in range(10)]
                await a.send(b"x", 3)
                await ops[3]
                await a.shutdown()
                a.close()
                for op in ops:
                    with contextlib.suppress(Error):
                        await op
                b.close()
            s = ropeway.context().statistics()
            assert (s.endpoints, s.requests) == (0, 0)

    run(main())
    gc.collect()
    assert settled(before) == before


def test_none_true_and_false_keep_their_references():
    # Headers from 3.12 on do not count them, and 3.11 does: tests/python/run --long builds so.
    c = ropeway.Context()
    before = [sys.getrefcount(o) for o in (None, True, False)]
    for _ in range(3000):
        op = c.recv(bytearray(1), 1)
        assert c.probe(1) is None
        assert op.cancel() is True and op.cancel() is False
        c.wake()
    after = [sys.getrefcount(o) for o in (None, True, False)]
    c.close()
    assert all(abs(a - b) < 1000 for a, b in zip(after, before)), (before, after)


def test_a_loop_with_nothing_to_do_sleeps(transport):
    async def main():
        loop = asyncio.get_running_loop()
        looks, select = [0], loop._selector.select

        def counted(timeout=None):
            looks[0] += 1
            return select(timeout)

        async with pair() as (a, b):
            loop._selector.select = counted
            try:
                for size in (8, 1 << 20):
                    op = b.recv(bytearray(size), 1)
                    # its turn is asked for and its descriptor is readable, at the same time
                    a.context.wake()
                    await asyncio.gather(a.send(bytes(size), 1), op)
                    await asyncio.sleep(0.05)
                    before = looks[0]
                    await asyncio.sleep(0.3)
                    assert looks[0] - before < 100, looks[0] - before
            finally:
                loop._selector.select = select

    run(main())


def test_uvloop_is_asked_again_for_a_short_while_only(transport):
    uvloop = pytest.importorskip("uvloop")
    asked = [0]

    class Counting(uvloop.Loop):
        def call_soon(self, *args, **kw):
            asked[0] += 1
            return super().call_soon(*args, **kw)

    async def main():
        async with pair() as (a, b):
            for size in (8, 1 << 20):
                waits = b.recv(bytearray(8), 2)  # nobody sends it
                await asyncio.gather(a.send(bytes(size), 1), b.recv(bytearray(size), 1))
                await asyncio.sleep(0.05)
                before = asked[0]
                await asyncio.sleep(0.3)
                assert asked[0] - before < 100, asked[0] - before
                waits.cancel()

    with asyncio.Runner(loop_factory=Counting) as runner:
        runner.run(asyncio.wait_for(main(), DEADLINE_S))
