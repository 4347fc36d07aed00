# SPDX-License-Identifier: BSD-3-Clause
"""UCXAddress: where a worker is reached."""

from __future__ import annotations

from pickle import PickleBuffer
from typing import TYPE_CHECKING, Any

from ..exceptions import UCXInvalidAddrError
from .arr import Array

if TYPE_CHECKING:
    from .worker import UCXWorker


class UCXAddress(bytes):
    """Where a worker is reached by `create_from_worker_address`, in any process on any host.

    It is bytes: it has the buffer protocol, and is compared, hashed and pickled as they are.
    """

    def __new__(cls, *args: Any) -> UCXAddress:
        raise TypeError("UCXAddress cannot be instantiated directly.")

    @classmethod
    def create_from_worker(cls, worker: UCXWorker) -> UCXAddress:
        return worker.address

    @classmethod
    def create_from_buffer(cls, buffer: Any) -> UCXAddress:
        """From the bytes of an address; zeros behind it are left out."""
        return bytes.__new__(cls, memoryview(buffer).tobytes())

    @property
    def length(self) -> int:
        return len(self)

    @property
    def address(self) -> int:
        return Array(self).ptr

    @property
    def ucxx_ptr(self) -> int:
        return id(self)

    def tobytes(self) -> bytes:
        return bytes(memoryview(self))

    def _text(self) -> str:
        try:
            return self.tobytes().rstrip(b"\0").decode("ascii")
        except UnicodeDecodeError:
            raise UCXInvalidAddrError("Invalid address: no address of a worker") from None

    def __bytes__(self) -> bytes:
        return self.tobytes()

    def __reduce_ex__(self, protocol: Any) -> tuple:
        if protocol >= 5:
            return UCXAddress.create_from_buffer, (PickleBuffer(self),)
        return UCXAddress.create_from_buffer, (self.tobytes(),)
