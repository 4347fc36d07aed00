# SPDX-License-Identifier: BSD-3-Clause
"""Several buffers in one posting: what is said of them first, and where they go.

A head says how many buffers there are, how long each is, and which are a GPU's. What is short goes
in the head itself: one message in all. Longer ones follow, each as a message with a tag of their
own, so that a receive that waits for the next head never takes one of them. The longest may have
gone before, in loans, which the receiver reads where they lie.
"""

from __future__ import annotations

import struct
from typing import Any, Container, Sequence

from ._lib.arr import Array
from ._memory import allocate, copied
from .exceptions import UCXIOError, UCXUnsupportedError

#: How long a head may be.
HEAD_BYTES_MAX = 16384
#: Up to this many bytes of all buffers go in the head.
INLINE_BYTES_MAX = 8192

_HEAD = struct.Struct("<IB3x")
_FOLLOW, _INLINE, _TABLE_FOLLOWS = range(3)
_OTHER_TAG = 0x9E3779B97F4A7C15
_LENT_TAG = 0xBF58476D1CE4E5B9
_HOST, _CUDA, _LENT = range(3)


def tag_of_buffers(tag: int) -> int:
    """The tag with which the buffers follow a head with this tag."""
    return tag ^ _OTHER_TAG


def tag_of_loans(tag: int) -> int:
    """The tag of the loans that go before a head with this tag."""
    return tag ^ _LENT_TAG


def pack(
    arrays: Sequence[Array], tag: int, lent: Container[int]
) -> tuple[list[Any], list[int]]:
    """The messages that carry the buffers, and their tags. `lent`: which have gone in loans."""
    n = len(arrays)
    sizes = [a.nbytes for a in arrays]
    kinds = bytes(_LENT if i in lent else _CUDA if a.cuda else _HOST for i, a in enumerate(arrays))
    table = struct.pack(f"<{n}Q", *sizes) + kinds
    plain = not any(a.cuda for a in arrays)
    other = tag_of_buffers(tag)
    if plain and sum(sizes) <= INLINE_BYTES_MAX and len(table) <= INLINE_BYTES_MAX - _HEAD.size:
        parts = [_HEAD.pack(n, _INLINE), table]
        parts += [a.buffer.tobytes("A") for a in arrays]
        return [b"".join(parts)], [tag]
    follow = [a.buffer for i, a in enumerate(arrays) if a.nbytes and i not in lent]
    if _HEAD.size + len(table) <= HEAD_BYTES_MAX:
        bufs = [_HEAD.pack(n, _FOLLOW) + table, *follow]
    else:
        bufs = [_HEAD.pack(n, _TABLE_FOLLOWS), table, *follow]
    return bufs, [tag] + [other] * (len(bufs) - 1)


class Arrival:
    """Buffers whose head has come."""

    def __init__(self, head: memoryview) -> None:
        #: The buffers, in order; complete when what `following` gives has been received.
        self.buffers: list[Any] = []
        #: What is to be received first, where the head has no room for it.
        self.table: bytearray | None = None
        #: Which of the buffers come as views.
        self.lent: list[int] = []
        try:
            self._n, kind = _HEAD.unpack_from(head)
            if kind == _TABLE_FOLLOWS:
                self.table = bytearray(self._n * 9)
            else:
                self._plan(head[_HEAD.size :], kind == _INLINE)
        except struct.error as error:
            raise UCXIOError(f"Input/output error: no head of several buffers: {error}") from None

    def take_table(self) -> None:
        """The table has come."""
        table, self.table = self.table, None
        self._plan(memoryview(table), False)

    def _plan(self, table: memoryview, inline: bool) -> None:
        n = self._n
        sizes = struct.unpack_from(f"<{n}Q", table)
        kinds = bytes(table[8 * n : 9 * n])
        if len(kinds) != n:
            raise struct.error("it is cut")
        at = 9 * n
        for size, kind in zip(sizes, kinds):
            if kind == _LENT:
                self.lent.append(len(self.buffers))
                self.buffers.append(None)
            elif inline:
                if at + size > len(table):
                    raise struct.error("it is cut")
                self.buffers.append(copied(table[at : at + size]))
                at += size
            else:
                self.buffers.append(_allocate_gpu(size) if kind == _CUDA else allocate(size))
        self._inline = inline

    def following(self) -> list[Any]:
        """The buffers that are still to be received."""
        if self._inline:
            return []
        return [b for b in self.buffers if b is not None and Array(b).nbytes]


def _allocate_gpu(nbytes: int) -> Any:
    try:
        import rmm
    except ImportError:
        raise UCXUnsupportedError(
            "Unsupported operation: the peer sends memory of a GPU, and RMM, which gives such "
            "memory to receive it in, is not installed"
        ) from None
    return rmm.DeviceBuffer(size=nbytes)
