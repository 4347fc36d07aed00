# SPDX-License-Identifier: BSD-3-Clause
"""Messages of ucp: buffers of all kinds, tags, objects, active messages, counts."""

import array
import asyncio
import mmap
import pickle

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ucp_helpers import Peer, close, pair, payload, run, soon


@pytest.mark.parametrize("size", [0, 1, 8, 1000, 65536, 1 << 20, (1 << 24) + 3])
def test_bytes_come_back_as_they_went(ucp, address, size):
    async def main():
        here, there, listener = await pair(ucp, address)
        sent, got = payload(size, size), bytearray(size)
        assert await here.send(sent) is True
        await there.recv(got)
        assert got == sent
        back = bytearray(size)
        receiving = asyncio.create_task(here.recv(back))
        await asyncio.sleep(0)
        await there.send(got)
        await receiving
        assert back == sent
        await close(here, there, listener)

    async def large():
        here, there, listener = await pair(ucp, address)
        sent, got = payload(size, size), bytearray(size)
        await asyncio.gather(here.send(sent), there.recv(got))
        assert got == sent
        await close(here, there, listener)

    run(main() if size <= 8192 else large())


@pytest.mark.parametrize("dtype", ["u1", "<i8", "f8", ">f4", "c16", "?"])
@pytest.mark.parametrize("shape", [(), (7,), (3, 5), (64, 32, 16)])
def test_numpy_arrays_go_without_a_copy(ucp, address, dtype, shape):
    async def main():
        here, there, listener = await pair(ucp, address)
        sent = np.random.default_rng(7).integers(0, 2, shape).astype(dtype)
        got = np.empty_like(sent)
        await asyncio.gather(here.send(sent), there.recv(got))
        np.testing.assert_array_equal(got, sent)
        await close(here, there, listener)

    run(main())


def test_other_buffers(ucp, address):
    async def main():
        here, there, listener = await pair(ucp, address)
        data = payload(3, 4096)
        mapped = mmap.mmap(-1, 4096)
        mapped[:] = data
        for sent in (data, bytearray(data), memoryview(data), array.array("d", data), mapped):
            for got in (bytearray(4096), array.array("I", bytes(4096)), mmap.mmap(-1, 4096)):
                await asyncio.gather(here.send(sent), there.recv(got))
                assert bytes(memoryview(got).cast("B")) == data
        columns = np.asfortranarray(np.frombuffer(data, "u1").reshape(64, 64))
        got = np.zeros_like(columns)
        await asyncio.gather(here.send(columns), there.recv(got))
        np.testing.assert_array_equal(got, columns)
        await close(here, there, listener)

    run(main())


def test_what_is_no_buffer_is_refused_and_harms_nothing(ucp, address):
    async def main():
        here, there, listener = await pair(ucp, address)
        gaps = np.zeros((8, 8))[:, ::2]
        with pytest.raises(ValueError, match="contiguous"):
            await here.send(gaps)
        with pytest.raises(ValueError, match="contiguous"):
            await there.recv(gaps)
        with pytest.raises(ValueError, match="readonly"):
            await there.recv(b"constant")
        with pytest.raises(TypeError):
            await here.send("text")
        with pytest.raises(ValueError, match="nbytes"):
            await here.send(b"abc", nbytes=4)
        got = bytearray(3)
        await asyncio.gather(here.send(b"abc"), there.recv(got))
        assert got == b"abc"
        await close(here, there, listener)

    run(main())


def test_nbytes_of_older_programs(ucp, address):
    async def main():
        here, there, listener = await pair(ucp, address)
        got = bytearray(b"-" * 10)
        await asyncio.gather(here.send(payload(1, 10), nbytes=4), there.recv(got, nbytes=4))
        assert got == payload(1, 10)[:4] + b"-" * 6
        await close(here, there, listener)

    run(main())


def test_order_and_tags(ucp, address):
    """Messages of a tag keep their order; each tag is received when it is asked for."""

    async def main():
        here, there, listener = await pair(ucp, address)
        tags = [None, 0, 1, 2**40, -5, "word", b"bytes", (1, "pair"), np.int64(9), 2.5, True]
        for tag in tags:
            for n in range(3):
                await here.send(payload((repr(tag), n).__repr__(), 100), tag=tag)
        for tag in reversed(tags):
            if tag is True:
                continue
            for n in range(3):
                got = bytearray(100)
                # True and 1 are one integer: what was sent with True comes after.
                await there.recv(got, tag=tag)
                assert got == payload((repr(tag), n).__repr__(), 100), tag
        for n in range(3):
            got = bytearray(100)
            await there.recv(got, tag=1)
            assert got == payload((repr(True), n).__repr__(), 100)
        await close(here, there, listener)

    run(main())


def test_a_tag_is_of_one_connection_and_a_forced_one_of_all(ucp, address):
    async def main():
        one, one_there, listener = await pair(ucp, address)
        two, two_there, other = await pair(ucp, address)
        got = [bytearray(4), bytearray(4)]
        first = asyncio.create_task(one_there.recv(got[0], tag=5))
        await asyncio.sleep(0.02)
        await two.send(b"two.", tag=5)
        await asyncio.sleep(0.05)
        assert not first.done()
        await one.send(b"one.", tag=5)
        await first
        await two_there.recv(got[1], tag=5)
        assert got == [b"one.", b"two."]
        anywhere = asyncio.create_task(ucp.recv(got[0], tag=77))
        await two.send(b"any.", tag=77, force_tag=True)
        await anywhere
        assert got[0] == b"any."
        await close(one, two, one_there, two_there, listener, other)

    run(main())


def test_tags_are_hashed_as_upstream_does_and_alike_everywhere(ucp, transport):
    from ucp.utils import hash64bits

    import hashlib

    for args in [(), (1,), ("a", b"b"), (2**64 - 1, 5)]:
        assert hash64bits(*args) == int(hashlib.sha1(repr(args).encode()).hexdigest()[:16], 16)

    async def main():
        with Peer("echo.py", "serve", PYTHONHASHSEED="1") as peer:
            port = int(await peer.next_line())
            ep = await ucp.create_endpoint("127.0.0.1", port)
            for tag in ("a word", ("a", 1), 12345678901234567890):
                got = bytearray(32)
                peer.say(repr(tag))
                await ep.send(payload(str(tag), 32), tag=tag)
                await ep.recv(got, tag=tag)
                assert got == payload(str(tag), 32)
            peer.say("end")
            await ep.close()
            assert await asyncio.to_thread(peer.end) == 0

    run(main())


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    messages=st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 8192), st.booleans()), min_size=1, max_size=20
    )
)
def test_any_messages_with_any_tags(ucp, address, messages):
    async def main():
        here, there, listener = await pair(ucp, address)
        tasks = []
        for number, (tag, size, early) in enumerate(messages):
            got = bytearray(size)
            if early:
                tasks.append((asyncio.create_task(there.recv(got, tag=tag)), got, number, size))
        # Receives that were posted first take the first messages of their tag.
        order = {}
        for number, (tag, size, early) in enumerate(messages):
            order.setdefault(tag, []).append((not early, number))
        await asyncio.sleep(0)
        for tag, numbers in order.items():
            for _, number in sorted(numbers):
                await here.send(payload(number, messages[number][1]), tag=tag)
        for number, (tag, size, early) in enumerate(messages):
            if not early:
                got = bytearray(size)
                await there.recv(got, tag=tag)
                assert got == payload(number, size)
        for task, got, number, size in tasks:
            await task
            assert got == payload(number, size)
        await close(here, there, listener)

    run(main())


def test_objects(ucp, address):
    async def main():
        here, there, listener = await pair(ucp, address)
        thing = {"a": list(range(1000)), "b": payload(5, 300000)}
        for tag in (None, "objects"):
            sending = asyncio.create_task(here.send_obj(pickle.dumps(thing), tag=tag))
            assert pickle.loads(await there.recv_obj(tag=tag)) == thing
            await sending
        sizes = []

        def allocator(n):
            sizes.append(n)
            return np.zeros(n, "u1")

        await here.send_obj(np.arange(10))
        got = await there.recv_obj(allocator=allocator)
        assert sizes == [80] and isinstance(got, np.ndarray)
        np.testing.assert_array_equal(got.view(np.int64), np.arange(10))
        await here.send_obj(b"")
        assert await there.recv_obj() == bytearray()
        # An object is 8 bytes with its size, then its bytes: plain messages.
        await here.send_obj(b"abc")
        size, got = np.zeros(1, np.uint64), bytearray(3)
        await there.recv(size)
        await there.recv(got)
        assert (size[0], got) == (3, b"abc")
        await close(here, there, listener)

    run(main())


@pytest.mark.parametrize("size", [0, 1, 4096, 65536, 65537, 5_000_000])
def test_active_messages(ucp, address, size):
    async def main():
        here, there, listener = await pair(ucp, address)
        sent = payload(size, size)
        waiting = asyncio.create_task(there.am_recv())
        await asyncio.sleep(0.01)
        await here.am_send(sent)
        got = await waiting
        assert type(got) is bytearray and got == sent
        # Small and large ones keep their order, whether anybody waits or not.
        sending = [asyncio.create_task(here.am_send(payload(n, n * 30000))) for n in range(6)]
        for n in range(6):
            assert await there.am_recv() == payload(n, n * 30000)
        await asyncio.gather(*sending)
        ucp.register_am_allocator(lambda n: np.empty(n, "u1"), "host")
        await here.am_send(np.frombuffer(sent, "u1"))
        got = await there.am_recv()
        assert isinstance(got, np.ndarray) and got.tobytes() == sent
        await close(here, there, listener)

    run(main())


def test_an_allocator_that_fails_is_an_error_of_one_message(ucp, address):
    async def main():
        here, there, listener = await pair(ucp, address)

        def refuse(n):
            raise MemoryError("none left")

        ucp.register_am_allocator(refuse, "host")
        await here.am_send(b"first")
        with pytest.raises(ucp.UCXError, match="none left"):
            await there.am_recv()
        ucp.register_am_allocator(bytearray, "host")
        await here.am_send(b"second")
        assert await there.am_recv() == b"second"
        with pytest.raises(ucp.UCXError):
            ucp.register_am_allocator(bytearray, "disk")
        await close(here, there, listener)

    run(main())


def test_close_after_n_recv(ucp, address):
    async def main():
        here, there, listener = await pair(ucp, address)
        with pytest.raises(ucp.UCXError, match="cannot be less than"):
            there.close_after_n_recv(-1, count_from_ep_creation=True)
        there.close_after_n_recv(3)
        with pytest.raises(ucp.UCXError, match="has already been set to: 3"):
            there.close_after_n_recv(5)
        for n in range(3):
            await here.send(bytes([n]))
        for n in range(3):
            assert not there.closed()
            got = bytearray(1)
            await there.recv(got)
            assert got[0] == n
        assert there.closed()
        await soon(here.closed)
        here.abort()
        here, there, other = await pair(ucp, address)
        there.close_after_n_recv(0)
        assert there.closed()
        await close(here, listener, other)

    run(main())


def test_a_cancelled_receive_gives_its_message_to_the_next(ucp, address):
    async def main():
        here, there, listener = await pair(ucp, address)
        for how in ("recv", "am"):
            lost = bytearray(b"untouched")
            task = asyncio.create_task(there.recv(lost) if how == "recv" else there.am_recv())
            await asyncio.sleep(0.02)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            with pytest.raises(TimeoutError):
                waiting = there.recv(lost) if how == "recv" else there.am_recv()
                await asyncio.wait_for(waiting, 0.02)
            if how == "recv":
                await here.send(b"ninebytes")
                got = bytearray(9)
                await there.recv(got)
            else:
                await here.am_send(b"ninebytes")
                got = await there.am_recv()
            assert (got, lost) == (b"ninebytes", b"untouched")
        await close(here, there, listener)

    run(main())


def test_many_clients_of_many_servers(ucp, address):
    async def main():
        async def echo(ep):
            got = bytearray(1000)
            await ep.recv(got)
            await ep.send(got)
            await ep.close()

        listeners = [ucp.create_listener(echo) for _ in range(3)]

        async def client(n):
            ep = await ucp.create_endpoint(address, listeners[n % 3].port)
            got = bytearray(1000)
            await ep.send(payload(n, 1000))
            await ep.recv(got)
            assert got == payload(n, 1000)
            await ep.close()

        await asyncio.gather(*map(client, range(60)))
        for listener in listeners:
            listener.close()

    run(main())


def test_a_thousand_receives_in_flight(ucp, address):
    async def main():
        here, there, listener = await pair(ucp, address)
        got = [bytearray(64) for _ in range(1000)]
        tasks = [asyncio.create_task(there.recv(b, tag=n)) for n, b in enumerate(got)]
        await asyncio.sleep(0)
        for n in reversed(range(1000)):
            await here.send(payload(n, 64), tag=n)
        await asyncio.gather(*tasks)
        assert all(got[n] == payload(n, 64) for n in range(1000))
        await close(here, there, listener)

    run(main())


def test_small_sends_are_done_at_once_though_nobody_receives(ucp, address):
    """As UCX-Py's: up to RNDV_THRESH. Their buffers can be used again; all arrive, in order."""

    async def main():
        here, there, listener = await pair(ucp, address)
        buffer = bytearray(8192)
        for n in range(300):
            buffer[:] = payload(n, 8192)
            await asyncio.wait_for(here.send(buffer), 10)
        for n in range(300):
            got = bytearray(8192)
            await there.recv(got)
            assert got == payload(n, 8192)
        large = asyncio.ensure_future(here.send(bytes(1 << 20)))
        await asyncio.sleep(0.05)
        assert not large.done()
        await there.recv(bytearray(1 << 20))
        await large
        await close(here, there, listener)

    run(main())


def test_flush_and_fence(ucp, address):
    async def main():
        await ucp.flush()
        ucp.fence()
        here, there, listener = await pair(ucp, address)
        got = bytearray(100)
        await here.send(payload(1, 100))
        await here.flush()
        await there.recv(got)
        await ucp.flush()
        ucp.fence()
        assert got == payload(1, 100)
        await close(here, there, listener)

    run(main())


def test_an_endpoint_says_which_path_it_took(ucp, address, transport):
    async def main():
        here, there, listener = await pair(ucp, address)
        assert f"path: {transport}:" in here.ucx_info()
        assert ucp.get_active_transports() == {{"shm": "posix", "tcp": "tcp"}[transport]}
        assert here.uid != there.uid and here.get_ucp_endpoint() == here.uid
        assert here.get_ucp_worker() == ucp.get_ucp_worker()
        assert hex(here.uid)[2:] in ucp.get_ucp_worker_info()
        assert isinstance(here.cuda_support(), bool)
        await close(here, there, listener)

    run(main())
