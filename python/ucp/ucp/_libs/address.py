# SPDX-License-Identifier: BSD-3-Clause
"""Addresses of workers: opaque bytes, which programs carry as they like."""

from .exceptions import UCXError

MAGIC = b"rpw1"
UID_BYTES = 16


class _Bytes(bytes):
    """Bytes with the two attributes that UCX-Py's opaque objects have."""

    __slots__ = ()

    @classmethod
    def from_buffer(cls, buffer):
        """A copy of bytes that came from another process."""
        return cls(memoryview(buffer).cast("B") if not isinstance(buffer, bytes) else buffer)

    @property
    def length(self):
        """How many bytes it has."""
        return len(self)

    def __reduce__(self):
        return (type(self).from_buffer, (bytes(self),))

    def __repr__(self):
        return f"<{type(self).__name__}: {len(self)} bytes>"


class UCXAddress(_Bytes):
    """The address of a worker."""

    __slots__ = ()

    @classmethod
    def from_worker(cls, worker):
        """The address of a worker of this process, which begins to listen for it."""
        return cls(MAGIC + worker.uid + worker.door().encode())

    @property
    def address(self):
        """Where its bytes are in this process."""
        from .arr import Array

        return Array(bytes(self)).ptr

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
