#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# ucxx-cu12 0.52.0 (UCX of libucx-cu12 1.21.0, NumPy 2.4.6), over TCP on one host, 28 November 2026.
#
# Endpoint.send takes any object with a buffer. Of an array with strides it sends as many bytes as the elements
# have, from the first one on: the elements between are sent, and the last ones are not. There is no error. Seen:
#
#   sent [0, 2, 4, 6, 8] received [0, 1, 2, 3, 4]
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
    received = asyncio.get_running_loop().create_future()

    async def serve(endpoint):
        into = np.zeros(5, dtype="i8")
        await endpoint.recv(into)
        received.set_result(into)

    listener = ucxx.create_listener(serve)
    endpoint = await ucxx.create_endpoint("127.0.0.1", listener.port)
    array = np.arange(10, dtype="i8")[::2]
    await endpoint.send(array)
    into = await asyncio.wait_for(received, 20)
    print("sent", array.tolist(), "received", into.tolist())


asyncio.run(main())
END
said=$(UCX_TLS=tcp UCX_WARN_UNUSED_ENV_VARS=n timeout 60 venv/bin/python probe.py | grep '^sent')
echo "$said"
[ "$said" = "sent [0, 2, 4, 6, 8] received [0, 1, 2, 3, 4]" ]
