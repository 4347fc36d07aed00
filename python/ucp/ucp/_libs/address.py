# SPDX-License-Identifier: BSD-3-Clause
"""Addresses of workers: opaque bytes, which programs carry as they like."""

from ropeway._ucx.array import Opaque

from .exceptions import UCXError

MAGIC = b"rpw1"
UID_BYTES = 16


class UCXAddress(Opaque):
    """The address of a worker."""

    __slots__ = ()

    @classmethod
    def from_worker(cls, worker):
        """The address of a worker of this process, which begins to listen for it."""
        return cls(MAGIC + worker.uid + worker.door().encode())

    def split(self):
        """The worker's unique number, and the address that ropeway connects to."""
        text = bytes(self).rstrip(b"\0")
        if text[: len(MAGIC)] != MAGIC:
            raise UCXError(
                "Invalid worker address: expected bytes that get_worker_address() of this "
                "module gave in another process"
            )
        text = text[len(MAGIC) :]
        return text[:UID_BYTES], text[UID_BYTES:].decode("ascii", "replace")
