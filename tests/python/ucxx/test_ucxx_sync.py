# SPDX-License-Identifier: BSD-3-Clause
"""ucxx._lib.libucxx: UCXX's objects without asyncio, progressed by hand or by a thread."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time

import pytest

from ucxx._lib import libucxx as api
from ucxx._lib.arr import Array
from ucxx.testing import wait_requests
from ucxx_help import DEADLINE, pattern

Tag = api.UCXXTag


class Two:
    """Two endpoints of one worker, connected with each other."""

    def __init__(self, mode: str, **context) -> None:
        self.mode = mode
        self.worker = api.UCXWorker(api.UCXContext(**context))
        if mode == "blocking":
            self.worker.init_blocking_progress_mode()
        else:
            self.worker.start_progress_thread(polling_mode=mode == "thread-polling")
        self.accepted = []
        self.listener = api.UCXListener.create(
            self.worker, 0, self.accepted.append, deliver_endpoint=True
        )
        self.a = api.UCXEndpoint.create(self.worker, "127.0.0.1", self.listener.port)
        self.until(lambda: self.accepted)
        [self.b] = self.accepted

    def until(self, condition) -> None:
        end = time.monotonic() + DEADLINE
        while not condition():
            assert time.monotonic() < end, "not in time"
            if self.mode == "blocking":
                self.worker.progress()
            else:
                time.sleep(0.001)

    def wait(self, *requests) -> None:
        wait_requests(self.worker, self.mode, list(requests))

    def close(self) -> None:
        self.a.close_blocking(period=10**9)
        self.b.close_blocking(period=10**9)
        self.accepted.clear()
        self.worker.stop_progress_thread()
        self.worker.close()


@pytest.fixture(params=["blocking", "thread", "thread-polling"])
def two(request):
    two = Two(request.param)
    yield two
    two.close()


@pytest.mark.parametrize("size", [0, 1, 5000, 3_000_000])
def test_tagged_messages(two, size):
    there, back = bytearray(size), bytearray(size)
    requests = [
        two.a.tag_send(Array(pattern(1, size)), Tag(5)),
        two.b.tag_recv(Array(there), Tag(5)),
        two.b.tag_send(Array(pattern(2, size)), Tag(6)),
        two.a.tag_recv(Array(back), Tag(0x106), api.UCXXTagMask(0xFF)),
    ]
    two.wait(*requests)
    assert there == pattern(1, size) and back == pattern(2, size)
    assert all(r.completed and r.status == 0 for r in requests)


def test_active_messages(two):
    for size in (0, 100, 100_000):
        send, recv = two.a.am_send(Array(pattern(3, size))), two.b.am_recv()
        two.wait(send, recv)
        assert bytes(recv.recv_buffer) == pattern(3, size)
    two.wait(two.a.am_send(Array(b"x")))
    two.until(two.b.am_probe)


def test_streams(two):
    got = bytearray(70_000)
    two.wait(two.a.stream_send(Array(pattern(4, 70_000))), two.b.stream_recv(Array(got)))
    assert got == pattern(4, 70_000)
    with pytest.raises(RuntimeError):
        two.a.stream_send(Array(b""))


def test_several_buffers(two):
    sizes = [10, 0, 100_000, 7]
    recv = two.b.tag_recv_multi(Tag(8))
    with pytest.raises(RuntimeError, match="not completed"):
        recv.py_buffers
    send = two.a.tag_send_multi(tuple(Array(pattern(i, n)) for i, n in enumerate(sizes)), Tag(8))
    two.wait(send, recv)
    assert [bytes(b) for b in recv.py_buffers] == [pattern(i, n) for i, n in enumerate(sizes)]
    with pytest.raises(ValueError):
        two.a.tag_send_multi((b"no Array",), Tag(8))


def test_probes(two):
    two.wait(two.a.tag_send(Array(b"hello"), Tag(9)))
    two.until(lambda: two.worker.tag_probe(Tag(9)))
    found = two.worker.tag_probe(Tag(9), remove=True)
    assert found.length == 5 and found.sender_tag == 9 and found.handle
    got = bytearray(5)
    two.wait(two.worker.tag_recv_with_handle(Array(got), found))
    assert got == b"hello" and not two.worker.tag_probe(Tag(9))
    with pytest.raises(ValueError):
        two.worker.tag_recv_with_handle(Array(got), two.worker.tag_probe(Tag(9)))


def test_what_is_pending_is_canceled_by_the_peer_s_end(two):
    told = []
    two.a.set_close_callback(told.append, (1,))
    requests = [
        two.a.tag_recv(Array(bytearray(1)), Tag(1)),
        two.a.am_recv(),
        two.a.tag_recv_multi(Tag(2)),
        two.a.stream_recv(Array(bytearray(1))),
    ]
    assert not any(r.completed for r in requests) and two.a.alive
    two.b.close_blocking(period=10**9)
    two.until(lambda: all(r.completed for r in requests) and told)
    for r in requests:
        with pytest.raises(api.UCXCanceledError):
            r.check_error()
    assert told == [1] and not two.a.alive
    with pytest.raises(api.UCXConnectionResetError):
        two.a.raise_on_error()
    two.until(lambda: two.a.tag_send(Array(b"x"), Tag(1)).completed)
    with pytest.raises(api.UCXConnectionResetError):
        two.a.tag_send(Array(b"x"), Tag(1)).check_error()


def test_canceling_all_of_a_worker(two):
    request = two.a.tag_recv(Array(bytearray(1)), Tag(1))
    assert two.worker.cancel_inflight_requests() >= 1
    two.until(lambda: request.completed)
    with pytest.raises(api.UCXCanceledError):
        request.check_error()


def test_a_message_of_another_length(two):
    short, full = bytearray(100), bytearray(2)
    recvs = [two.b.tag_recv(Array(short), Tag(3)), two.b.tag_recv(Array(full), Tag(4))]
    two.wait(*(two.a.tag_send(Array(b"Hey"), Tag(n)) for n in (3, 4)))
    two.until(lambda: all(r.completed for r in recvs))
    recvs[0].check_error()
    assert recvs[0].status == 0 and short == b"Hey" + bytes(97)
    with pytest.raises(api.UCXMessageTruncatedError, match=r"3 \(got\) != 2 \(expected\)"):
        recvs[1].check_error()
    two.wait(two.a.tag_send(Array(b"Hey"), Tag(9)))
    two.until(lambda: two.worker.tag_probe(Tag(9)))
    taken = two.worker.tag_probe(Tag(9), remove=True)
    with pytest.raises(api.UCXMessageTruncatedError):
        two.wait(two.worker.tag_recv_with_handle(Array(full), taken))


@pytest.mark.parametrize("wait", ["future", "wait_yield", "wait"])
def test_requests_are_awaited_in_a_loop(wait):
    two = Two("blocking")
    got = bytearray(500_000)

    async def main():
        requests = [
            two.a.tag_send(Array(pattern(5, 500_000)), Tag(1)),
            two.b.tag_recv(Array(got), Tag(1)),
        ]
        waits = [r.future if wait == "future" else getattr(r, wait)() for r in requests]
        both = asyncio.gather(*waits)
        while not both.done():
            two.worker.progress()
            await asyncio.sleep(0)
        await both

    asyncio.run(asyncio.wait_for(main(), DEADLINE))
    assert got == pattern(5, 500_000)
    two.close()


def test_features_have_to_be_asked_for():
    context = api.UCXContext(feature_flags=(api.Feature.STREAM,))
    worker = api.UCXWorker(context)
    ep = api.UCXEndpoint.create_from_worker_address(worker, worker.address, False)
    for call in (lambda: ep.tag_send(Array(b"x"), Tag(0)), lambda: ep.am_recv()):
        with pytest.raises(ValueError, match="Feature"):
            call()
    worker.close()


def test_objects_that_are_not_made_by_hand():
    for kind in (api.UCXAddress, api.UCXEndpoint, api.UCXListener):
        with pytest.raises(TypeError, match="directly"):
            kind()


def test_a_connection_that_a_listener_s_callback_does_not_take():
    worker = api.UCXWorker(api.UCXContext())
    numbers = []
    listener = api.UCXListener.create(worker, 0, numbers.append)
    ep = api.UCXEndpoint.create(worker, "127.0.0.1", listener.port)
    end = time.monotonic() + DEADLINE
    while not numbers:
        assert time.monotonic() < end
        worker.progress()
    with pytest.raises(ValueError, match="no connection"):
        listener.create_endpoint_from_conn_request(7, True)
    del listener
    while ep.alive:
        assert time.monotonic() < end
        worker.progress()
    worker.close()


def test_arrays():
    import array

    import numpy as np

    for o in (b"", b"abcd", bytearray(5), array.array("d", [1, 2]), np.ones((2, 3), order="F")):
        a, view = Array(o), memoryview(o)
        assert (a.nbytes, a.shape, a.strides, a.itemsize, a.readonly) == (
            view.nbytes,
            view.shape,
            view.strides,
            view.itemsize,
            view.readonly,
        )
        assert a.c_contiguous == view.c_contiguous and a.f_contiguous == view.f_contiguous
        assert not a.cuda and a.ptr != 0
    x = np.arange(4)
    assert Array(x).ptr == x.__array_interface__["data"][0]

    class OfGpu:
        __cuda_array_interface__ = {
            "data": (0x1000, False),
            "shape": (3, 5),
            "typestr": "<f4",
            "version": 3,
        }

    a = Array(OfGpu())
    assert a.cuda and a.nbytes == 60 and a.ptr == 0x1000 and a.strides == (20, 4)


def test_a_worker_in_another_process(tmp_path):
    """Blocking both sides: a server of a few lines, and this client."""
    code = (
        "from ucxx._lib import libucxx as api\n"
        "from ucxx._lib.arr import Array\n"
        "from ucxx.testing import wait_requests\n"
        "worker, eps = api.UCXWorker(api.UCXContext()), []\n"
        "listener = api.UCXListener.create(worker, 0, eps.append, deliver_endpoint=True)\n"
        "print(listener.port, flush=True)\n"
        "while not eps: worker.progress_worker_event()\n"
        "got = bytearray(100_000)\n"
        "wait_requests(worker, 'blocking', [eps[0].tag_recv(Array(got), api.UCXXTag(1))])\n"
        "wait_requests(worker, 'blocking', [eps[0].tag_send(Array(got), api.UCXXTag(2))])\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        worker = api.UCXWorker(api.UCXContext())
        ep = api.UCXEndpoint.create(worker, "127.0.0.1", int(process.stdout.readline()))
        got = bytearray(100_000)
        wait_requests(
            worker,
            "blocking",
            [
                ep.tag_send(Array(pattern(6, 100_000)), Tag(1)),
                ep.tag_recv(Array(got), Tag(2)),
            ],
        )
        assert got == pattern(6, 100_000)
        assert process.wait(DEADLINE) == 0
        worker.close()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
