# SPDX-License-Identifier: BSD-3-Clause
"""Endpoints that are made from a worker's address."""

import asyncio
import pickle

import numpy as np
import pytest
from ucp_helpers import Peer, payload, run, soon


async def meet(ucp, what):
    peer = Peer("worker.py", what)
    address = ucp.get_ucx_address_from_buffer(bytes.fromhex(await peer.next_line()))
    return peer, address


def test_an_address_is_bytes(ucp):
    async def main():
        address = ucp.get_worker_address()
        assert address.length == len(bytes(address)) == memoryview(address).nbytes
        again = pickle.loads(pickle.dumps(address))
        assert bytes(again) == bytes(address) and hash(again) == hash(address)
        for buffer in (bytes(address), bytearray(address), np.frombuffer(address, "u1")):
            assert bytes(ucp.get_ucx_address_from_buffer(buffer)) == bytes(address)
        with pytest.raises(ucp.UCXError, match="Invalid worker address"):
            await ucp.create_endpoint_from_worker_address(
                ucp.get_ucx_address_from_buffer(b"something else")
            )

    run(main())


@pytest.mark.parametrize("size", [10, 1 << 22])
def test_two_workers(ucp, size):
    """The peer learns our address from a message, and answers on an endpoint of its own."""

    async def main():
        peer, address = await meet(ucp, "answer")
        ep = await ucp.create_endpoint_from_worker_address(address)
        mine = ucp.get_worker_address()
        with pytest.raises(ValueError, match="force_tag"):
            await ep.send(b"x")
        await ep.send(np.array([mine.length, size]), tag=0, force_tag=True)
        await ep.send(mine, tag=0, force_tag=True)
        got = bytearray(size)
        await ep.recv(got, tag=1, force_tag=True)
        assert got == payload(size, size)
        await ep.send(got, tag=2, force_tag=True)
        # Active messages find the endpoint, too.
        assert await ep.am_recv() == payload(5, 70000)
        await ep.am_send(b"thanks")
        assert await peer.next_line() == "right"
        await ep.close()
        assert await asyncio.to_thread(peer.end) == 0

    run(main())


def test_an_endpoint_to_oneself(ucp):
    async def main():
        ep = await ucp.create_endpoint_from_worker_address(ucp.get_worker_address())
        got = bytearray(1000)
        receiving = asyncio.ensure_future(ucp.recv(got, tag=4))
        await ep.send(payload(1, 1000), tag=4, force_tag=True)
        await receiving
        assert got == payload(1, 1000)
        await ep.am_send(b"to myself")
        assert await ep.am_recv() == b"to myself"
        await ep.close()

    run(main())


@pytest.mark.parametrize("wait", ["recv", "am_recv"])
def test_a_wait_ends_when_the_worker_is_killed(ucp, wait):
    async def main():
        peer, address = await meet(ucp, "wait")
        ep = await ucp.create_endpoint_from_worker_address(address)
        waiting = asyncio.ensure_future(
            ep.recv(bytearray(1), tag=1, force_tag=True) if wait == "recv" else ep.am_recv()
        )
        await asyncio.sleep(0.1)
        peer.kill()
        with pytest.raises(ucp.UCXCanceled):
            await waiting
        await soon(ep.closed)
        for error in (ucp.UCXError, ucp.exceptions.UCXConnectionReset):
            with pytest.raises(error, match="Endpoint timeout"):
                await ep.send(b"x", tag=1, force_tag=True)
        await ep.close()
        peer.end()

    run(main())


def test_a_worker_that_is_not_there_any_more(ucp):
    async def main():
        peer, address = await meet(ucp, "wait")
        peer.kill()
        peer.end()
        with pytest.raises(ucp.UCXError, match="Destination is unreachable"):
            await ucp.create_endpoint_from_worker_address(address)

    run(main())


def test_messages_of_a_worker_that_has_gone_are_still_received(ucp):
    async def main():
        mine = ucp.get_worker_address()
        with Peer("worker.py", "send", bytes(mine).hex()) as peer:
            assert await asyncio.to_thread(peer.end) == 0
            await asyncio.sleep(0.2)
            for n in range(20):
                got = bytearray(100)
                await ucp.recv(got, tag=n)
                assert got == payload(n, 100)

    run(main())


def test_many_workers(ucp):
    async def main():
        mine = ucp.get_worker_address()
        peers = [Peer("worker.py", "send", bytes(mine).hex()) for _ in range(4)]
        for n in range(20):
            for _ in peers:
                got = bytearray(100)
                await ucp.recv(got, tag=n)
                assert got == payload(n, 100)
        for peer in peers:
            assert await asyncio.to_thread(peer.end) == 0

    run(main())
