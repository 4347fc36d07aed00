# SPDX-License-Identifier: BSD-3-Clause
"""Array: one view of everything that has bytes, in host memory or a GPU's."""

import ctypes


class _PyBuffer(ctypes.Structure):
    """Py_buffer of the stable ABI."""

    _fields_ = [
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_void_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    ]


_FULL_RO = 0x0100 | 0x0010 | 0x0008 | 0x0004  # PyBUF_INDIRECT, with formats


def _address_of(view):
    buffer = _PyBuffer()
    ctypes.pythonapi.PyObject_GetBuffer(
        ctypes.py_object(view), ctypes.byref(buffer), ctypes.c_int(_FULL_RO)
    )
    try:
        return buffer.buf or 0
    finally:
        ctypes.pythonapi.PyBuffer_Release(ctypes.byref(buffer))


def _itemsize_of(typestr):
    if typestr is None:
        raise ValueError("Expected `str`, but got `None`")
    if typestr == "":
        raise ValueError("Got unexpected empty `str`")
    try:
        return int(typestr[2:])
    except ValueError:
        raise ValueError(f"Unexpected data type, '{typestr}'.") from None


def _is_packed(itemsize, shape, strides):
    """Whether elements follow each other without gaps, the last index fastest."""
    for n, stride in zip(reversed(shape), reversed(strides)):
        if stride != itemsize:
            return False
        itemsize *= n
    return True


class Array:
    """A view of an object's bytes.

    obj: has the buffer protocol, or `__cuda_array_interface__` (memory of a GPU).
    """

    __slots__ = (
        "obj",
        "cuda",
        "readonly",
        "itemsize",
        "ndim",
        "shape",
        "strides",
        "nbytes",
        "buffer",
        "_ptr",
    )

    def __init__(self, obj):
        interface = getattr(obj, "__cuda_array_interface__", None)
        if interface is None:
            self._of_host(obj)
        else:
            self._of_gpu(obj, interface)

    def _of_host(self, obj):
        view = obj if isinstance(obj, memoryview) else memoryview(obj)
        if view.suboffsets:
            raise NotImplementedError("Suboffsets are not supported")
        self.cuda = False
        self.obj = view.obj
        self.buffer = view
        self.readonly = view.readonly
        self.itemsize = view.itemsize
        self.ndim = view.ndim
        self.shape = view.shape or ()
        self.strides = view.strides or ()
        self.nbytes = view.nbytes
        self._ptr = None

    def _of_gpu(self, obj, interface):
        if interface.get("mask") is not None:
            raise NotImplementedError("mask attribute not supported")
        self.cuda = True
        self.obj = self.buffer = obj
        self._ptr, self.readonly = interface["data"]
        self.itemsize = size = _itemsize_of(interface["typestr"])
        self.shape = tuple(interface["shape"])
        self.ndim = len(self.shape)
        strides = interface.get("strides")
        if strides is None:
            packed = []
            for n in reversed(self.shape):
                packed.insert(0, size)
                size *= n
            strides = packed
        if len(strides) != self.ndim:
            raise ValueError("The length of shape and strides must be equal")
        self.strides = tuple(strides)
        self.nbytes = self.itemsize
        for n in self.shape:
            self.nbytes *= n

    @property
    def ptr(self):
        """The address of its first byte."""
        if self._ptr is None:
            self._ptr = _address_of(self.buffer)
        return self._ptr

    @property
    def c_contiguous(self):
        if not self.cuda:
            return self.buffer.c_contiguous
        return _is_packed(self.itemsize, self.shape, self.strides)

    @property
    def f_contiguous(self):
        if not self.cuda:
            return self.buffer.f_contiguous
        return _is_packed(self.itemsize, self.shape[::-1], self.strides[::-1])

    @property
    def contiguous(self):
        return self.c_contiguous or self.f_contiguous


def asarray(obj):
    """An Array of it; one that is an Array already stays as it is."""
    return obj if isinstance(obj, Array) else Array(obj)
