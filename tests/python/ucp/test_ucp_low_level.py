# SPDX-License-Identifier: BSD-3-Clause
"""ucp._libs: arrays, workers and requests with callbacks, remote memory; without a loop."""

import array
import io
import mmap
import pickle
import time

import numpy as np
import pytest
from ucp_helpers import payload

BUFFERS = [
    b"",
    b"abcd",
    array.array("i", []),
    array.array("d", [0, 1, 2, 3]),
    memoryview(bytes(6)).cast("B", (3, 2)),
    io.BytesIO(b"abcd").getbuffer(),
    mmap.mmap(-1, 5),
    np.arange(12.0).reshape(3, 4),
    np.asfortranarray(np.arange(12).reshape(3, 4)),
    np.arange(12)[::2],
]


@pytest.mark.parametrize("buffer", BUFFERS, ids=lambda b: type(b).__name__)
def test_an_array_is_as_its_buffer(ucp, buffer):
    from ucp._libs.arr import Array, asarray

    held, view = Array(buffer), memoryview(buffer)
    for name in "nbytes itemsize ndim shape strides readonly c_contiguous f_contiguous".split():
        assert getattr(held, name) == getattr(view, name), name
    assert held.contiguous == view.contiguous and held.obj is view.obj and not held.cuda
    assert held.ptr != 0 and asarray(held) is held
    if isinstance(buffer, np.ndarray):
        assert held.ptr == buffer.__array_interface__["data"][0]


def test_an_array_of_a_gpu(ucp):
    """No GPU is needed to read what an object says of its memory."""
    from ucp._libs.arr import Array

    class OnGpu:
        def __init__(self, **interface):
            self.__cuda_array_interface__ = {"data": (0x1000, False), "version": 3, **interface}

    held = Array(OnGpu(shape=(2, 3), typestr="<f4"))
    assert (held.cuda, held.ptr, held.nbytes, held.strides) == (True, 0x1000, 24, (12, 4))
    assert held.c_contiguous and not held.f_contiguous
    held = Array(OnGpu(shape=(2, 3), typestr="<f8", strides=(8, 16)))
    assert held.f_contiguous and not held.c_contiguous and held.contiguous
    assert not Array(OnGpu(shape=(2, 3), typestr="<f8", strides=(64, 8))).contiguous
    with pytest.raises(NotImplementedError):
        Array(OnGpu(shape=(1,), typestr="<f8", mask=object()))
    for typestr in (None, ""):
        with pytest.raises(ValueError):
            Array(OnGpu(shape=(1,), typestr=typestr))


@pytest.fixture
def api(ucp):
    from ucp._libs import ucx_api

    return ucx_api


def until(worker, what, limit=20):
    end = time.monotonic() + limit
    while not what():
        worker.progress()
        assert time.monotonic() < end, "nothing came"


@pytest.fixture
def ends(api):
    """A worker, and both ends of a connection to itself by a listener."""
    worker = api.UCXWorker(api.UCXContext())
    there = []

    def accepted(request, mark, key=None):
        assert (mark, key) == ("mark", 1)
        there.append(api.UCXEndpoint.create_from_conn_request(worker, request, True))

    listener = api.UCXListener(
        worker=worker, port=0, cb_func=accepted, cb_args=("mark",), cb_kwargs={"key": 1}
    )
    assert listener.ip and 0 < listener.port < 65536
    here = api.UCXEndpoint.create(worker, "127.0.0.1", listener.port, endpoint_error_handling=True)
    until(worker, lambda: there)
    yield worker, here, there[0]
    for thing in (here, there[0], listener, worker):
        thing.close()
        assert not thing.initialized


def test_messages_with_callbacks(api, ends):
    from ucp._libs.arr import Array

    worker, here, there = ends
    ended = []

    def callback(request, error, *args):
        ended.append((error, *args))

    got = Array(bytearray(1000))
    request = api.tag_recv_nb(
        worker, got, got.nbytes, 7, cb_func=callback, cb_args=("recv",), ep=there
    )
    assert request is not None and not request.closed() and request.info["status"] == "pending"
    sent = Array(payload(1, 1000))
    assert not worker.tag_probe(7)
    sending = api.tag_send_nb(here, sent, 1000, 7, cb_func=callback, cb_args=("send",))
    until(worker, lambda: (None, "recv") in ended and (sending is None or sending.closed()))
    assert bytes(got.obj) == payload(1, 1000) and request.closed()
    # A message that is there already; a mask; a part of the buffer.
    api.tag_send_nb(here, sent, 10, 0x1234, cb_func=callback)
    until(worker, lambda: worker.tag_probe(0x1234))
    ended.clear()
    part = Array(bytearray(20))
    api.tag_recv_nb(worker, part, 10, 0x0034, cb_func=callback, tag_mask=0xFF)
    until(worker, lambda: ended)
    assert bytes(part.obj) == payload(1, 1000)[:10] + bytes(10)


def test_cancelled_by_hand_and_by_the_end(api, ends):
    from ucp._libs.arr import Array

    worker, here, there = ends
    ended = []
    for tag in (1, 2):
        request = api.tag_recv_nb(
            worker, Array(bytearray(1)), 1, tag, cb_func=lambda r, e: ended.append(e), ep=there
        )
        if tag == 1:
            worker.request_cancel(request)
    until(worker, lambda: len(ended) == 1)
    api.am_recv_nb(there, cb_func=lambda b, e: ended.append(e))
    closed = []
    there.set_close_callback(lambda: closed.append(1))
    here.close()
    until(worker, lambda: not there.is_alive() and len(ended) == 3)
    assert worker.cancel_inflight_messages() == 2 and worker.cancel_inflight_messages() == 0
    assert all(isinstance(e, api.UCXCanceled) for e in ended) and closed == [1]
    with pytest.raises(api.UCXConnectionReset):
        there.raise_on_error()


def test_streams(api, ends):
    from ucp._libs.arr import Array

    worker, here, there = ends
    data, pieces = payload(4, 10000), []
    for start, stop in ((0, 1), (1, 5000), (5000, 10000)):
        piece = Array(data[start:stop])
        api.stream_send_nb(here, piece, piece.nbytes, cb_func=None)
    for n in (2500, 2500, 4999, 1):
        got, done = Array(bytearray(n)), []
        api.stream_recv_nb(there, got, n, cb_func=lambda r, e: done.append(e))
        until(worker, lambda: done)
        pieces.append(bytes(got.obj))
    assert b"".join(pieces) == data


def test_features_that_a_context_has_not(api):
    from ucp._libs.arr import Array

    buffer = Array(bytearray(4))
    for feature in (api.Feature.TAG, api.Feature.STREAM, api.Feature.AM):
        worker = api.UCXWorker(api.UCXContext(feature_flags=(feature,)))
        ep = api.UCXEndpoint.create_from_worker_address(worker, worker.get_address(), False)
        for other, call in {
            api.Feature.TAG: lambda: api.tag_send_nb(ep, buffer, 4, 0, None),
            api.Feature.STREAM: lambda: api.stream_send_nb(ep, buffer, 4, None),
            api.Feature.AM: lambda: api.am_recv_nb(ep, None),
        }.items():
            if other is not feature:
                with pytest.raises(ValueError, match=f"Feature.{other.name}"):
                    call()
        ep.close()
        worker.close()


# ---- remote memory ----


@pytest.fixture
def remote(api):
    """Memory of this process, by way of an endpoint to itself."""
    context = api.UCXContext()
    worker = api.UCXWorker(context)
    ep = api.UCXEndpoint.create_from_worker_address(worker, worker.get_address(), True)

    def reach(memory):
        packed = pickle.loads(pickle.dumps(memory.pack_rkey()))
        assert packed.length == len(bytes(packed))
        return ep.unpack_rkey(packed)

    yield context, ep, reach
    ep.close()
    worker.close()
    context.close()


@pytest.mark.parametrize("size", [8, 1 << 20])
def test_put_and_get(api, remote, size):
    from ucp._libs.utils_test import blocking_flush

    context, ep, reach = remote
    memory = context.alloc(size)
    assert memory.length >= size
    far = api.RemoteMemory(reach(memory), memory.address, size)
    sent, got = payload(size, size), bytearray(size)
    if not far.put_nbi(sent):
        blocking_flush(ep)
    blocking_flush(ep)
    done = []
    if far.get_nb(got, lambda r, e: done.append(e)) is not None:
        until(ep.worker, lambda: done)
    assert got == sent
    part = bytearray(4)
    if not far.get_nbi(part, offset=2):
        blocking_flush(ep)
    assert part == sent[2:6]
    with pytest.raises(IndexError):
        far.put_nbi(sent, offset=1)


def test_memory_that_was_there_before_the_worker(api):
    from ucp._libs.utils_test import blocking_flush

    context = api.UCXContext()
    memory = context.alloc(64)
    assert context.map(b"").pack_rkey().length > 0
    worker = api.UCXWorker(context)
    ep = api.UCXEndpoint.create_from_worker_address(worker, worker.get_address(), True)
    far = api.RemoteMemory(ep.unpack_rkey(memory.pack_rkey()), memory.address, 64)
    got = bytearray(64)
    if not far.put_nbi(payload(1, 64)):
        blocking_flush(ep)
    blocking_flush(ep)
    if not far.get_nbi(got):
        blocking_flush(ep)
    assert got == payload(1, 64)
    for thing in (ep, worker, context):
        thing.close()


def test_a_mapped_buffer(api, remote):
    from ucp._libs.utils_test import blocking_flush

    context, ep, reach = remote
    mine = bytearray(payload(2, 5000))
    memory = context.map(mine)
    far = api.RemoteMemory(reach(memory), memory.address, 5000)
    if not far.put_nbi(b"hello", offset=100):
        blocking_flush(ep)
    blocking_flush(ep)
    assert mine[100:105] == b"hello" and mine[:100] == payload(2, 5000)[:100]
    memory.close()


def test_a_file_of_remote_memory(api, remote):
    context, ep, reach = remote
    memory = context.alloc(1024)
    file = api.UCXIO(memory.address, 1024, reach(memory))
    data = payload(3, 1024)
    assert file.write(data) == 1024 and file.read(1) == b""
    for where, whence, place in (
        (-25, io.SEEK_CUR, 999),
        (4, io.SEEK_SET, 4),
        (-8, io.SEEK_END, 1016),
    ):
        file.seek(1024)
        assert file.seek(where, whence) == place
        assert file.read(4) == data[place : place + 4]
    assert file.seek(1 << 40) == 1024 and file.seek(-(1 << 40), io.SEEK_CUR) == 0
    assert file.seekable() and file.readable() and file.writable()
