# SPDX-License-Identifier: BSD-3-Clause
"""worker.py answer|wait|send [ADDRESS]: the other side of a worker's address."""

import asyncio
import random
import sys

import numpy as np

import ucp


async def answer():
    size = np.zeros(2, np.int64)
    await ucp.recv(size, tag=0)
    address = bytearray(size[0])
    await ucp.recv(address, tag=0)
    address = ucp.get_ucx_address_from_buffer(address)
    ep = await ucp.create_endpoint_from_worker_address(address)
    data, got = random.Random(int(size[1])).randbytes(size[1]), bytearray(size[1])
    await ep.send(data, tag=1, force_tag=True)
    await ep.recv(got, tag=2, force_tag=True)
    await ep.am_send(random.Random(5).randbytes(70000))
    thanks = await ep.am_recv()
    print("right" if got == data and thanks == b"thanks" else "wrong", flush=True)
    await ep.close()


async def send(address):
    address = ucp.get_ucx_address_from_buffer(bytes.fromhex(address))
    ep = await ucp.create_endpoint_from_worker_address(address)
    for n in range(20):
        await ep.send(random.Random(n).randbytes(100), tag=n, force_tag=True)


async def main():
    what, *rest = sys.argv[1:]
    if what == "send":
        await asyncio.wait_for(send(*rest), 60)
        return
    print(bytes(ucp.get_worker_address()).hex(), flush=True)
    await asyncio.wait_for(answer() if what == "answer" else asyncio.sleep(60), 60)


asyncio.run(main())
