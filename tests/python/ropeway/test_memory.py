# SPDX-License-Identifier: BSD-3-Clause
"""Remote memory, and buffers of every kind."""

import array
import asyncio
import gc
import mmap
import struct
import weakref

import numpy as np
import pytest
import ropeway
from helpers import pair, pattern, run
from hypothesis import HealthCheck, given, settings, strategies as st
from ropeway import Access, Error, Status


def test_put_get_atomics(transport):
    async def main():
        async with pair() as (a, b):
            for m in (
                b.context.memory.allocate(1 << 20),
                b.context.memory.register(bytearray(1 << 20)),
            ):
                key = a.unpack(m.rkey())
                assert key.endpoint is a
                data = pattern(700_000)
                await a.put(key, 1000, data)
                await a.flush()
                assert memoryview(m)[1000:701_000] == data
                back = np.zeros(700_000, np.uint8)
                await a.get(key, 1000, back)
                assert back.tobytes() == data
                memoryview(m)[0:16] = struct.pack("<QQ", 5, 2**64 - 1)
                assert await a.fetch_add(key, 0, 7) == 5
                assert await a.fetch_add(key, 8, 2) == 2**64 - 1
                assert await a.compare_swap(key, 0, 12, 99) == 12
                assert await a.compare_swap(key, 0, 12, 100) == 99
                assert struct.unpack("<QQ", memoryview(m)[:16]) == (99, 1)
                gc.collect()
                m.close()

    run(main())


def test_what_must_not_be_is_an_error(transport):
    async def main():
        async with pair() as (a, b):
            m = b.context.memory.allocate(4096, Access.READ)
            key = a.unpack(m.rkey())

            async def fails(post, *args):
                with pytest.raises(Error) as e:
                    await post(key, *args)
                    await a.flush()
                return e.value.status

            assert await fails(a.put, 0, b"x") == Status.ACCESS
            assert await fails(a.get, 4090, bytearray(7)) == Status.ACCESS
            assert await fails(a.fetch_add, 0, 1) == Status.ACCESS
            atomic = b.context.memory.allocate(4096)
            with pytest.raises(Error) as e:
                a.fetch_add(a.unpack(atomic.rkey()), 4, 1)
            assert e.value.status == Status.INVALID
            atomic.close()
            with pytest.raises(Error) as e:
                a.unpack(b"this is no key")
            assert e.value.status == Status.PROTOCOL
            with pytest.raises(ValueError, match="another endpoint"):
                b.put(key, 0, b"x")
            with pytest.raises(TypeError, match="RemoteKey"):
                a.put(m.rkey(), 0, b"x")
            await a.get(key, 0, bytearray(4096))
            m.close()
            assert m.closed
            assert await fails(a.get, 0, bytearray(8)) == Status.ACCESS
            with pytest.raises(ValueError, match="closed"):
                m.rkey()

    run(main())


def test_notifications(transport):
    async def main():
        c = ropeway.context()
        async with pair() as (a, b):
            told = asyncio.Queue()
            c.on_notify(lambda ep, data, length: told.put_nowait((ep, data, length)))
            m = c.memory.allocate(1000)
            key = a.unpack(m.rkey())
            for n in range(5):
                data = pattern(100 + n, n)
                await a.put_notify(key, n, data, 2**64 - 1 - n)
                assert await told.get() == (b, 2**64 - 1 - n, 100 + n)
                assert memoryview(m)[n : n + 100 + n] == data
            c.on_notify(None)
            m.close()

    run(main())


def test_memory_goes_when_nobody_looks_at_it(transport):
    async def main():
        c = ropeway.context()
        m = c.memory.allocate(4096)
        x = np.asarray(m)
        assert x.nbytes == 4096 == len(m) and not x.any() and m.address == x.ctypes.data
        with pytest.raises(BufferError, match="1 views"):
            m.close()
        y = weakref.ref(m) if hasattr(m, "__weakref__") else None
        del m
        x[:] = 7  # the array holds it
        del x, y
        source = bytearray(4096)
        m = c.memory.register(source)
        with pytest.raises(BufferError):
            source.append(1)  # held while it is registered
        m.close()
        source.append(1)
        with c.memory.allocate(10) as m:
            assert not m.closed
        assert m.closed

    run(main())


BUFFERS = {
    "bytearray": bytearray,
    "memoryview": lambda b: memoryview(bytearray(b)),
    "array": lambda b: array.array("B", b),
    "numpy": lambda b: np.frombuffer(bytearray(b), np.uint8),
    "numpy float64": lambda b: np.frombuffer(bytearray(b), np.float64),
    "numpy 2-d": lambda b: np.frombuffer(bytearray(b), np.uint16).reshape(4, -1),
    "numpy Fortran": lambda b: np.asfortranarray(np.frombuffer(bytearray(b), np.uint16).reshape(4, -1)),
    "numpy structured": lambda b: np.frombuffer(bytearray(b), np.dtype([("x", "<i4"), ("y", "<f4")])),
    "slice": lambda b: memoryview(bytearray(b"abc" + b + b"def"))[3:-3],
}


def raw(buf):
    return buf.tobytes("A") if isinstance(buf, np.ndarray | memoryview) else bytes(buf)


@pytest.mark.parametrize("kind", BUFFERS)
@pytest.mark.parametrize("size", [64, 400_000])
def test_buffers_of_every_kind(transport, kind, size):
    async def main():
        async with pair() as (a, b):
            source, target = BUFFERS[kind](pattern(size)), BUFFERS[kind](bytes(size))
            got, _ = await asyncio.gather(b.recv(target, 1), a.send(source, 1))
            assert got.length == size and raw(target) == raw(source)

    run(main())


def test_mmap_and_bytes(transport, tmp_path):
    async def main():
        async with pair() as (a, b):
            data = pattern(8192)
            with mmap.mmap(-1, 8192) as m:
                await asyncio.gather(b.recv(m, 1), a.send(data, 1))
                assert m[:] == data

    run(main())


def test_what_is_no_buffer_is_told_clearly():
    async def main():
        async with pair() as (a, b):
            x = np.zeros((8, 8), np.uint8)
            for bad in (x[::2], x[:, 1:3], memoryview(bytearray(9))[::2]):
                with pytest.raises(BufferError, match="not contiguous"):
                    a.send(bad, 1)
                with pytest.raises(BufferError, match="not contiguous"):
                    b.recv(bad, 1)
            frozen = np.zeros(8)
            frozen.flags.writeable = False
            for bad in (b"bytes", frozen, memoryview(b"123")):
                with pytest.raises(BufferError, match="read-only"):
                    b.recv(bad, 1)
                await a.send(bad, 7)
            for bad in ("text", 5, None, [1, 2], object()):
                with pytest.raises(TypeError, match="a buffer is needed"):
                    a.send(bad, 1)
            with pytest.raises(OverflowError, match="the tag"):
                a.send(b"", -1)
            with pytest.raises(OverflowError, match="the tag"):
                a.send(b"", 2**64)
            with pytest.raises(TypeError):
                a.send(b"", 1.5)
            with pytest.raises(TypeError, match="unexpected argument 'tga'"):
                a.send(b"", tga=1)
            with pytest.raises(TypeError, match="needs the argument 'buf'"):
                a.send(tag=1)
            with pytest.raises(TypeError, match="twice"):
                a.send(b"", buf=b"")
            with pytest.raises(TypeError, match="at most 2"):
                a.send(b"", 1, 2)
            assert a.context.statistics().requests == 0

    run(main())


def test_a_buffer_is_held_until_its_operation_ends(transport):
    """Also where everybody has forgotten the operation."""

    async def main():
        async with pair() as (a, b):
            source, target = bytearray(pattern(3_000_000)), bytearray(3_000_000)
            watch = weakref.ref(np.frombuffer(target, np.uint8))
            view = np.frombuffer(target, np.uint8)
            watch = weakref.ref(view)
            a.send(source, 1)  # nobody holds the operation
            with pytest.raises(BufferError):
                source.append(1)
            op = b.recv(view, 1)
            del view
            gc.collect()
            assert watch() is not None
            await op
            await a.flush()
            source.append(1)
            assert target == source[:-1]
            del op
            gc.collect()
            assert watch() is None
            b.recv(target, 2)
            gc.collect()
            with pytest.raises(BufferError):
                target.append(1)
            await a.send(b"later", 2)
            while target[:5] != b"later":
                await asyncio.sleep(0)
            target.append(1)

    run(main())


@given(
    dtype=st.sampled_from(["u1", "<i2", ">f4", "<f8", "c16", "S3", "?"]),
    shape=st.lists(st.integers(0, 7), max_size=3),
    order=st.sampled_from("CF"),
)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_numpy_arrays_of_any_form(dtype, shape, order):
    async def main():
        async with pair() as (a, b):
            dt = np.dtype(dtype)
            n = int(np.prod(shape)) * dt.itemsize
            x = np.frombuffer(pattern(n, n), dt).reshape(shape)
            x = np.asfortranarray(x) if order == "F" else np.ascontiguousarray(x)
            x = x.reshape(shape)
            y = np.zeros_like(x)
            got, _ = await asyncio.gather(b.recv(y, 1), a.send(x, 1))
            assert got.length == n and x.tobytes("A") == y.tobytes("A")

    run(main())


@given(st.lists(st.tuples(st.integers(0, 5000), st.binary(max_size=2000)), max_size=20))
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_puts_as_a_model_says(transport, puts):
    async def main():
        async with pair() as (a, b):
            m, model = b.context.memory.allocate(8192), bytearray(8192)
            key = a.unpack(m.rkey())
            for offset, data in puts:
                await a.put(key, offset, data)
                a.fence()
                model[offset : offset + len(data)] = data
            await a.flush()
            assert bytes(m) == model
            back = bytearray(8192)
            await a.get(key, 0, back)
            assert back == model
            m.close()

    run(main())
