# SPDX-License-Identifier: BSD-3-Clause
"""Messages and remote memory between two processes, on the best path there is between them:
shared memory, RDMA, TCP; and why that was chosen.

    import asyncio, ropeway

    async def main():
        async with ropeway.listen("127.0.0.1:0") as listener:
            a = await ropeway.connect(listener.address)
            b = await listener.accept()
            await a.send(b"hello", tag=1)
            buf = bytearray(100)
            length, tag = await b.recv(buf, tag=1)

    asyncio.run(main())

Lengths and offsets are in bytes, times in seconds. Every operation ends: done, with a
ropeway.Error, or cancelled. Without a loop: ropeway.blocking.
"""

import asyncio as _asyncio
import atexit as _atexit
import contextvars as _contextvars
import typing as _typing

from . import _core as core, _errors
from ._core import ALL, Loan, Memory, Operation, Received, RemoteKey, View
from ._errors import Error, Status, Timeout

core._setup(
    _errors.make,
    _asyncio.CancelledError,
    _asyncio.InvalidStateError,
    _contextvars.copy_context,
)
_atexit.register(core._exit)

from ._aio import (  # noqa: E402
    Access,
    Context,
    Endpoint,
    Info,
    Listener,
    MemoryDoor,
    Protection,
    Statistics,
    connect,
    context,
    listen,
)

for _public in (Error, Status, Timeout):  # as tracebacks name them
    _public.__module__ = __name__
__version__ = core.VERSION
__all__ = [
    "ALL",
    "Access",
    "Context",
    "Endpoint",
    "Error",
    "Info",
    "Listener",
    "Loan",
    "Memory",
    "MemoryDoor",
    "Operation",
    "Protection",
    "Received",
    "RemoteKey",
    "Statistics",
    "Status",
    "Timeout",
    "View",
    "blocking",
    "connect",
    "context",
    "core",
    "listen",
]


if _typing.TYPE_CHECKING:
    from . import blocking
else:

    def __getattr__(name):
        if name == "blocking":  # not everybody needs it
            import importlib

            return importlib.import_module(".blocking", __name__)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
