# SPDX-License-Identifier: BSD-3-Clause
"""storm.py SEED: serves connections with random traffic, and ends each as its client asks."""

import asyncio
import random
import sys

import ucp


async def serve(ep):
    dice = random.Random(random.randrange(1 << 30))
    tasks = [
        asyncio.ensure_future(ep.send(dice.randbytes(100), tag=n)) for n in range(dice.randrange(4))
    ]
    tasks += [
        asyncio.ensure_future(ep.am_send(bytes(dice.randrange(100000))))
        for _ in range(dice.randrange(3))
    ]
    tasks += [asyncio.ensure_future(ep.recv(bytearray(1000))) for _ in range(dice.randrange(4))]
    order = bytearray(8)
    try:
        await ep.recv(order, tag=1000)
        how = order.decode().strip()
        if how == "close":
            await ep.close()
        elif how == "abort":
            ep.abort()
        elif how == "drop":
            for task in tasks:
                task.cancel()
            return
        else:
            await ep.recv(bytearray(1), tag=1001)
    except ucp.exceptions.UCXBaseException:
        pass
    await asyncio.gather(*tasks, return_exceptions=True)


async def main():
    random.seed(int(sys.argv[1]))
    listener = ucp.create_listener(serve)
    print(listener.port, flush=True)
    await asyncio.sleep(600)
    listener.close()


asyncio.run(main())
