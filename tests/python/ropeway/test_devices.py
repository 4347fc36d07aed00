# SPDX-License-Identifier: BSD-3-Clause
"""Memory of a GPU, by __cuda_array_interface__ and DLPack. There is no GPU here: what has one looks
like this from Python, and a driver library of the tests (tests/msg/fake_cuda.c) stands in for
CUDA's where ROPEWAY_TEST_FAKE_CUDA names it. What a real one does is not tested."""

import asyncio
import ctypes
import os
import subprocess
import sys

import numpy as np
import pytest
import ropeway
from helpers import HERE, pair, pattern, run

FAKE = os.environ.get("ROPEWAY_TEST_FAKE_CUDA")
if FAKE:
    os.environ["ROPEWAY_CUDA_LIBRARY"] = FAKE  # read when memory of a GPU is first met


class Device:
    """An array as cupy has them: no buffer protocol."""

    def __init__(self, address, shape, typestr="|u1", strides=None, readonly=False, **more):
        self.__cuda_array_interface__ = {
            "data": (address, readonly),
            "shape": shape,
            "typestr": typestr,
            "strides": strides,
            "version": 3,
            **more,
        }


class DLPack:
    """What has DLPack and nothing else, as a tensor of PyTorch's does."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **how):
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_without_a_gpu_its_memory_is_refused_by_name():
    async def main():
        async with pair() as (a, b):
            for call in (
                lambda x: a.send(x, 1),
                lambda x: b.recv(x, 1),
                lambda x: a.context.memory.register(x),
            ):
                with pytest.raises(ropeway.Error) as e:
                    call(Device(0x7F0000000000, (16,)))
                assert e.value.status == ropeway.Status.NOT_SUPPORTED
                assert "CUDA" in e.value.sentence or "cuda" in e.value.sentence
            assert a.context.statistics().requests == 0

    if FAKE:
        code = f"import sys; sys.path[:0] = {[HERE, os.path.dirname(__file__)]!r}; " \
            "import test_devices as t; t.FAKE = None; t.test_without_a_gpu_its_memory_is_refused_by_name()"
        env = {k: v for k, v in os.environ.items() if "CUDA" not in k}
        subprocess.run([sys.executable, "-c", code], check=True, timeout=60, env=env)
    else:
        run(main())


def test_interfaces_that_are_none():
    async def main():
        async with pair() as (a, b):
            p = 0x7F0000000000
            for x, kind, words in (
                (Device(p, (4, 4), strides=(8, 1)), BufferError, "not contiguous"),
                (Device(p, (4,), mask=np.zeros(4)), BufferError, "mask"),
                (Device(p, (4,), typestr="x"), TypeError, "typestr"),
                (Device(p, [4]), TypeError, "shape"),
                (Device(p, (-4,)), ValueError, "shape"),
                (Device(p, (2**62, 2**62)), ValueError, "shape"),
                (Device("p", (4,)), TypeError, None),
            ):
                with pytest.raises(kind, match=words):
                    a.send(x, 1)
            with pytest.raises(BufferError, match="read-only"):
                b.recv(Device(p, (4,), readonly=True), 1)
            x = Device(p, (4,))
            x.__cuda_array_interface__ = 5
            with pytest.raises(TypeError, match="dict"):
                a.send(x, 1)
            # nothing of it is touched
            await a.send(Device(0, (0, 5)), 1)
            assert await b.recv(Device(0, (0,)), 1) == (0, 1)

    run(main())


def test_dlpack_of_host_memory(transport):
    async def main():
        async with pair() as (a, b):
            for size in (8, 100_000):
                source = np.frombuffer(bytearray(pattern(size)), np.uint8)
                target = np.zeros(size // 4, np.float32)
                got, _ = await asyncio.gather(b.recv(DLPack(target), 1), a.send(DLPack(source), 1))
                assert got.length == size and target.tobytes() == source.tobytes()
            with pytest.raises(BufferError, match="not contiguous"):
                a.send(DLPack(np.zeros((8, 8))[:, ::2]), 1)

            class Wrong:
                def __dlpack__(self):
                    return 5

            with pytest.raises((ValueError, TypeError)):
                a.send(Wrong(), 1)

    run(main())


@pytest.mark.skipif(not FAKE, reason="ROPEWAY_TEST_FAKE_CUDA names no driver library of the tests")
def test_memory_of_a_gpu_over_the_fake_driver(transport):
    cuda = ctypes.CDLL(FAKE)
    cuda.fake_bytes.restype = ctypes.c_void_p
    cuda.fake_bytes.argtypes = [ctypes.c_ulonglong, ctypes.c_size_t]

    def device(size):
        p = ctypes.c_ulonglong()
        assert cuda.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(size)) == 0
        real = (ctypes.c_uint8 * size).from_address(cuda.fake_bytes(p.value, size))
        return Device(p.value, (size,)), np.frombuffer(real, np.uint8)

    async def main():
        async with pair() as (a, b):
            for size in (100, 5000, 3_000_000):
                source, seen = device(size)
                target, arrived = device(size)
                seen[:] = np.frombuffer(pattern(size), np.uint8)
                # GPU to GPU
                got, _ = await asyncio.gather(b.recv(target, 1), a.send(source, 1))
                assert got.length == size and (arrived == seen).all()
                # GPU to host, host to GPU
                host = bytearray(size)
                await asyncio.gather(b.recv(host, 2), a.send(source, 2))
                assert host == seen.tobytes()
                arrived[:] = 0
                await asyncio.gather(b.recv(target, 3), a.send(host, 3))
                assert (arrived == seen).all()
                # objects, into what the allocator gives
                arrived[:] = 0
                got, _ = await asyncio.gather(b.recv_obj(lambda n: target), a.send_obj(source))
                assert got is target and (arrived == seen).all()
                # remote memory
                m = b.context.memory.register(target)
                arrived[:] = 0
                key = a.unpack(m.rkey())
                await a.put(key, 0, seen.tobytes())
                await a.flush()
                assert (arrived == seen).all()
                back = bytearray(size)
                await a.get(key, 0, back)
                assert back == seen.tobytes()
                m.close()
            for _ in range(1000):  # what the library does by itself: a get that it served
                if not a.context.statistics().requests:
                    break
                await asyncio.sleep(0.001)
            assert a.context.statistics().requests == 0

    run(main())
