# SPDX-License-Identifier: BSD-3-Clause
"""UCXAddress: where a worker is reached."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ropeway._ucx.array import Opaque

from ..exceptions import UCXInvalidAddrError

if TYPE_CHECKING:
    from .worker import UCXWorker


class UCXAddress(Opaque):
    """Where a worker is reached by `create_from_worker_address`, in any process on any host.

    It is bytes: it has the buffer protocol, and is compared, hashed and pickled as they are.
    """

    def __new__(cls, *args: Any) -> UCXAddress:
        raise TypeError("UCXAddress cannot be instantiated directly.")

    __repr__ = bytes.__repr__

    @classmethod
    def create_from_worker(cls, worker: UCXWorker) -> UCXAddress:
        return worker.address

    @classmethod
    def create_from_buffer(cls, buffer: Any) -> UCXAddress:
        """From the bytes of an address; zeros behind it are left out."""
        return cls.from_buffer(buffer)

    @property
    def ucxx_ptr(self) -> int:
        return id(self)

    def tobytes(self) -> bytes:
        return bytes(self)

    def _text(self) -> str:
        try:
            return self.rstrip(b"\0").decode("ascii")
        except UnicodeDecodeError:
            raise UCXInvalidAddrError("Invalid address: no address of a worker") from None
