# SPDX-License-Identifier: BSD-3-Clause
"""Loans and views as tensors of other people's libraries, by both forms of DLPack: the same bytes,
no copy, and the memory lives as long as its last tensor."""

import asyncio
import gc

import pytest
from helpers import pattern, run

import ropeway

np = pytest.importorskip("numpy", reason="numpy is missing: DLPack is not tested")


def library(name):
    return pytest.importorskip(name, reason=f"{name} is missing: DLPack is tested without it")


def tvm_of_capsule(owner):
    """By itself it asks for the older form, and takes a capsule of either."""
    return library("tvm_ffi").from_dlpack(owner.__dlpack__(max_version=(1, 0)))


CONSUMERS = {
    "numpy": np.from_dlpack,
    "tvm_ffi, 0.x": lambda owner: library("tvm_ffi").from_dlpack(owner),
    "tvm_ffi, 1.0": tvm_of_capsule,
    "torch": lambda owner: library("torch").from_dlpack(owner),
}


@pytest.fixture(params=CONSUMERS)
def tensor_of(request):
    return CONSUMERS[request.param]


def address_of(tensor):
    return tensor.ctypes.data if isinstance(tensor, np.ndarray) else tensor.data_ptr()


async def pair():
    c = ropeway.Context(asyncio.get_running_loop(), "shm")
    listener = c.listen()
    a, b = await asyncio.gather(c.connect(listener.address), listener.accept())
    listener.close()
    return c, a, b


async def passed(a, b, data, writable):
    """The view of a loan with these bytes."""
    loan = a.loan(len(data), writable=writable)
    with memoryview(loan) as m:
        m[:] = data
    await a.send_loan(loan)
    return await b.recv_view()


def test_a_tensor_is_the_memory_of_a_loan(tensor_of):
    async def main():
        c, a, b = await pair()
        data = pattern(70000)
        loan = a.loan(len(data))
        tensor = tensor_of(loan)
        assert tuple(tensor.shape) == (len(data),) and "uint8" in str(tensor.dtype)
        assert address_of(tensor) % 64 == 0
        np.from_dlpack(tensor)[:] = np.frombuffer(data, np.uint8)
        gc.collect()
        with pytest.raises(BufferError, match="cannot be sent while 1 of its"):
            a.send_loan(loan)
        del tensor
        gc.collect()
        await a.send_loan(loan)
        assert bytes(await b.recv_view()) == data
        c.close()

    run(main())


def test_a_view_lives_as_long_as_its_last_tensor(tensor_of):
    async def main():
        c, a, b = await pair()
        data = pattern(70000)
        view = await passed(a, b, data, writable=True)
        tensor = tensor_of(view)
        assert address_of(tensor) == np.frombuffer(view, np.uint8).ctypes.data
        np.from_dlpack(tensor)[5] ^= 255
        gc.collect()
        with memoryview(view) as m:
            assert m[5] == data[5] ^ 255 and m[6:] == data[6:]
        with pytest.raises(BufferError, match="while 1 of its"):
            view.release()
        del view
        gc.collect()
        assert b.info().view_bytes > 0 and a.info().loan_bytes > 0
        del tensor
        gc.collect()
        assert b.info().view_bytes == 0 and a.info().loan_bytes == 0
        c.close()

    run(main())


def test_a_read_only_view_is_a_tensor_where_that_can_be_said(tensor_of):
    """Before DLPack 1.0 it cannot: then the library hears so, and nothing of the view stays out."""

    async def main():
        c, a, b = await pair()
        view = await passed(a, b, pattern(4096), writable=False)
        assert view.readonly
        try:
            tensor = tensor_of(view)
        except BufferError as error:
            assert "read-only" in str(error)
        else:
            assert address_of(tensor) == np.frombuffer(view, np.uint8).ctypes.data
            if isinstance(tensor, np.ndarray):
                assert bytes(tensor) == pattern(4096) and not tensor.flags.writeable
            del tensor
        gc.collect()
        view.release()
        assert b.info().view_bytes == 0
        c.close()

    run(main())
