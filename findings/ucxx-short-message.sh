#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# ucxx-cu12 0.52.0 (UCX of libucx-cu12 1.21.0, NumPy 2.4.6), over TCP on one host, 28 November 2026.
#
# A message of 10 bytes into a receive of 20 is a success, and recv returns None: the program cannot tell how much
# came, and the rest of the buffer is as it was. A message of 10 bytes into a receive of 5 raises. Seen:
#
#   10 into 20: returned None, 10 bytes of the message, 10 untouched
#   10 into 5: UCXXMessageTruncatedError
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip -q install ucxx-cu12==0.52.0 libucx-cu12==1.21.0 numpy==2.4.6
cat >probe.py <<'END'
import asyncio

import numpy as np
import ucxx


async def main():
    done = asyncio.get_running_loop().create_future()

    async def serve(endpoint):
        said = []
        into = np.full(20, 255, dtype="u1")
        returned = await endpoint.recv(into)
        came, untouched = int((into[:10] == np.arange(10)).sum()), int((into[10:] == 255).sum())
        said.append(f"10 into 20: returned {returned}, {came} bytes of the message, {untouched} untouched")
        try:
            await endpoint.recv(np.zeros(5, dtype="u1"))
            said.append("10 into 5: no error")
        except Exception as e:
            said.append(f"10 into 5: {type(e).__name__}")
        done.set_result(said)

    listener = ucxx.create_listener(serve)
    endpoint = await ucxx.create_endpoint("127.0.0.1", listener.port)
    for _ in range(2):
        await endpoint.send(np.arange(10, dtype="u1"))
    print(*await asyncio.wait_for(done, 20), sep="\n")


asyncio.run(main())
END
said=$(UCX_TLS=tcp UCX_WARN_UNUSED_ENV_VARS=n timeout 60 venv/bin/python probe.py | grep '^10 into')
echo "$said"
[ "$said" = "10 into 20: returned None, 10 bytes of the message, 10 untouched
10 into 5: UCXXMessageTruncatedError" ]
