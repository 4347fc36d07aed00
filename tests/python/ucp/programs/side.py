# SPDX-License-Identifier: BSD-3-Clause
"""side.py server|client:PORT WHAT [N]: the other side of a failure.

It begins when it has received a byte with the tag "go".

WHAT: close, abort, drop, return, exit (os._exit), wait (until it is killed), big (sends N bytes
that nobody takes, then waits), sent (sends N messages, then waits), sent-close, sent-abort,
sent-drop: sends N messages of 100 bytes with payloads of their number, and ends so. Prints its
port, "ready" where it waits, and "got NAME" for the exception that ended a wait."""

import asyncio
import os
import random
import sys

import ucp

role, what, *rest = sys.argv[1:]
n = int(rest[0]) if rest else 0


async def act(ep):
    go = bytearray(1)
    await ep.recv(go, tag="go")
    how = what
    if what.startswith("sent"):
        for number in range(n):
            await ep.send(random.Random(number).randbytes(100))
            await ep.am_send(random.Random(-number).randbytes(100))
        how = what.partition("-")[2] or "wait"
    if how == "close":
        await ep.close()
    elif how == "abort":
        ep.abort()
    elif how == "drop":
        return
    elif how == "exit":
        os._exit(7)
    elif how == "return":
        return
    elif how in ("wait", "big"):
        sending = (
            asyncio.ensure_future(ep.send(random.Random(1).randbytes(n))) if how == "big" else None
        )
        print("ready", flush=True)
        try:
            await ep.recv(bytearray(1))
        except Exception as error:
            print("got", type(error).__name__, flush=True)
        if sending is not None:
            try:
                await sending
            except Exception as error:
                print("got", type(error).__name__, flush=True)


async def main():
    if role == "server":
        done = asyncio.Event()

        async def serve(ep):
            await act(ep)
            del ep
            done.set()

        listener = ucp.create_listener(serve)
        print(listener.port, flush=True)
        await asyncio.wait_for(done.wait(), 100)
        listener.close()
    else:
        ep = await ucp.create_endpoint("127.0.0.1", int(role.partition(":")[2]))
        await act(ep)
        del ep
    if what.endswith(("drop", "return")):
        return
    # Stays until it is told to go: what it does at its end is not what the test is about.
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)


asyncio.run(main())
