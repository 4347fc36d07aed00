# SPDX-License-Identifier: BSD-3-Clause
"""What the tests of ucxx share: bytes made from a seed, pairs of endpoints, deadlines."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import random

import ucxx

#: No test waits longer than this for anything, in seconds.
DEADLINE = 60

TLS = {"shm": "sm", "tcp": "tcp", "verbs": "rc"}


def start(transport: str | None = None, **options: str) -> None:
    """A new context for ucxx, on one transport."""
    ucxx.reset()
    if transport is not None:
        options["TLS"] = TLS[transport]
    ucxx.init(options=options)


def pattern(seed: int, nbytes: int) -> bytes:
    """Bytes that no other seed gives."""
    return random.Random(f"{seed} {nbytes}").randbytes(nbytes)


def asynchronous(fn):
    """A test that is a coroutine function: it runs in a loop of its own, with a deadline."""

    @functools.wraps(fn)
    def run(*args, **kwargs):
        async def within():
            await asyncio.wait_for(fn(*args, **kwargs), DEADLINE)

        asyncio.run(within())

    return run


@contextlib.asynccontextmanager
async def pair(**listener_options):
    """Two endpoints that are connected with each other: (client's, server's)."""
    accepted = asyncio.get_running_loop().create_future()
    done = asyncio.Event()

    async def serve(ep):
        accepted.set_result(ep)
        await done.wait()

    listener = ucxx.create_listener(serve, **listener_options)
    client = await ucxx.create_endpoint("127.0.0.1", listener.port)
    server = await accepted
    del accepted
    try:
        yield client, server
    finally:
        done.set()
        await asyncio.gather(client.close(), server.close())
        await listener._wait_for_active_clients()
        listener.close()


async def until(condition, what: str = "") -> None:
    """Waits until `condition()` is true."""
    end = asyncio.get_running_loop().time() + DEADLINE / 2
    while not condition():
        if asyncio.get_running_loop().time() > end:
            raise AssertionError(f"not in {DEADLINE / 2} s: {what}")
        await asyncio.sleep(0.002)
