# SPDX-License-Identifier: BSD-3-Clause
"""Remote memory: registration, packed keys, puts, gets, and a file of it."""

import io
import struct

import ropeway
from ropeway._ucx.array import Opaque
from ropeway._ucx.calls import translated

from .arr import Array
from .exceptions import of_operation, of_sentence
from .objects import UCXObject
from .transfer import bytes_of, follow

ACCESS = ropeway.Access.READ | ropeway.Access.WRITE | ropeway.Access.ATOMIC
# Where the memory begins in its own process; ropeway's key follows.
BASE = struct.Struct("=Q")


class UCXMemoryHandle(UCXObject):
    """Memory that peers may put to and get from."""

    def __init__(self, context, memory, buffer=None):
        self._context = context
        self._memory = memory
        self._buffer = buffer
        self._open(context)

    @classmethod
    def alloc(cls, ctx, size):
        """New memory of at least `size` bytes."""
        with translated(of_sentence):
            return cls(ctx, ctx.home()._allocate(size, ACCESS))

    @classmethod
    def map(cls, ctx, mem):
        """Memory of the program's: a buffer, which is held until the handle is closed."""
        array = Array(mem)
        if not array.nbytes:
            return cls.alloc(ctx, 1)  # a key is asked for all the same
        access = ropeway.Access.READ if array.readonly else ACCESS
        with translated(of_sentence):
            return cls(ctx, ctx.home()._register(array.buffer, access), array)

    @property
    def address(self):
        """Where it begins."""
        return self._memory.address

    @property
    def length(self):
        """How many bytes it has."""
        return len(self._memory)

    @property
    def mem_handle(self):
        """A number that no other live memory of this process has."""
        return id(self._memory)

    def pack_rkey(self):
        """What a peer needs to reach it: carried as you like."""
        return PackedRemoteKey.from_mem_handle(self)

    def _close(self):
        try:
            self._memory.close()
        except (BufferError, RuntimeError):
            pass  # somebody looks into it still: it goes with its context


class PackedRemoteKey(Opaque):
    """What a peer needs to reach memory: opaque bytes."""

    __slots__ = ()

    @classmethod
    def from_mem_handle(cls, mem):
        """The key of memory of this process."""
        return cls(BASE.pack(mem.address) + mem._memory.rkey())

    #: Where its bytes are in this process.
    key = Opaque.address


class UCXRkey(UCXObject):
    """A peer's memory, as an endpoint reaches it."""

    def __init__(self, ep, rkey):
        ep.connected()
        packed = bytes(rkey)
        with translated(of_sentence):
            self._key = ep._core.unpack(packed[BASE.size :])
        self.ep = ep
        self.base = BASE.unpack_from(packed)[0]
        self._open(ep)

    def _close(self):
        self._key = None


def _offset(rkey, remote_addr):
    offset = remote_addr - rkey.base
    if offset < 0 or rkey._key is None:
        raise IndexError("Out of bounds in UCX RMA interface")
    return offset


def _move(get, buffer, nbytes, remote_addr, rkey, name, cb_func=None, cb_args=None, cb_kwargs=None):
    if get and buffer.readonly:
        raise ValueError("writing to readonly buffer!")
    here, core = bytes_of(buffer, nbytes, rkey.ep.worker._context), rkey.ep._core
    try:
        op = (core.get if get else core.put)(rkey._key, _offset(rkey, remote_addr), here)
    except ropeway.Error as error:
        raise of_operation(error, name) from error
    return follow(rkey.ep, op, cb_func, cb_args, cb_kwargs, name)


def put_nb(buffer, nbytes, remote_addr, rkey, cb_func, cb_args=None, cb_kwargs=None, name="put_nb"):
    """Writes to the peer's memory. As tag_send_nb."""
    return _move(False, buffer, nbytes, remote_addr, rkey, name, cb_func, cb_args, cb_kwargs)


def get_nb(buffer, nbytes, remote_addr, rkey, cb_func, cb_args=None, cb_kwargs=None, name="get_nb"):
    """Reads from the peer's memory. As tag_send_nb."""
    return _move(True, buffer, nbytes, remote_addr, rkey, name, cb_func, cb_args, cb_kwargs)


def put_nbi(buffer, nbytes, remote_addr, rkey, name="put_nbi"):
    """Writes. True: the buffer can be used again. False: after a flush."""
    return _move(False, buffer, nbytes, remote_addr, rkey, name) is None


def get_nbi(buffer, nbytes, remote_addr, rkey, name="get_nbi"):
    """Reads. True: the bytes are there. False: after a flush."""
    return _move(True, buffer, nbytes, remote_addr, rkey, name) is None


class RemoteMemory:
    """A peer's memory: its key, where it begins there, and how many bytes it has."""

    def __init__(self, rkey, base, length):
        self._rkey = rkey
        self._base = base
        self._length = length

    def _part(self, memory, offset, size):
        array = Array(memory)
        size = size or array.nbytes
        if size + offset > self._length:
            raise IndexError("Out of bounds in UCX RMA interface")
        return array, size, self._base + offset, self._rkey

    def put_nb(self, memory, cb_func, cb_args=None, cb_kwargs=None, offset=0, size=0):
        """Writes a buffer, or its first `size` bytes, to `offset`."""
        return put_nb(*self._part(memory, offset, size), cb_func, cb_args, cb_kwargs)

    def get_nb(self, memory, cb_func, cb_args=None, cb_kwargs=None, offset=0, size=0):
        """Reads from `offset` into a buffer."""
        return get_nb(*self._part(memory, offset, size), cb_func, cb_args, cb_kwargs)

    def put_nbi(self, memory, size=0, offset=0):
        """put_nb without a callback: True where the buffer can be used again, else flush."""
        return put_nbi(*self._part(memory, offset, size))

    def get_nbi(self, memory, size=0, offset=0):
        """get_nb without a callback: True where the bytes are there, else flush."""
        return get_nbi(*self._part(memory, offset, size))


class UCXIO(io.RawIOBase):
    """A file whose bytes are a peer's memory.

    dest: where the memory begins there. length: how many bytes it has. rkey: its key."""

    def __init__(self, dest, length, rkey):
        self.pos = 0
        self.remote_addr = dest
        self.length = length
        self.rkey = rkey

    def seek(self, pos, whence=io.SEEK_SET):
        if whence == io.SEEK_CUR:
            pos += self.pos
        elif whence == io.SEEK_END:
            pos += self.length
        elif whence != io.SEEK_SET:
            raise ValueError("Invalid argument")
        self.pos = min(max(pos, 0), self.length)
        return self.pos

    def _move(self, op, buffer):
        array = Array(buffer)
        size = min(array.nbytes, self.length - self.pos)
        if size > 0 and not op(array, size, self.remote_addr + self.pos, self.rkey):
            self.flush()
        self.pos += size
        return size

    def readinto(self, buffer):
        return self._move(get_nbi, buffer)

    def write(self, buffer):
        return self._move(put_nbi, buffer)

    def flush(self):
        if self.rkey.ep.is_alive():
            self.rkey.ep._core.flush().wait(30)

    def seekable(self):
        return True

    def writable(self):
        return True

    def readable(self):
        return True
