"""Starway: UCX from Python's asyncio. Each byte of messages up to 8 MiB, by the one transport that UCX may take."""
import asyncio
import os

import numpy as np
from starway import Client, Server


async def exchange(size, port):
    server, client = Server(), Client()
    server.listen(os.environ["ADDRESS"], port)
    await client.aconnect(os.environ["ADDRESS"], port)
    sent, received = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8), np.zeros(size, np.uint8)
    receive = server.arecv(received, 7, 0xFFFF)
    await client.asend(sent, 7)
    assert await receive == (7, size)
    assert (sent == received).all()
    await client.aclose()
    await server.aclose()


def test_small():
    asyncio.run(exchange(8, 19201))


def test_64_kib():
    asyncio.run(exchange(65536, 19202))


def test_8_mib():
    asyncio.run(exchange(8 << 20, 19203))
