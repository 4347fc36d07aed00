# SPDX-License-Identifier: BSD-3-Clause
"""The counters of endpoints for coroutines, and objects: a size, and then the bytes."""

from __future__ import annotations

import array
from collections.abc import Callable
from typing import Any

from .array import asarray


def tags_of(core: Any) -> dict[str, int]:
    """The tags of a connection, by purpose."""
    return {
        "msg_send": core.peer_message_tag,
        "msg_recv": core.message_tag,
        "ctrl_send": core.peer_control_tag,
        "ctrl_recv": core.control_tag,
    }


def tags_text(uid: int, core: Any, error_handling: bool) -> str:
    """The same for the log."""
    tags = tags_of(core).items()
    words = [f"{name.replace('_', '-tag-')}: {tag:#018x}" for name, tag in tags]
    return ", ".join([f"{uid:#x}", f"error handling: {error_handling}", *words])


class Messages:
    """A base for endpoints that have `send`, `recv` and `abort`."""

    #: The exception of close_after_n_recv: the module's UCXError.
    _misused: type[Exception]

    def __init__(self) -> None:
        self._send_count = 0
        self._recv_count = 0
        self._finished_recv_count = 0
        self._close_after_n_recv: int | None = None

    def _received(self) -> None:
        self._finished_recv_count += 1
        limit = self._close_after_n_recv
        if limit is not None and self._finished_recv_count >= limit:
            self.abort()

    def close_after_n_recv(self, n: int, count_from_ep_creation: bool = False) -> None:
        """Closes when n messages have been received: counted from now, or from the beginning."""
        done = self._finished_recv_count
        if not count_from_ep_creation:
            n += done
        if self._close_after_n_recv is not None:
            raise self._misused(
                f"close_after_n_recv has already been set to: {self._close_after_n_recv} (abs)"
            )
        if n < done:
            raise self._misused(
                f"`n` cannot be less than current recv_count: {n} (abs) < {done} (abs)"
            )
        if n == done:
            self.abort()
        else:
            self._close_after_n_recv = n

    async def send_obj(self, obj: Any, tag: Any = None) -> None:
        """Sends an object, whose size the receiver need not know: two messages, for the peer's
        recv_obj().

        >>> await ep.send_obj(pickle.dumps([1, 2, 3]))
        """
        obj = asarray(obj)
        await self.send(array.array("Q", [obj.nbytes]), tag=tag)
        await self.send(obj, tag=tag)

    async def recv_obj(self, tag: Any = None, allocator: Callable[[int], Any] = bytearray) -> Any:
        """Receives what the peer's send_obj() sent.

        allocator: called with the size in bytes; gives the buffer that is filled and returned.

        >>> pickle.loads(await ep.recv_obj())
        """
        size = array.array("Q", [0])
        await self.recv(size, tag=tag)
        obj = allocator(size[0])
        await self.recv(obj, tag=tag)
        return obj
