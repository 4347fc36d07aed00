# SPDX-License-Identifier: BSD-3-Clause
"""How ucp fails: every wait ends, with the exception that says why."""

import asyncio
import contextlib
import socket
import time

import pytest
from ucp_helpers import Peer, close, free_port, pair, payload, run, soon

ENDS = ["close", "abort", "drop", "exit", "kill"]


async def meet(ucp, peer_is, what, n=0):
    """An endpoint here, to a process that ends as `what` says."""
    if peer_is == "server":
        peer = Peer("side.py", "server", what, n)
        port = int(await peer.next_line())
        return await ucp.create_endpoint("127.0.0.1", port), peer, None
    accepted = asyncio.get_running_loop().create_future()

    async def serve(ep):
        accepted.set_result(ep)

    listener = ucp.create_listener(serve)
    peer = Peer("side.py", f"client:{listener.port}", what, n)
    return await asyncio.wait_for(accepted, 30), peer, listener


async def go(ep):
    """The program on the other side begins."""
    await ep.send(b"!", tag="go")


async def over(ep, peer, listener):
    await ep.close()
    if listener is not None:
        listener.close()
    await asyncio.to_thread(peer.__exit__)


@pytest.mark.parametrize("peer_is", ["server", "client"])
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("wait", ["recv", "am_recv"])
def test_a_wait_ends_when_the_peer_does(ucp, peer_is, end, wait):
    """With a receive pending: UCXCanceled, the close callback; afterwards UCXConnectionReset."""

    async def main():
        ep, peer, listener = await meet(ucp, peer_is, "wait" if end == "kill" else end)
        told = []
        ep.set_close_callback(lambda: told.append(ep.closed()))
        waits = [
            asyncio.ensure_future(ep.recv(bytearray(10)) if wait == "recv" else ep.am_recv())
            for _ in range(3)
        ]
        await asyncio.sleep(0)
        await go(ep)
        if end == "kill":
            assert await peer.next_line() == "ready"
            await asyncio.sleep(0.05)
            peer.kill()
        began = time.monotonic()
        for result in await asyncio.gather(*waits, return_exceptions=True):
            assert type(result) is ucp.UCXCanceled, result
            assert ("am_recv" if wait == "am_recv" else "[Recv #0") in str(result)
        print(f"{wait}, {end} by the {peer_is}: {time.monotonic() - began:.3f} s")
        await soon(lambda: told)
        assert told == [True] and ep.closed()
        reset = ucp.exceptions.UCXConnectionReset
        for later in (
            ep.send(b"x"),
            ep.recv(bytearray(1)),
            ep.recv(bytearray(1), tag=3),
            ep.am_send(b"x"),
            ep.am_recv(),
            ep.send_obj(b"x"),
            ep.recv_obj(),
            ep.flush(),
        ):
            with pytest.raises(reset, match="Connection reset by remote peer"):
                await later
        await over(ep, peer, listener)

    run(main())


def test_a_send_that_nobody_takes_ends_with_the_peer(ucp):
    async def main():
        ep, peer, listener = await meet(ucp, "server", "wait")
        await go(ep)
        assert await peer.next_line() == "ready"
        sends = [asyncio.ensure_future(ep.send(bytes(40 << 20), tag=n)) for n in range(2)]
        sends.append(asyncio.ensure_future(ep.am_send(bytes(40 << 20))))
        await asyncio.sleep(0.05)
        peer.kill()
        *tagged, am = await asyncio.gather(*sends, return_exceptions=True)
        for result in tagged:
            assert isinstance(result, ucp.exceptions.UCXBaseException), result
        # the peer's library takes an active message without a receive: it may be through
        assert am is True or isinstance(am, ucp.exceptions.UCXBaseException), am
        await over(ep, peer, listener)

    run(main())


@pytest.mark.parametrize("peer_is", ["server", "client"])
@pytest.mark.parametrize("end", ["close", "abort", "drop", "kill"])
def test_what_was_sent_before_the_end_is_received(ucp, peer_is, end):
    """After an orderly end all of it, after a kill all that had arrived."""
    n = 50

    async def main():
        what = "sent" if end == "kill" else f"sent-{end}"
        ep, peer, listener = await meet(ucp, peer_is, what, n)
        await go(ep)
        if end == "kill":
            assert await peer.next_line() == "ready"
            await asyncio.sleep(0.1)
            peer.kill()
        await soon(ep.closed)
        with pytest.raises(ucp.exceptions.UCXConnectionReset):
            await ep.send(b"x")
        for number in range(n):
            got = bytearray(100)
            await ep.recv(got)
            assert got == payload(number, 100)
            assert await ep.am_recv() == payload(-number, 100)
        with pytest.raises(ucp.exceptions.UCXConnectionReset):
            await ep.recv(got)
        with pytest.raises(ucp.exceptions.UCXConnectionReset):
            await ep.am_recv()
        await over(ep, peer, listener)

    run(main())


def test_a_program_that_just_ends_loses_nothing(ucp):
    """It drops its endpoint without a word, and returns from main()."""

    async def main():
        ep, peer, listener = await meet(ucp, "client", "sent-return", 400)
        await go(ep)
        for number in range(400):
            got = bytearray(100)
            await ep.recv(got)
            assert got == payload(number, 100)
        assert await asyncio.to_thread(peer.end) == 0
        await over(ep, peer, listener)

    run(main())


def test_the_other_side_hears_of_it(ucp):
    async def main():
        for how in ("close", "abort"):
            ep, peer, listener = await meet(ucp, "server", "wait")
            await go(ep)
            assert await peer.next_line() == "ready"
            if how == "close":
                await ep.close()
            else:
                ep.abort()
            assert await peer.next_line() == "got UCXCanceled"
            await asyncio.to_thread(peer.__exit__)

    run(main())


def test_lengths_that_do_not_agree(ucp, address):
    async def main():
        here, there, listener = await pair(ucp, address)
        await here.send(b"Hey")
        with pytest.raises(
            ucp.exceptions.UCXMsgTruncated,
            match=r"\[Recv #000\].*length mismatch: 3 \(got\) != 100 \(expected\)",
        ):
            await there.recv(bytearray(100))
        await here.send(bytes(100))
        with pytest.raises(ucp.UCXError, match="Message truncated"):
            await there.recv(bytearray(3))
        await here.send(b"abc", tag=9, force_tag=True)
        with pytest.raises(ucp.exceptions.UCXMsgTruncated, match="3 .got. != 4 .expected"):
            await ucp.recv(bytearray(4), tag=9)
        # Neither harms what comes after.
        got = bytearray(5)
        await here.send(b"after")
        await there.recv(got)
        assert got == b"after"
        await close(here, there, listener)

    run(main())


def test_nobody_listens(ucp, address):
    async def main():
        began = time.monotonic()
        with pytest.raises(ucp.exceptions.UCXNotConnected):
            await ucp.create_endpoint(address, free_port())
        print(f"refused after {time.monotonic() - began:.3f} s")

    run(main())


def test_the_port_is_taken(ucp):
    async def main():
        listener = ucp.create_listener(lambda ep: None)
        with pytest.raises(ucp.UCXError, match="Device is busy"):
            ucp.create_listener(lambda ep: None, listener.port)
        port = listener.port
        listener.close()
        listener = ucp.create_listener(lambda ep: None, port)
        assert listener.port == port and not listener.closed()
        listener.close()
        assert listener.closed()

    run(main())


def test_a_mute_server_is_a_timeout_and_the_loop_goes_on(ucp, address):
    async def main():
        with socket.create_server((address, 0)) as mute:
            ticks = 0

            async def tick():
                nonlocal ticks
                while True:
                    ticks += 1
                    await asyncio.sleep(0.01)

            ticking = asyncio.ensure_future(tick())
            began = time.monotonic()
            with pytest.raises(TimeoutError):
                await ucp.create_endpoint(address, mute.getsockname()[1])
            print(f"given up after {time.monotonic() - began:.2f} s, {ticks} turns meanwhile")
            assert ticks > 100
            ticking.cancel()

    run(main())


def test_connect_timeout_of_the_environment(ucp, address, monkeypatch):
    monkeypatch.setenv("UCXPY_CONNECT_TIMEOUT", "0.3")

    async def main():
        with socket.create_server((address, 0)) as mute:
            began = time.monotonic()
            with pytest.raises(TimeoutError):
                await ucp.create_endpoint(address, mute.getsockname()[1])
            print(f"given up after {time.monotonic() - began:.2f} s")
            assert time.monotonic() - began < 4
        assert ucp.core._ctx.connect_timeout == 0.3

    run(main())


def test_a_connect_that_is_cancelled_leaves_nothing(ucp, address):
    async def main():
        with socket.create_server((address, 0)) as mute:
            with pytest.raises(TimeoutError):
                port = mute.getsockname()[1]
                await asyncio.wait_for(ucp.create_endpoint(address, port), 0.1)
        await asyncio.sleep(0.05)
        assert ucp.core._ctx.worker.core._statistics()[9] == 0

    run(main())


def test_after_abort_every_call_says_closed(ucp, address):
    async def main():
        here, there, listener = await pair(ucp, address)
        uid = here.uid
        pending = asyncio.ensure_future(here.recv(bytearray(1)))
        waiting = asyncio.ensure_future(here.am_recv())
        await asyncio.sleep(0.01)
        told = []
        here.set_close_callback(lambda: told.append(1))
        here.abort()
        here.abort()
        for task in (pending, waiting):
            with pytest.raises(ucp.UCXCanceled):
                await task
        assert told == [1] and here.closed() and here.uid == uid
        for call in (
            here.send(b"x"),
            here.recv(bytearray(1)),
            here.recv(bytearray(1), tag=1, force_tag=True),
            here.am_send(b"x"),
            here.am_recv(),
            here.send_obj(b"x"),
            here.recv_obj(),
            here.flush(),
        ):
            with pytest.raises(ucp.UCXCloseError):
                await call
        for call in (
            here.ucx_info,
            here.cuda_support,
            here.get_ucp_worker,
            here.get_ucp_endpoint,
            lambda: here.set_close_callback(None),
        ):
            with pytest.raises(ucp.UCXCloseError):
                call()
        await here.close()
        await soon(there.closed)
        await close(there, listener)

    run(main())


def test_both_close_at_once_with_receives_pending(ucp, address):
    async def main():
        here, there, listener = await pair(ucp, address)
        waits = [asyncio.ensure_future(ep.recv(bytearray(1))) for ep in (here, there)]
        await asyncio.sleep(0)
        await asyncio.gather(here.close(), there.close(), here.close())
        for result in await asyncio.gather(*waits, return_exceptions=True):
            assert type(result) is ucp.UCXCanceled
        assert here.closed() and there.closed()
        listener.close()

    run(main())


def test_without_error_handling_an_endpoint_does_not_tell(ucp, caplog):
    async def main():
        accepted = asyncio.get_running_loop().create_future()
        listener = ucp.create_listener(accepted.set_result, endpoint_error_handling=False)
        peer = Peer("side.py", f"client:{listener.port}", "wait")
        ep = await accepted
        await go(ep)
        assert await peer.next_line() == "ready"
        peer.kill()
        await soon(lambda: ep._ep._error is not None)
        assert not ep.closed()
        with pytest.raises(ucp.UCXError):
            await ep.send(b"x")
        with caplog.at_level("WARNING"):
            await ep.close()
        assert "UCXError('<[Send shutdown]" in caplog.text
        await over(ep, peer, listener)

    run(main())


def test_an_exception_in_a_listeners_callback_is_told_and_harms_nobody(ucp, address):
    async def main():
        told = []
        asyncio.get_running_loop().set_exception_handler(
            lambda loop, c: told.append(str(c["exception"]))
        )

        async def serve(ep):
            got = bytearray(1)
            await ep.recv(got)
            assert got != b"!", "a fault of the program's"
            await ep.send(got)

        listener = ucp.create_listener(serve)
        bad = await ucp.create_endpoint(address, listener.port)
        good = await ucp.create_endpoint(address, listener.port)
        await bad.send(b"!")
        with pytest.raises(ucp.UCXCanceled):
            await bad.recv(bytearray(1))
        await good.send(b".")
        got = bytearray(1)
        await good.recv(got)
        assert got == b"."
        await close(bad, good, listener)
        import gc

        gc.collect()
        await soon(lambda: told)
        assert "a fault of the program's" in told[0]

    run(main())


def test_strangers_at_a_listener(ucp, address):
    async def main():
        here, there, listener = await pair(ucp, address)
        for garbage in (b"", b"GET / HTTP/1.0\r\n\r\n", payload(3, 5000), bytes(64)):
            with (
                contextlib.suppress(OSError),
                socket.create_connection((address, listener.port)) as s,
            ):
                s.sendall(garbage)
                await asyncio.sleep(0.05)
        got = bytearray(3)
        await asyncio.gather(here.send(b"yes"), there.recv(got))
        assert got == b"yes"
        await close(here, there, listener)

    run(main())
