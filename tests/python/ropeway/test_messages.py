# SPDX-License-Identifier: BSD-3-Clause
"""Messages of every kind, over each transport: what is sent arrives, whole, and nothing else."""

import asyncio

import numpy as np
import pytest
import ropeway
from helpers import pair, pattern, run
from hypothesis import HealthCheck, given, settings, strategies as st
from ropeway import Error, Status

SIZES = [0, 1, 8, 4096, 65536, 1 << 20, 5_000_001]


def test_sizes_arrive_whole(transport):
    async def main():
        async with pair() as (a, b):
            assert a.info().transport == transport
            for n, size in enumerate(SIZES):
                data, buf = pattern(size, n), bytearray(size + 3)
                received, _ = await asyncio.gather(b.recv(buf, n), a.send(data, n))
                assert received == (size, n) and received.endpoint is b
                assert buf[:size] == data and buf[size:] == b"\0\0\0"

    run(main())


def test_an_address_may_be_a_pair_as_sockets_take_it():
    async def main():
        async with ropeway.listen(("127.0.0.1", 0)) as listener:
            a = await ropeway.connect(("127.0.0.1", listener.port))
            b = await listener.accept()
            buf = bytearray(4)
            await asyncio.gather(b.recv(buf, 1), a.send(b"pair", 1))
            assert buf == b"pair"
            a.close()
            b.close()
        for wrong in (7, b"127.0.0.1:1", ("127.0.0.1",), (1, 2), None):
            with pytest.raises(TypeError, match=r'"host:port" or \(host, port\)'):
                await ropeway.connect(wrong)
        with pytest.raises(ropeway.Error, match=r"\[::1\]:1\b") as caught:
            await ropeway.connect(("::1", 1), retry=False, timeout=5)
        assert f"{caught.type.__module__}.{caught.type.__name__}" == "ropeway.Error"

    run(main())


def test_tags_and_masks_choose(transport):
    async def main():
        async with pair() as (a, b):
            bufs = [bytearray(8) for _ in range(3)]
            exact, low, other = b.recv(bufs[0], 5), b.recv(bufs[1], 7, 0xFF), b.recv(bufs[2], 2**64 - 1)
            for tag, data in ((2**64 - 1, b"top"), (0x1207, b"masked"), (5, b"five")):
                await a.send(data, tag)
            assert await exact == (4, 5) and bufs[0][:4] == b"five"
            assert (await low).tag == 0x1207 and bufs[1][:6] == b"masked"
            assert await other == (3, 2**64 - 1)

    run(main())


def test_messages_of_one_tag_keep_their_order(transport):
    async def main():
        async with pair() as (a, b):
            data = [pattern(k * 37 % 5000, k) for k in range(300)]
            sends = [a.send(d, 3) for d in data]
            for d in data:
                buf = bytearray(5000)
                assert (await b.recv(buf, 3)).length == len(d) and buf[: len(d)] == d
            await asyncio.gather(*sends)

    run(main())


def test_a_message_longer_than_its_buffer_is_an_error_with_its_length(transport):
    async def main():
        async with pair() as (a, b):
            for size in (100, 300_000):
                buf = bytearray(10)
                op = b.recv(buf, 1)
                s = a.send(pattern(size, size), 1)
                with pytest.raises(Error) as e:
                    await op
                assert e.value.status == Status.TRUNCATED and e.value.length == size
                assert str(size) in e.value.sentence and e.value.peer
                assert bytes(buf) == pattern(size, size)[:10]
                await s

    run(main())


def test_probe_leaves_the_message(transport):
    async def main():
        async with pair() as (a, b):
            assert b.probe(4) is None
            await a.send(b"there", 4)
            while not (found := b.probe(4)):
                await asyncio.sleep(0)
            assert found == (5, 4) and b.probe(4) == found and b.probe(5) is None
            assert b.context.probe(4).endpoint is b
            await b.recv(bytearray(5), 4)
            assert b.probe(4) is None

    run(main())


def test_receives_from_any_endpoint(transport):
    async def main():
        c = ropeway.context()
        async with pair() as (a, b), pair() as (x, y):
            buf = bytearray(8)
            for sender, receiver in ((a, b), (x, y), (b, a)):
                op = c.recv(buf, 6)
                await sender.send(b"who", 6)
                assert (await op).endpoint is receiver
            op = c.recv_obj()
            s = a.send_obj(b"object")
            assert await op == b"object" and op.received.endpoint is b
            await s

    run(main())


def test_objects(transport):
    async def main():
        async with pair() as (a, b):
            for n, size in enumerate(SIZES):
                data = pattern(size, n)
                got, _ = await asyncio.gather(b.recv_obj(), a.send_obj(data))
                assert type(got) is bytearray and got == data
            sent = np.arange(1000, dtype=np.float64)
            got, _ = await asyncio.gather(
                b.recv_obj(lambda n: np.empty(n // 8, np.float64)), a.send_obj(sent)
            )
            assert got.dtype == np.float64 and (got == sent).all()

    run(main())


def test_an_allocator_that_refuses_is_told_on_both_sides(transport):
    async def main():
        async with pair() as (a, b):
            def no(size):
                raise MemoryError(f"not {size}")

            for size in (10, 1_000_000):
                s = a.send_obj(pattern(size))
                with pytest.raises(MemoryError, match=f"not {size}"):
                    await b.recv_obj(no)
                with pytest.raises(Error) as e:
                    await s
                assert e.value.status == Status.NO_MEMORY
            s = a.send_obj(b"12345678")
            with pytest.raises(ValueError, match="asked for 8 bytes, and gave a buffer of 7"):
                await b.recv_obj(lambda n: bytearray(n - 1))
            with pytest.raises(Error):
                await s
            s = a.send_obj(b"12345678")
            with pytest.raises(BufferError, match="read-only"):
                await b.recv_obj(bytes)
            with pytest.raises(Error):
                await s
            got, _ = await asyncio.gather(b.recv_obj(), a.send_obj(b"still works"))
            assert got == b"still works"

    run(main())


def test_many_at_once(transport):
    async def main():
        async with pair() as (a, b):
            data = [pattern(n * 11 % 300, n) for n in range(1000)]
            bufs = [bytearray(300) for _ in data]
            tags = list(range(len(data)))
            got, none = await asyncio.gather(b.recv_many(bufs, tags), a.send_many(data, tags))
            assert none is None
            for n, d in enumerate(data):
                assert got[n] == (len(d), n) and got[n].endpoint is b and bufs[n][: len(d)] == d
            assert await b.recv_many([]) == []
            with pytest.raises(ValueError, match="2 buffers, and 1 tags"):
                b.recv_many([bytearray(1), bytearray(1)], [1])
            op = b.recv_many([bytearray(3), bytearray(9)], 1)
            await a.send_many([b"12345", b"67890"], 1)
            with pytest.raises(Error) as e:
                await op
            assert e.value.status == Status.TRUNCATED and e.value.length == 5

    run(main())


def test_active_messages(transport):
    async def main():
        c = ropeway.context()
        got, done = [], asyncio.Event()
        data = [(pattern(n * 7 % 256, n), pattern(s, n)) for n, s in enumerate([0, 1, 4096, 4097, 300_000] * 4)]

        async with pair() as (a, b):
            def handler(ep, header, body):
                assert ep is b and type(header) is bytes
                assert type(body) is (bytes if len(body) <= 4096 else memoryview)
                got.append((header, body))
                if len(got) == len(data):
                    done.set()

            c.on_am(200, handler)
            for header, body in data:
                await a.am_send(200, body, header)
            await a.am_send(201, b"nobody takes it")
            await done.wait()
            assert [(h, bytes(d)) for h, d in got] == data
            c.on_am(200, None)
            await a.am_send(200, b"dropped")
            await a.flush()
            assert len(got) == len(data)
            with pytest.raises(Error):
                await a.am_send(256, b"")
            with pytest.raises(Error):
                await a.am_send(1, b"", header=bytes(257))
            with pytest.raises(Error):
                c.on_am(256, print)

    run(main())


def test_a_handler_may_close_and_post(transport):
    async def main():
        c = ropeway.context()
        told = asyncio.Event()
        async with pair() as (a, b):
            def answer(ep, header, data):
                ep.send(data, 9)

            def close(ep, header, data):
                ep.close()

            c.on_am(1, answer)
            c.on_am(2, close)
            buf = bytearray(4)
            op = a.recv(buf, 9)
            await a.am_send(1, b"echo")
            assert await op == (4, 9) and buf == b"echo"
            a.on_close(lambda status, sentence: told.set())
            await a.am_send(2, b"")
            await told.wait()
            assert b.closed and a.closed
        c.on_am(1, None)
        c.on_am(2, None)

    run(main())


def test_a_handler_that_fails_is_told_to_the_loop(transport):
    async def main():
        told = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, what: told.append(what))
        c = ropeway.context()
        async with pair() as (a, b):
            c.on_am(1, lambda *x: 1 / 0)
            await a.am_send(1, b"")
            while not told:
                await asyncio.sleep(0.001)
            assert isinstance(told[0]["exception"], ZeroDivisionError)
            await a.send(b"goes on", 1)
            assert (await b.recv(bytearray(7), 1)).length == 7

    run(main())


def test_the_path_and_why(transport):
    async def main():
        async with pair() as (a, b):
            i, j = a.info(), b.info()
            assert i.transport == j.transport == transport
            assert i.why and i.path and i.peer and i.connected and i.status == Status.OK
            assert i.eager_bytes_max > 0
            expected = {"shm": ropeway.Protection.KERNEL}.get(transport, ropeway.Protection.NONE)
            assert i.protection == expected
            assert a.message_tag == b.peer_message_tag != 0
            assert a.control_tag == b.peer_control_tag != a.message_tag
            s = a.context.statistics()
            assert s.endpoints == 2 and s.sent == 0
            await a.send(b"12345", 1)
            await b.recv(bytearray(5), 1)
            s = a.context.statistics()
            assert (s.sent, s.received, s.bytes_sent, s.bytes_received) == (1, 1, 5, 5)

    run(main())


def test_messages_of_every_type_at_once(transport):
    """What runs at the same time does not disturb each other."""

    async def main():
        async with pair() as (a, b):
            m = b.context.memory.allocate(1 << 20)
            key = a.unpack(m.rkey())

            async def tagged(x, y, tag):
                for n in range(40):
                    data, buf = pattern(n * 997, tag + n), bytearray(n * 997)
                    await asyncio.gather(y.recv(buf, tag), x.send(data, tag))
                    assert buf == data

            async def objects():
                for n in range(40):
                    data = pattern(n * 1009, n)
                    got, _ = await asyncio.gather(b.recv_obj(), a.send_obj(data))
                    assert got == data

            async def remote():
                for n in range(40):
                    data, back = pattern(n * 500, n), bytearray(n * 500)
                    await a.put(key, n * 8, data)
                    await a.flush()
                    await a.get(key, n * 8, back)
                    assert back == data

            await asyncio.gather(tagged(a, b, 1), tagged(b, a, 2), objects(), remote())
            m.close()

    run(main())


@given(data=st.binary(max_size=70_000), tag=st.integers(0, 2**64 - 1), extra=st.integers(0, 9))
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_bytes_and_any_tag(transport, data, tag, extra):
    async def main():
        async with pair() as (a, b):
            buf = bytearray(len(data) + extra)
            got, _ = await asyncio.gather(b.recv(buf, tag), a.send(data, tag))
            assert got == (len(data), tag) and buf[: len(data)] == data

    run(main())


@given(
    messages=st.lists(st.tuples(st.integers(0, 3), st.binary(max_size=300)), max_size=30),
    mask=st.sampled_from([0, 1, 2, 3, 2**64 - 1]),
)
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_tags_and_masks_as_a_model_says(transport, messages, mask):
    """Of the messages that match, the one that was sent first."""

    async def main():
        async with pair() as (a, b):
            for tag, data in messages:
                await a.send(data, tag)
            await a.flush()
            left = list(messages)
            for want in (1, 2, 0, 3) * 8:
                expected = next((m for m in left if (m[0] ^ want) & mask == 0), None)
                if expected is None:
                    assert b.probe(want, mask) is None
                    continue
                left.remove(expected)
                buf = bytearray(300)
                got = await b.recv(buf, want, mask)
                assert (got.tag, bytes(buf[: got.length])) == expected

    run(main())
