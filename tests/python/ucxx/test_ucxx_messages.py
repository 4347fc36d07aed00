# SPDX-License-Identifier: BSD-3-Clause
"""Messages between endpoints, over each transport: every byte is compared."""

from __future__ import annotations

import array
import asyncio
import functools
import random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ucxx
from ucxx_help import asynchronous, pair, pattern, start, until

SIZES = [0, 1, 7, 8, 100, 4096, 65_536, 65_537, 1 << 20, 9_000_001]
BUFFERS = {
    "bytes": (bytes, bytearray),
    "bytearray": (bytearray, bytearray),
    "memoryview": (memoryview, lambda n: memoryview(bytearray(n))),
    "array": (lambda b: array.array("B", b), lambda n: array.array("B", bytes(n))),
    "numpy": (lambda b: np.frombuffer(b, "u1"), lambda n: np.empty(n, "u1")),
    "Array": (
        lambda b: ucxx._lib.arr.Array(b),
        lambda n: ucxx._lib.arr.Array(bytearray(n)),
    ),
}


def raw(buffer) -> bytes:
    buffer = getattr(buffer, "buffer", buffer)
    return memoryview(buffer).cast("B").tobytes() if memoryview(buffer).nbytes else b""


@pytest.mark.parametrize("size", SIZES)
@asynchronous
async def test_there_and_back(transport, size):
    start(transport)
    async with pair() as (a, b):
        assert a.info().transport == transport
        there, back = pattern(1, size), pattern(2, size)
        at_b, at_a = bytearray(size), bytearray(size)
        await asyncio.gather(a.send(there), b.recv(at_b), b.send(back), a.recv(at_a))
        assert at_b == there and at_a == back
        del a, b


@pytest.mark.parametrize("kind", BUFFERS)
@asynchronous
async def test_every_kind_of_buffer(kind):
    made, empty = BUFFERS[kind]
    async with pair() as (a, b):
        for size in (0, 8, 1000, 200_000):
            got = empty(size)
            await asyncio.gather(a.send(made(pattern(3, size))), b.recv(got))
            assert raw(got) == pattern(3, size)
        del a, b


@asynchronous
async def test_arrays_of_more_dimensions_and_other_types():
    rng = np.random.default_rng(4)
    async with pair() as (a, b):
        for x in (
            rng.random((3, 5, 7)),
            rng.integers(0, 1 << 60, 1000),
            np.asfortranarray(rng.random((30, 40))),
            np.array(12.5),
        ):
            y = np.empty_like(x)
            await asyncio.gather(a.send(x), b.recv(y))
            assert np.array_equal(x, y)
        with pytest.raises((ValueError, BufferError)):
            await a.send(rng.random((10, 10))[:, ::2])
        with pytest.raises((ValueError, BufferError, TypeError)):
            await b.recv(bytes(8))
        del a, b


@asynchronous
async def test_messages_of_one_tag_come_in_order(transport):
    start(transport)
    sizes = [random.Random(5).choice((1, 50, 9000, 150_000)) for _ in range(200)]
    async with pair() as (a, b):

        async def send():
            for i, n in enumerate(sizes):
                await a.send(pattern(i, n))

        async def receive():
            for i, n in enumerate(sizes):
                got = bytearray(n)
                await b.recv(got)
                assert got == pattern(i, n), i

        await asyncio.gather(send(), receive())
        del a, b


@asynchronous
async def test_a_thousand_in_flight(transport):
    start(transport)
    async with pair() as (a, b):
        got = [bytearray(1 + i % 300) for i in range(1000)]
        receives = [asyncio.ensure_future(b.recv(g)) for g in got]
        await asyncio.gather(*(a.send(pattern(i, len(g))) for i, g in enumerate(got)))
        await asyncio.gather(*receives)
        for i, g in enumerate(got):
            assert g == pattern(i, len(g))
        del a, b


@asynchronous
async def test_tags_choose_among_messages():
    """Numbers, texts, and whatever has a repr: each finds its own, in whatever order."""
    tags = [0, 1, -5, 1 << 70, "msg1", "msg2", ("a", 2), b"x", None, 2.5, frozenset([1])]
    async with pair() as (a, b):
        got = [bytearray(16) for _ in tags]
        order = list(range(len(tags)))
        random.Random(6).shuffle(order)
        receives = [asyncio.ensure_future(b.recv(got[i], tag=tags[i])) for i in order]
        for i in range(len(tags)):
            await a.send(pattern(i, 16), tag=tags[i])
        await asyncio.gather(*receives)
        for i in range(len(tags)):
            assert got[i] == pattern(i, 16), tags[i]
        del a, b


@asynchronous
async def test_a_receive_with_another_tag_goes_on_waiting():
    async with pair() as (a, b):
        other = bytearray(4)
        waits = asyncio.create_task(b.recv(other, tag="other"))
        await a.send(b"mine", tag="mine")
        got = bytearray(4)
        await b.recv(got, tag="mine")
        assert got == b"mine" and not waits.done()
        await a.send(b"that", tag="other")
        await waits
        assert other == b"that"
        del a, b


@asynchronous
async def test_a_forced_tag_is_taken_as_it_is():
    async with pair() as (a, b):
        got = bytearray(5)
        receive = asyncio.create_task(ucxx.recv(got, tag=0x1234))
        await a.send(b"plain", tag=0x1234, force_tag=True)
        await receive
        assert got == b"plain"
        await asyncio.gather(
            a.send(b"again", tag=77, force_tag=True), b.recv(got, tag=77, force_tag=True)
        )
        assert got == b"again"
        with pytest.raises(OverflowError):
            await a.send(b"", tag=1 << 64, force_tag=True)
        del a, b


def test_texts_are_the_same_tag_in_every_process():
    """Python's own hash of a text is another number in each process."""
    import subprocess
    import sys

    code = "from ucxx._lib_async.endpoint import _number; print(_number('msg'), _number(('a', 1)))"
    seen = {
        subprocess.run([sys.executable, "-c", code], text=True, capture_output=True).stdout
        for _ in range(3)
    }
    assert len(seen) == 1 and seen != {""}


@pytest.mark.parametrize("allocator", [bytearray, functools.partial(np.empty, dtype="u1")])
@asynchronous
async def test_objects(allocator):
    async with pair() as (a, b):
        for size in (0, 5, 70_000, 2_000_000):
            _, got = await asyncio.gather(
                a.send_obj(pattern(7, size)), b.recv_obj(allocator=allocator)
            )
            assert raw(got) == pattern(7, size)
        del a, b


@pytest.mark.parametrize(
    "sizes",
    [
        [],
        [0],
        [5],
        [1, 2, 3],
        [0, 0, 7, 0],
        [8192],
        [8193],
        [100_000, 0, 3, 70_000],
        [1 << 20] * 8,
        [3] * 400,
        [50_000] * 40,
        list(range(2500)),
    ],
    ids=lambda s: f"{len(s)} of {sum(s)}",
)
@asynchronous
async def test_several_buffers_at_once(transport, sizes):
    start(transport)
    async with pair() as (a, b):
        _, got = await asyncio.gather(
            a.send_multi([pattern(i, n) for i, n in enumerate(sizes)]), b.recv_multi()
        )
        assert [raw(g) for g in got] == [pattern(i, n) for i, n in enumerate(sizes)]
        assert all(isinstance(g, np.ndarray) and g.flags.writeable for g in got)
        del a, b


@asynchronous
async def test_several_of_several_buffers_do_not_mix():
    async with pair() as (a, b):
        sent = [[pattern(10 * k + i, 20_000 * i + k) for i in range(4)] for k in range(12)]
        receives = [asyncio.ensure_future(b.recv_multi()) for _ in sent]
        await asyncio.gather(*(a.send_multi(s) for s in sent))
        for s, r in zip(sent, receives):
            assert [raw(g) for g in await r] == s
        del a, b


@asynchronous
async def test_several_buffers_have_to_be_a_list():
    async with pair() as (a, b):
        with pytest.raises(ValueError, match="list"):
            await a.send_multi(b"abc")
        del a, b


@asynchronous
async def test_active_messages(transport):
    start(transport)
    sizes = [0, 1, 8192, 8193, 300_000, 5_000_000, 3]
    async with pair() as (a, b):
        assert not b.am_probe()
        sends = asyncio.gather(*(a.am_send(pattern(i, n)) for i, n in enumerate(sizes)))
        for i, n in enumerate(sizes):
            assert raw(await b.am_recv()) == pattern(i, n)
        await sends
        await a.am_send(b"there")
        await until(b.am_probe, "the message has not come")
        await b.am_send(b"back")
        assert raw(await a.am_recv()) == b"back" and raw(await b.am_recv()) == b"there"
        del a, b


@asynchronous
async def test_an_active_message_is_taken_without_being_asked_for():
    """A sender does not wait for the receiver to ask, whatever the size."""
    async with pair() as (a, b):
        await asyncio.wait_for(a.am_send(pattern(8, 3_000_000)), 20)
        await a.close()
        await until(lambda: b.closed, "the end has not come")
        assert raw(await b.am_recv()) == pattern(8, 3_000_000)
        with pytest.raises(ucxx.exceptions.UCXConnectionResetError):
            await b.am_recv()
        del a, b


@asynchronous
async def test_probes():
    async with pair() as (a, b):
        assert not b.tag_probe() and repr(b.tag_probe()) == "TagProbeResult(matched=False)"
        with pytest.raises(AttributeError):
            b.tag_probe().length
        await a.send(pattern(9, 300))
        await a.send(pattern(10, 20))
        await until(b.tag_probe, "no message")
        found = b.tag_probe()
        assert found.length == 300 and found.handle is None
        assert found.sender_tag == b._tags["msg_recv"]
        taken = b.tag_probe(remove=True)
        assert taken.length == 300 and taken.handle
        second, first = bytearray(20), bytearray(300)
        await b.recv(second)
        await b.recv_with_handle(first, taken)
        assert first == pattern(9, 300) and second == pattern(10, 20)
        assert not b.tag_probe()
        del a, b


@asynchronous
async def test_a_worker_is_reached_by_its_address():
    """A guest's messages come to ucxx.recv; its own endpoint back has what this side sends."""
    address = ucxx.get_worker_address()
    assert address.length == len(bytes(address)) > 0
    again = ucxx.get_ucx_address_from_buffer(np.frombuffer(bytes(address), "u1"))
    ep = await ucxx.create_endpoint_from_worker_address(again)
    for size in (8, 100_000, 3_000_000):
        got = bytearray(size)
        await asyncio.gather(
            ep.send(pattern(11, size), tag=5, force_tag=True), ucxx.recv(got, tag=5)
        )
        assert got == pattern(11, size)
    with pytest.raises(ValueError, match="tag"):
        await ep.send(b"x")
    await ep.close()


def test_addresses_of_workers_are_pickled_and_compared():
    import pickle

    address = ucxx.get_worker_address()
    for protocol in (2, 4, 5):
        same = pickle.loads(pickle.dumps(address, protocol=protocol))
        assert type(same) is type(address) and same == address and hash(same) == hash(address)
    assert bytearray(address) == bytes(address) == memoryview(address)


@asynchronous
async def test_ten_clients_at_once(transport):
    start(transport)

    async def serve(ep):
        n = await ep.recv_obj()
        await ep.send_obj(pattern(int.from_bytes(n, "little"), 10_000))
        await ep.close()

    listener = ucxx.create_listener(serve)

    async def one(k):
        ep = await ucxx.create_endpoint("127.0.0.1", listener.port)
        await ep.send_obj(k.to_bytes(4, "little"))
        assert await ep.recv_obj() == pattern(k, 10_000)
        await ep.close()

    await asyncio.gather(*(one(k) for k in range(10)))
    await listener._wait_for_active_clients()
    listener.close()


buffers = st.lists(st.binary(max_size=3000), max_size=12)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    messages=buffers, tag=st.one_of(st.none(), st.integers(), st.text(), st.tuples(st.integers()))
)
def test_any_bytes_with_any_tag(messages, tag):
    @asynchronous
    async def go():
        ucxx.reset()
        async with pair() as (a, b):
            sends = asyncio.gather(*(a.send(m, tag=tag) for m in messages))
            for m in messages:
                got = bytearray(len(m))
                await b.recv(got, tag=tag)
                assert got == m
            await sends
            _, got = await asyncio.gather(a.send_multi(messages, tag=tag), b.recv_multi(tag=tag))
            assert [raw(g) for g in got] == messages
            del a, b

    go()


@asynchronous
async def test_close_after_n_receives():
    async with pair() as (a, b):
        b.close_after_n_recv(3)
        with pytest.raises(ucxx.exceptions.UCXError, match="already been set"):
            b.close_after_n_recv(4)
        for i in range(3):
            assert not b.closed
            await a.send(pattern(i, 9))
            await b.recv(bytearray(9))
        assert b.closed
        del a, b
    async with pair() as (a, b):
        await asyncio.gather(a.send(b"x"), b.recv(bytearray(1)))
        with pytest.raises(ucxx.exceptions.UCXError, match="cannot be less"):
            b.close_after_n_recv(0, count_from_ep_creation=True)
        b.close_after_n_recv(0)
        assert b.closed
        del a, b
