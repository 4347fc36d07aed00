# SPDX-License-Identifier: BSD-3-Clause
"""Array: one view of host memory (buffer protocol) and of a GPU's (__cuda_array_interface__)."""

from __future__ import annotations

from typing import Any

_TYPE_BYTES = {"b1": 1, "i1": 1, "u1": 1, "f16": 16, "c32": 32}


def _item_bytes(typestr: str | None) -> int:
    if typestr is None:
        raise ValueError("Expected `str`, but got `None`")
    if typestr == "":
        raise ValueError("Got unexpected empty `str`")
    kind = typestr[1:] if typestr[0] in "<>|=" else typestr
    if kind in _TYPE_BYTES:
        return _TYPE_BYTES[kind]
    if kind[:1] in "biufcmMSV" and kind[1:].isdigit():
        return int(kind[1:])
    try:
        from numpy import dtype
    except ImportError:
        raise ValueError(
            f"Unexpected data type, '{typestr}'. Please install NumPy to handle this format."
        ) from None
    return dtype(typestr).itemsize


def _c_strides(itemsize: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    out = []
    step = itemsize
    for n in reversed(shape):
        out.append(step)
        step *= n
    return tuple(reversed(out))


class Array:
    """What is sent or received: its address, size and shape, without a copy.

    Parameters
    ----------
    obj
        An object with the buffer protocol, or with ``__cuda_array_interface__``. It is kept alive
        by the Array.
    """

    __slots__ = (
        "_view",
        "_shape",
        "_strides",
        "_ptr",
        "buf",
        "cuda",
        "itemsize",
        "nbytes",
        "ndim",
        "obj",
        "readonly",
    )

    def __init__(self, obj: Any) -> None:
        iface = getattr(obj, "__cuda_array_interface__", None)
        self.cuda = iface is not None
        #: What goes to ropeway's calls.
        self.buf = obj
        if iface is None:
            self._of_host(obj)
        else:
            self._of_gpu(obj, iface)

    def _of_host(self, obj: Any) -> None:
        view = memoryview(obj)
        if view.suboffsets:
            raise NotImplementedError("Suboffsets are not supported")
        self._view = view
        self.obj = view.obj
        self.readonly = view.readonly
        self.itemsize = view.itemsize
        self.ndim = view.ndim
        self.nbytes = view.nbytes
        self._shape = view.shape
        self._strides = view.strides
        self._ptr: int | None = None

    def _of_gpu(self, obj: Any, iface: dict) -> None:
        if iface.get("mask") is not None:
            raise NotImplementedError("mask attribute not supported")
        self._view = None
        self.obj = obj
        self._ptr, self.readonly = iface["data"]
        self.itemsize = _item_bytes(iface["typestr"])
        self._shape = tuple(iface["shape"])
        self.ndim = len(self._shape)
        strides = iface.get("strides")
        if strides is not None and len(strides) != self.ndim:
            raise ValueError("The length of shape and strides must be equal")
        self._strides = tuple(strides) if strides else _c_strides(self.itemsize, self._shape)
        self.nbytes = self.itemsize
        for n in self._shape:
            self.nbytes *= n

    @property
    def ptr(self) -> int:
        """Where it begins: an address of this process, or of the GPU."""
        if self._ptr is None:
            self._ptr = _address_of(self._view)
        return self._ptr

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    @property
    def strides(self) -> tuple[int, ...]:
        return self._strides

    @property
    def c_contiguous(self) -> bool:
        if self._view is not None:
            return self._view.c_contiguous
        return self._strides == _c_strides(self.itemsize, self._shape)

    @property
    def f_contiguous(self) -> bool:
        if self._view is not None:
            return self._view.f_contiguous
        return self._strides[::-1] == _c_strides(self.itemsize, self._shape[::-1])

    @property
    def contiguous(self) -> bool:
        if self._view is not None:
            return self._view.contiguous
        return self.c_contiguous or self.f_contiguous

    def __len__(self) -> int:
        return self._shape[0] if self._shape else 0


def _address_of(view: memoryview) -> int:
    import ctypes

    class PyBuffer(ctypes.Structure):
        _fields_ = [
            ("buf", ctypes.c_void_p),
            ("obj", ctypes.py_object),
            ("len", ctypes.c_ssize_t),
            ("itemsize", ctypes.c_ssize_t),
            ("readonly", ctypes.c_int),
            ("ndim", ctypes.c_int),
            ("format", ctypes.c_char_p),
            ("shape", ctypes.c_void_p),
            ("strides", ctypes.c_void_p),
            ("suboffsets", ctypes.c_void_p),
            ("internal", ctypes.c_void_p),
        ]

    full_ro = 0x11C  # PyBUF_FULL_RO: strided, with its format, read-only is fine
    buffer = PyBuffer()
    get = ctypes.pythonapi.PyObject_GetBuffer
    get.argtypes = [ctypes.py_object, ctypes.POINTER(PyBuffer), ctypes.c_int]
    release = ctypes.pythonapi.PyBuffer_Release
    release.argtypes = [ctypes.POINTER(PyBuffer)]
    get(view, ctypes.byref(buffer), full_ro)
    try:
        return buffer.buf or 0
    finally:
        release(ctypes.byref(buffer))


def asarray(obj: Any) -> Array:
    """`obj` as an Array; an Array is given back as it is."""
    return obj if isinstance(obj, Array) else Array(obj)
