# SPDX-License-Identifier: BSD-3-Clause
"""What ends badly, ends: at once, with the exception that says who did it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import ucxx
from ucxx.exceptions import (
    UCXBusyError,
    UCXCanceledError,
    UCXCloseError,
    UCXConnectionResetError,
    UCXError,
    UCXMessageTruncatedError,
    UCXNotConnectedError,
    UCXUnreachableError,
)
from ucxx_help import asynchronous, pair, pattern, start, until

#: A peer in a process of its own. It connects, sends two messages, says so, and ends as it is told.
PEER = """
import asyncio, os, signal, sys, ucxx
from ucxx_help import pattern
port, how = int(sys.argv[1]), sys.argv[2]
async def main():
    ep = await ucxx.create_endpoint("127.0.0.1", port)
    await ep.send(pattern(1, 100)); await ep.send(pattern(2, 5000))
    print("sent", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    if how == "close":
        await ep.close()
    elif how == "abort":
        ep.abort()
    elif how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "_exit":
        os._exit(3)
    elif how == "drop":
        pass
asyncio.run(main())
"""

ENDS = ["close", "abort", "drop", "_exit", "kill"]


@contextlib.asynccontextmanager
async def peer(how: str):
    """An endpoint whose peer is another process; `go()` has it end."""
    accepted = asyncio.get_running_loop().create_future()
    done = asyncio.Event()

    async def serve(ep):
        accepted.set_result(ep)
        await done.wait()

    listener = ucxx.create_listener(serve)
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(
            [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
        ),
    }
    process = subprocess.Popen(
        [sys.executable, "-c", PEER, str(listener.port), how],
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        ep = await accepted
        del accepted
        await asyncio.get_running_loop().run_in_executor(None, process.stdout.readline)

        def go():
            process.stdin.write("\n")
            process.stdin.flush()

        yield ep, go
        await ep.close()
    finally:
        done.set()
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()
        await listener._wait_for_active_clients()
        listener.close()


@pytest.mark.parametrize("how", ENDS)
@asynchronous
async def test_a_peer_ends_with_a_receive_pending(transport, how):
    start(transport)
    async with peer(how) as (ep, go):
        told = []
        ep.set_close_callback(lambda *a, **k: told.append((a, k)), (7,), {"x": 8})
        for i, n in ((1, 100), (2, 5000)):
            got = bytearray(n)
            await ep.recv(got)
            assert got == pattern(i, n)
        pending = [
            asyncio.ensure_future(ep.recv(bytearray(10))),
            asyncio.ensure_future(ep.recv_multi(tag="other")),
            asyncio.ensure_future(ep.am_recv()),
            asyncio.ensure_future(ep.recv(bytearray(10), tag=5, force_tag=True)),
        ]
        await asyncio.sleep(0.05)
        assert not any(p.done() for p in pending)
        begin = time.monotonic()
        go()
        for p in pending:
            with pytest.raises(UCXCanceledError):
                await p
        print(f"{transport}, {how}: receives canceled after {time.monotonic() - begin:.3f} s")
        await until(lambda: ep.closed and told, "nobody told of the end")
        assert told == [((7,), {"x": 8})] and not ep.alive
        for call in (
            lambda: ep.send(b"x"),
            lambda: ep.recv(bytearray(1)),
            lambda: ep.send_multi([b"x"]),
            lambda: ep.am_send(b"x"),
            lambda: ep.am_recv(),
            lambda: ep.send_obj(b"x"),
            lambda: ep.recv(bytearray(1), tag=9, force_tag=True),
        ):
            with pytest.raises(UCXConnectionResetError):
                await call()
        del ep, pending


@pytest.mark.parametrize("how", ENDS)
@asynchronous
async def test_what_came_before_the_end_can_still_be_received(transport, how):
    start(transport)
    async with peer(how) as (ep, go):
        go()
        await until(lambda: ep.closed, "the end has not come")
        for i, n in ((1, 100), (2, 5000)):
            got = bytearray(n)
            await ep.recv(got)
            assert got == pattern(i, n)
        with pytest.raises(UCXConnectionResetError):
            await ep.recv(bytearray(1))
        del ep


@pytest.mark.parametrize("how", ["close", "abort"])
@asynchronous
async def test_this_side_closes_with_receives_pending(transport, how):
    start(transport)
    async with pair() as (a, b):
        told = []
        a.set_close_callback(told.append, (1,))
        pending = [
            asyncio.ensure_future(c)
            for c in (
                a.recv(bytearray(10)),
                a.recv(bytearray(10), tag="t"),
                a.am_recv(),
                a.recv_multi(tag="m"),
                a.recv(bytearray(4), tag=3, force_tag=True),
            )
        ]
        await asyncio.sleep(0.02)
        if how == "close":
            await a.close()
        else:
            a.abort()
        for p in pending:
            with pytest.raises(UCXCanceledError):
                await p
        assert told == [1] and a.closed
        for call in (
            lambda: a.send(b"x"),
            lambda: a.recv(bytearray(1)),
            lambda: a.send_multi([b"x"]),
            lambda: a.recv_multi(),
            lambda: a.am_send(b"x"),
            lambda: a.am_recv(),
            lambda: a.send_obj(b"x"),
            lambda: a.recv_obj(),
        ):
            with pytest.raises(UCXCloseError):
                await call()
        with pytest.raises(UCXCloseError):
            a.tag_probe()
        a.abort()
        await a.close()
        assert isinstance(a.uid, int) and a.closed and not a.alive
        await until(lambda: b.closed, "the peer was not told")
        del a, b, pending


@pytest.mark.parametrize("size", [10, 5000, 3_000_000])
@asynchronous
async def test_what_was_sent_before_a_close_arrives(transport, size):
    start(transport)
    async with pair() as (a, b):
        sends = [asyncio.ensure_future(a.send(pattern(i, size))) for i in range(5)]
        await asyncio.sleep(0)
        closing = asyncio.ensure_future(a.close())
        for i in range(5):
            got = bytearray(size)
            await b.recv(got)
            assert got == pattern(i, size)
        await closing
        await asyncio.gather(*sends)
        del a, b, sends


@asynchronous
async def test_an_abort_cancels_sends_that_nobody_has_asked_for(transport):
    start(transport)
    async with pair() as (a, b):
        send = asyncio.ensure_future(a.send(bytes(3_000_000)))
        await asyncio.sleep(0.02)
        a.abort()
        with pytest.raises(UCXCanceledError):
            await send
        with pytest.raises((UCXCanceledError, UCXConnectionResetError)):
            await b.recv(bytearray(3_000_000))
        del a, b, send


@pytest.mark.parametrize("length, room", [(3, 100), (0, 1), (10, 200_000), (100_000, 200_000)])
@asynchronous
async def test_a_message_that_is_shorter(transport, length, room):
    """As ucxx 0.52.0 on UCX 1.21: the receive is done, and the rest of its buffer as it was."""
    start(transport)
    async with pair() as (a, b):
        got = bytearray(b"." * room)
        send = asyncio.ensure_future(a.send(pattern(1, length)))
        assert await b.recv(got) is None
        assert got == pattern(1, length) + b"." * (room - length)
        await send
        send = asyncio.ensure_future(a.send(pattern(2, length)))
        await until(b.tag_probe, "no message")
        taken = b.tag_probe(remove=True)
        await b.recv_with_handle(got, taken)
        await send
        assert got == pattern(2, length) + b"." * (room - length)
        del a, b, send, taken


@pytest.mark.parametrize("got, expected", [(100, 3), (200_000, 10)])
@asynchronous
async def test_a_message_that_is_longer(transport, got, expected):
    start(transport)
    async with pair() as (a, b):
        send = asyncio.ensure_future(a.send(pattern(1, got)))
        with pytest.raises(UCXMessageTruncatedError) as error:
            await b.recv(bytearray(expected))
        assert f"length mismatch: {got} (got) != {expected} (expected)" in str(error.value)
        assert "Message truncated" in str(error.value)
        await send
        after = bytearray(5)
        await asyncio.gather(a.send(b"after"), b.recv(after))
        assert after == b"after"
        del a, b


@asynchronous
async def test_nobody_listens():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    begin = time.monotonic()
    with pytest.raises(UCXNotConnectedError, match="refused"):
        await ucxx.create_endpoint("127.0.0.1", port)
    print(f"refused after {time.monotonic() - begin:.4f} s")


@asynchronous
async def test_no_way_there():
    with pytest.raises(UCXUnreachableError, match="unreachable"):
        await ucxx.create_endpoint("255.255.255.255", 12345)


@asynchronous
async def test_a_busy_port():
    listener = ucxx.create_listener(lambda ep: None)
    with pytest.raises(UCXBusyError, match="Device is busy"):
        ucxx.create_listener(lambda ep: None, listener.port)
    port = listener.port
    listener.close()
    await asyncio.sleep(0)
    ucxx.create_listener(lambda ep: None, port).close()


@asynchronous
async def test_a_mute_server_is_a_timeout_and_the_loop_goes_on():
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0.01)

        ticking = asyncio.create_task(tick())
        begin = time.monotonic()
        with pytest.raises(TimeoutError):
            await ucxx.create_endpoint("127.0.0.1", mute.getsockname()[1], connect_timeout=0.5)
        print(f"gave up after {time.monotonic() - begin:.3f} s, {ticks} ticks")
        assert ticks > 5
        ticking.cancel()


@asynchronous
async def test_the_timeout_of_connecting_is_5_s_or_what_init_was_given(monkeypatch):
    assert ucxx.core._get_ctx().connect_timeout == 5
    ucxx.reset()
    monkeypatch.setenv("UCXPY_CONNECT_TIMEOUT", "0.25")
    assert ucxx.core._get_ctx().connect_timeout == 0.25
    ucxx.reset()
    ucxx.init(connect_timeout=0.125)
    assert ucxx.core._get_ctx().connect_timeout == 0.125


@asynchronous
async def test_a_canceled_receive_gives_no_message_away(transport):
    start(transport)
    async with pair() as (a, b):
        for _ in range(20):
            receive = asyncio.create_task(b.recv(bytearray(8)))
            await asyncio.sleep(0)
            receive.cancel()
            with pytest.raises(asyncio.CancelledError):
                await receive
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(b.recv(bytearray(8)), 0.01)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(b.am_recv(), 0.01)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(b.recv_multi(), 0.01)
        got = bytearray(8)
        await asyncio.gather(a.send(b"the only"), b.recv(got))
        assert got == b"the only"
        await a.am_send(b"am")
        assert bytes(await b.am_recv()) == b"am"
        _, several = await asyncio.gather(a.send_multi([b"x", b"yz"]), b.recv_multi())
        assert [bytes(s) for s in several] == [b"x", b"yz"]
        del a, b


@asynchronous
async def test_an_error_in_a_callback_is_logged_and_no_more(caplog):
    import logging

    records = []
    handler = logging.Handler()
    handler.emit = records.append
    logging.getLogger("ucx").addHandler(handler)
    try:

        async def bad(ep):
            raise ZeroDivisionError("on purpose")

        listener = ucxx.create_listener(bad)
        ep = await ucxx.create_endpoint("127.0.0.1", listener.port)
        with pytest.raises((UCXCanceledError, UCXConnectionResetError)):
            await ep.recv(bytearray(1))
        await listener._wait_for_active_clients()
        assert any("on purpose" in r.getMessage() for r in records)
        ep.set_close_callback(lambda: 1 / 0)
        await ep.close()
        listener.close()
    finally:
        logging.getLogger("ucx").removeHandler(handler)


@asynchronous
async def test_a_close_callback_after_the_end_is_called_at_once():
    async with pair() as (a, b):
        await b.close()
        await until(lambda: a.closed, "the end has not come")
        told = []
        a.set_close_callback(told.append, (1,))
        assert told == [1]
        await a.close()
        assert told == [1]
        del a, b


async def storm(seed: int) -> None:
    """Operations of all kinds, and an end somewhere among them: every future ends."""
    rng = random.Random(seed)
    async with pair() as (a, b):
        tasks = []
        for _ in range(rng.randrange(1, 25)):
            ep = rng.choice((a, b))
            n = rng.choice((0, 1, 500, 70_000, 400_000))
            what = rng.randrange(7)
            tasks.append(
                asyncio.ensure_future(
                    (
                        lambda: ep.send(bytes(n)),
                        lambda: ep.recv(bytearray(n)),
                        lambda: ep.send_multi([bytes(n), b"x"]),
                        lambda: ep.recv_multi(),
                        lambda: ep.am_send(bytes(n)),
                        lambda: ep.am_recv(),
                        lambda: ep.recv(bytearray(n), tag=rng.randrange(3)),
                    )[what]()
                )
            )
            if rng.random() < 0.3:
                await asyncio.sleep(0)
            if rng.random() < 0.1:
                rng.choice(tasks).cancel()
        end = rng.randrange(3)
        ep = rng.choice((a, b))
        if end == 0:
            ep.abort()
        elif end == 1:
            await ep.close()
        other = b if ep is a else a
        if end == 2:
            a.abort()
            b.abort()
        _, pending = await asyncio.wait(tasks, timeout=20)
        if pending:
            other.abort()
        assert not pending, f"seed {seed}: {pending}"
        for t in tasks:
            if not t.cancelled():
                assert t.exception() is None or isinstance(t.exception(), UCXError), seed
        del a, b, ep, other


@pytest.mark.parametrize(
    "runs", [60, pytest.param(1000, marks=[pytest.mark.long, pytest.mark.timeout(900)])]
)
def test_random_ends(runs, monkeypatch):
    # A peer that takes nothing is waited for after a close: less long, or that takes most of it.
    monkeypatch.setattr("ucxx._home.LINGER_S", 0.2)
    seed = int(os.environ.get("TEST_SEED", "0")) or random.randrange(1 << 30)
    print(f"TEST_SEED={seed}")

    async def all_of_them():
        for i in range(runs):
            await asyncio.wait_for(storm(seed + i), 60)

    asyncio.run(all_of_them())


@pytest.mark.parametrize(
    "runs", [6, pytest.param(100, marks=[pytest.mark.long, pytest.mark.timeout(900)])]
)
def test_random_kills(runs):
    """A peer killed at a random moment of a stream both ways."""
    code = (
        "import asyncio, sys, ucxx\n"
        "async def main():\n"
        "    ep = await ucxx.create_endpoint('127.0.0.1', int(sys.argv[1]))\n"
        "    async def send():\n"
        "        while True: await ep.send(bytes(50_000))\n"
        "    async def recv():\n"
        "        got = bytearray(200_000)\n"
        "        while True: await ep.recv(got)\n"
        "    await asyncio.gather(send(), recv())\n"
        "asyncio.run(main())\n"
    )

    async def one(rng):
        ended = asyncio.get_running_loop().create_future()

        async def serve(ep):
            async def send():
                while True:
                    await ep.send(bytes(200_000))

            async def recv():
                got = bytearray(50_000)
                while True:
                    await ep.recv(got)

            ended.set_result(await asyncio.gather(send(), recv(), return_exceptions=True))

        listener = ucxx.create_listener(serve)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, str(listener.port), stderr=subprocess.DEVNULL
        )
        await until(lambda: listener.active_clients, "nobody came")
        await asyncio.sleep(rng.random() * 0.1)
        process.send_signal(signal.SIGKILL)
        errors = await asyncio.wait_for(ended, 30)
        await process.wait()
        assert all(isinstance(e, UCXError) for e in errors), errors
        await listener._wait_for_active_clients()
        listener.close()

    seed = random.randrange(1 << 30)
    print(f"seed {seed}")

    async def all_of_them():
        rng = random.Random(seed)
        for _ in range(runs):
            await one(rng)

    asyncio.run(all_of_them())
