# SPDX-License-Identifier: BSD-3-Clause
"""Array: one view of everything that has bytes, in host memory or a GPU's; and bytes that
programs carry to other processes."""

from __future__ import annotations

import math
import re
from typing import Any

from .._core import _address


def _item_bytes(typestr: str | None) -> int:
    if typestr is None:
        raise ValueError("Expected `str`, but got `None`")
    if typestr == "":
        raise ValueError("Got unexpected empty `str`")
    found = re.match(r"[<>|=]?[a-zA-Z](\d+)", typestr)
    if found is None:
        raise ValueError(f"Unexpected data type, '{typestr}'.")
    return int(found[1])


def _packed(itemsize: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of elements that follow each other without gaps, the last index fastest."""
    return tuple(itemsize * math.prod(shape[i + 1 :]) for i in range(len(shape)))


class Array:
    """A view of an object's bytes, without a copy.

    obj: has the buffer protocol, or `__cuda_array_interface__` (memory of a GPU). The Array keeps
    it alive.
    """

    __slots__ = (
        "obj",
        "buffer",
        "cuda",
        "readonly",
        "itemsize",
        "ndim",
        "shape",
        "strides",
        "nbytes",
        "_ptr",
    )

    def __init__(self, obj: Any) -> None:
        interface = getattr(obj, "__cuda_array_interface__", None)
        self.cuda = interface is not None
        if interface is None:
            self._of_host(memoryview(obj))
        else:
            self._of_gpu(obj, interface)

    def _of_host(self, view: memoryview) -> None:
        if view.suboffsets:
            raise NotImplementedError("Suboffsets are not supported")
        self.obj = view.obj
        #: The argument for ropeway's calls.
        self.buffer: Any = view
        self.readonly = view.readonly
        self.itemsize = view.itemsize
        self.ndim = view.ndim
        self.shape = view.shape
        self.strides = view.strides
        self.nbytes = view.nbytes
        self._ptr: int | None = None

    def _of_gpu(self, obj: Any, interface: dict[str, Any]) -> None:
        if interface.get("mask") is not None:
            raise NotImplementedError("mask attribute not supported")
        self.obj = self.buffer = obj
        self._ptr, self.readonly = interface["data"]
        self.itemsize = _item_bytes(interface["typestr"])
        self.shape = tuple(interface["shape"])
        self.ndim = len(self.shape)
        strides = interface.get("strides")
        if strides is not None and len(strides) != self.ndim:
            raise ValueError("The length of shape and strides must be equal")
        self.strides = tuple(strides) if strides else _packed(self.itemsize, self.shape)
        self.nbytes = self.itemsize * math.prod(self.shape)

    @property
    def ptr(self) -> int:
        """Where it begins: an address of this process, or of the GPU."""
        if self._ptr is None:
            self._ptr = _address(self.buffer)
        return self._ptr

    @property
    def c_contiguous(self) -> bool:
        if not self.cuda:
            return self.buffer.c_contiguous
        return self.strides == _packed(self.itemsize, self.shape)

    @property
    def f_contiguous(self) -> bool:
        if not self.cuda:
            return self.buffer.f_contiguous
        return self.strides[::-1] == _packed(self.itemsize, self.shape[::-1])

    @property
    def contiguous(self) -> bool:
        return self.c_contiguous or self.f_contiguous

    def __len__(self) -> int:
        return self.shape[0] if self.shape else 0


def asarray(obj: Any) -> Array:
    """An Array of it; one that is an Array already stays as it is."""
    return obj if isinstance(obj, Array) else Array(obj)


class Opaque(bytes):
    """Bytes that mean something to the process that made them: an address, a key."""

    __slots__ = ()

    @classmethod
    def from_buffer(cls, buffer: Any) -> Any:
        """A copy of bytes that came from another process."""
        return bytes.__new__(cls, memoryview(buffer).cast("B"))

    @property
    def length(self) -> int:
        """How many bytes it has."""
        return len(self)

    @property
    def address(self) -> int:
        """Where its bytes are in this process."""
        return _address(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_buffer, (bytes(self),)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {len(self)} bytes>"
