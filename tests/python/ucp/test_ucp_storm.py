# SPDX-License-Identifier: BSD-3-Clause
"""Random kills, closes and cancels of either side: every future ends."""

import asyncio
import os
import random

import pytest
from ucp_helpers import Peer, collect, descriptors, payload, run

SEED = int(os.environ.get("TEST_SEED", "20261124"))
ENDS = ["kill", "peer close", "peer abort", "peer drop", "close", "abort", "drop", "cancel"]


async def one(ucp, dice, peer, port, count):
    """One connection with traffic of all kinds, and one end of it at a random moment."""
    end = dice.choice(ENDS)
    ep = await ucp.create_endpoint("127.0.0.1", port)
    big = dice.randrange(1 << 20, 3 << 20)
    tasks = [
        asyncio.ensure_future(ep.recv(bytearray(100), tag=n)) for n in range(dice.randrange(4))
    ]
    tasks += [asyncio.ensure_future(ep.am_recv()) for _ in range(dice.randrange(3))]
    tasks += [
        asyncio.ensure_future(ep.send(bytes(big), tag=50 + n)) for n in range(dice.randrange(2))
    ]
    tasks += [asyncio.ensure_future(ep.am_send(bytes(big))) for _ in range(dice.randrange(2))]
    tasks += [asyncio.ensure_future(ep.send(payload(n, 1000))) for n in range(dice.randrange(5))]
    tasks += [asyncio.ensure_future(ep.flush()) for _ in range(dice.randrange(2))]
    tasks += [asyncio.ensure_future(ep.recv_obj(tag=99))]
    told = []
    ep.set_close_callback(lambda: told.append(1))
    order = end[5:] if end.startswith("peer") else "wait"
    tasks.append(asyncio.ensure_future(ep.send(order.ljust(8).encode(), tag=1000)))
    if dice.random() < 0.7:
        await asyncio.sleep(dice.random() * 0.01)
    if end == "kill":
        peer.kill()
    elif end == "close":
        tasks.append(asyncio.ensure_future(ep.close()))
    elif end == "abort":
        ep.abort()
    elif end == "cancel":
        for task in tasks:
            if dice.random() < 0.5:
                task.cancel()
        await asyncio.sleep(0)
        ep.abort()
    elif end == "drop":
        for task in tasks:
            task.cancel()
        ep = None
    results = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 20)
    for result in results:
        ok = not isinstance(result, BaseException) or isinstance(
            result, (ucp.exceptions.UCXBaseException, asyncio.CancelledError)
        )
        assert ok, (count, end, result)
    if ep is not None:
        await ep.close()
        assert told == [1], (count, end)
    return end


async def storm(ucp, rounds):
    dice = random.Random(SEED)
    seen, peer, port = {}, None, None
    before = None
    for count in range(rounds):
        if peer is None:
            peer = Peer("storm.py", SEED + count)
            port = int(await peer.next_line())
        end = await one(ucp, dice, peer, port, count)
        seen[end] = seen.get(end, 0) + 1
        if end == "kill":
            await asyncio.to_thread(peer.__exit__)
            peer = None
            if before is None:
                before = descriptors()
    if peer is not None:
        await asyncio.to_thread(peer.__exit__)
    for _ in range(100):
        collect()
        await asyncio.sleep(0.01)
        if before is None or descriptors() <= before + 3:
            break
    print(f"seed {SEED}: {seen}")
    assert before is None or descriptors() <= before + 3


def test_fifty_random_ends(ucp):
    run(storm(ucp, 50), 100)


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_thousand_random_ends(ucp):
    run(storm(ucp, 1000), 1100)
