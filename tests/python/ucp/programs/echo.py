# SPDX-License-Identifier: BSD-3-Clause
"""echo.py serve: sends back what comes, with the tags that its standard input names."""

import ast
import asyncio
import sys

import ucp


async def main():
    done = asyncio.Event()

    async def serve(ep):
        loop = asyncio.get_running_loop()
        while True:
            line = (await loop.run_in_executor(None, sys.stdin.readline)).strip()
            if line in ("", "end"):
                break
            tag = ast.literal_eval(line)
            got = bytearray(32)
            await ep.recv(got, tag=tag)
            await ep.send(got, tag=tag)
        await ep.close()
        done.set()

    listener = ucp.create_listener(serve)
    print(listener.port, flush=True)
    await asyncio.wait_for(done.wait(), 60)
    listener.close()


asyncio.run(main())
