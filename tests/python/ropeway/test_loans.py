# SPDX-License-Identifier: BSD-3-Clause
"""Loans and views: buffers and DLPack tensors whose memory lives as long as what was made of it."""

import asyncio
import gc
import subprocess
import sys

import pytest
from helpers import pattern, run

import ropeway
import ropeway.blocking

np = pytest.importorskip("numpy", reason="numpy is missing: arrays over views are not tested")
TRANSPORTS = ("shm", "tcp")


async def pair(transport, **options):
    c = ropeway.Context(asyncio.get_running_loop(), transport, **options)
    listener = c.listen()
    a = await c.connect(listener.address)
    b = await listener.accept()
    listener.close()
    return c, a, b


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_loan_comes_as_a_view_and_goes_back_with_its_last_array(transport):
    async def main():
        c, a, b = await pair(transport)
        data = pattern(300000)
        loan = a.loan(len(data))
        assert len(loan) == len(data) and not loan.closed
        np.frombuffer(loan, np.uint8)[:] = np.frombuffer(data, np.uint8)
        op = a.send_loan(loan, tag=7)
        assert loan.closed
        view = await b.recv_view(tag=7)
        await op
        assert (len(view), view.tag, view.loaned) == (len(data), 7, transport == "shm")
        assert view.readonly == view.loaned
        array = np.frombuffer(view, np.uint8)
        part = array[1000:2000]
        del view, array
        gc.collect()
        assert bytes(part) == data[1000:2000]
        held = b.info().view_bytes
        assert (held > 0) == (transport == "shm")
        del part
        assert b.info().view_bytes == 0
        await a.flush()
        assert a.info().loan_bytes == 0
        c.close()

    run(main())


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_ordinary_messages_come_as_views_and_loans_into_buffers(transport):
    async def main():
        c, a, b = await pair(transport)
        for early in (False, True):
            for size in (0, 10, 70000, 1 << 20):
                data, into = pattern(size, size), bytearray(size)
                send = a.send(data, tag=1) if early else None
                await asyncio.sleep(0.001)
                receive = b.recv_view(tag=1)
                send = send or a.send(data, tag=1)
                view = await receive
                await send
                assert bytes(view) == data and not view.loaned
                with memoryview(view) as m, pytest.raises(BufferError, match="live"):
                    assert len(m) == size
                    view.release()
                view.release()
                assert view.closed
                with a.loan(size) as unsent:
                    assert len(unsent) == size
                loan = a.loan(size)
                with memoryview(loan) as m:
                    m[:] = data
                receive, send = b.recv(into, tag=2), a.send_loan(loan, 2)
                assert (await receive).length == size
                await send
                assert into == data
        c.close()

    run(main())


def test_what_has_arrays_is_neither_sent_nor_given_back():
    async def main():
        c, a, _ = await pair("shm")
        loan = a.loan(100)
        array = np.frombuffer(loan, np.uint8)
        with pytest.raises(BufferError, match="cannot be sent while 1 of its"):
            a.send_loan(loan)
        with pytest.raises(BufferError, match="cannot be returned while 1 of its"):
            loan.close()
        del array
        await a.send_loan(loan)
        with pytest.raises(ValueError, match="sent or given back before"):
            a.send_loan(loan)
        with pytest.raises(BufferError):
            memoryview(loan)
        with pytest.raises(TypeError, match="a Loan is needed"):
            a.send_loan(b"abc")
        with pytest.raises(ValueError, match="11 bytes of a loan of 10"):
            a.send_loan(a.loan(10), nbytes=11)
        c.close()

    run(main())


def test_dlpack_has_no_copy_and_says_read_only():
    async def main():
        c, a, b = await pair("shm")
        for writable in (True, False):
            loan = a.loan(4096, writable=writable)
            assert loan.__dlpack_device__() == (1, 0)
            tensor = np.from_dlpack(loan)
            tensor[:] = np.frombuffer(pattern(4096), np.uint8)
            with pytest.raises(BufferError):
                a.send_loan(loan)
            del tensor
            gc.collect()
            await a.send_loan(loan)
            view = await b.recv_view()
            assert view.readonly is not writable
            if writable:
                array = np.from_dlpack(view)
                assert bytes(array) == pattern(4096)
                array[0] += 1
                del array
            else:
                with pytest.raises(BufferError, match="read-only"):
                    view.__dlpack__()
                assert "versioned" in repr(view.__dlpack__(max_version=(1, 0)))
            gc.collect()
            view.release()
        c.close()

    run(main())


def test_the_bound_is_told_and_waited_for():
    async def main():
        c, a, b = await pair("shm", loan_bytes_max=1 << 20)
        await a.send_loan(a.loan(1 << 20))
        view = await b.recv_view()
        with pytest.raises(ropeway.Error, match="the peer holds 1048576 bytes in 1 loan") as e:
            a.loan(1)
        assert e.value.status == ropeway.Status.LIMIT
        with pytest.raises(ropeway.Error):
            await a.wait_loan(1, timeout=0.02)
        asyncio.get_running_loop().call_later(0.05, view.release)
        assert len(await a.wait_loan(1 << 20, timeout=5)) == 1 << 20
        assert a.info().loan_bytes_max == 1 << 20
        c.close()

    run(main())


def test_arrays_outlive_endpoints_and_contexts():
    async def main():
        c, a, b = await pair("shm")
        data = pattern(70000)
        loan = a.loan(len(data))
        with memoryview(loan) as m:
            m[:] = data
        await a.send_loan(loan)
        kept = np.frombuffer(a.loan(100), np.uint8)
        array = np.frombuffer(await b.recv_view(), np.uint8)
        a.close()
        b.close()
        assert bytes(array) == data
        c.close()
        return array, kept

    array, kept = run(main())
    gc.collect()
    assert bytes(array) == pattern(70000)
    kept[:] = 1
    del array, kept
    gc.collect()


def test_a_cancelled_receive_leaves_nothing():
    async def main():
        c, a, b = await pair("shm")
        op = b.recv_view(tag=1)
        assert op.cancel()
        await a.send_loan(a.loan(10), tag=1)
        view = await b.recv_view(tag=1)
        assert len(view) == 10
        c.close()

    run(main())


def test_blocking_between_two_processes():
    code = """if 1:
        import sys, ropeway.blocking
        with ropeway.blocking.Context(transports="shm") as c:
            ep = c.connect(sys.argv[1])
            for i in range(50):
                with ep.loan(1 << 20, timeout=10) as loan:
                    with memoryview(loan) as m:
                        m[:8] = i.to_bytes(8, "little")
                        m[-1] = i
                    ep.send_loan(loan, tag=i)
            ep.flush(10)
        """
    with ropeway.blocking.Context(transports="shm") as c, c.listen() as listener:
        other = subprocess.Popen([sys.executable, "-c", code, listener.address])
        ep = listener.accept(10)
        for i in range(50):
            view = ep.recv_view(tag=i, timeout=10)
            assert view.loaned and len(view) == 1 << 20
            array = np.frombuffer(view, np.uint8)
            assert (array[0], array[-1]) == (i, i)
            del array, view
        c.wait(0.01)
        while other.poll() is None:
            c.wait(0.01)
        assert other.returncode == 0
