# SPDX-License-Identifier: BSD-3-Clause
"""Nothing is left behind: references under a debug interpreter, blocks under any, and Python's own
guards around its memory."""

import os
import re
import shutil
import subprocess
import sys

import pytest
import ropeway
from helpers import HERE, SEED

WORK = r"""
import asyncio, contextlib, gc, sys
import ropeway
from ropeway import Error

async def round(messages):
    c = ropeway.context()
    loop = asyncio.get_running_loop()
    async with ropeway.listen() as listener:
        a, b = await asyncio.gather(ropeway.connect(listener.address), listener.accept())
    got = []
    c.on_am(1, lambda ep, header, data: got.append(len(data)))
    c.on_notify(lambda ep, data, length: got.append(length))
    b.on_close(lambda status, sentence: None)
    m = c.memory.allocate(65536)
    r = c.memory.register(bytearray(4096))
    key, other = a.unpack(m.rkey()), a.unpack(r.rkey())
    buf, big, target = bytearray(8), bytes(range(256)) * 400, bytearray(102400)
    n = 0
    while n < messages:
        await a.send(b"12345678", 1)
        await b.recv(buf, 1)
        op = b.recv(buf, 2)
        await asyncio.sleep(0)
        await a.send(b"12345678", 2)
        received = await asyncio.wait_for(op, 20)
        assert received == (8, 2) and received.endpoint is b and "done" in repr(op)
        await asyncio.gather(b.recv(target, 3), a.send(big, 3))
        assert target == big
        await asyncio.gather(b.recv_obj(), a.send_obj(big))
        await asyncio.gather(b.recv_many([bytearray(8) for _ in range(50)], 4), a.send_many([b"1"] * 50, 4))
        await a.am_send(1, big, b"header")
        await a.am_send(1, b"short")
        await a.put(key, 0, big[:60000])
        await a.put_notify(key, 0, b"x", 5)
        await a.get(other, 0, target[:100] and bytearray(100))
        await a.fetch_add(key, 0, 1)
        op = b.recv(buf, 5)
        op.add_done_callback(got.append)
        op.cancel("for a reason")
        with contextlib.suppress(asyncio.CancelledError):
            await op
        op = b.recv(bytearray(2), 6)
        await a.send(b"too long", 6)
        try:
            await op
        except Error as e:
            assert e.length == 8
        op = b.recv_obj(lambda size: 1 / 0)
        s = a.send_obj(b"refused")
        with contextlib.suppress(ZeroDivisionError):
            await op
        with contextlib.suppress(Error):
            await s
        for wrong in (lambda: b.recv(b"", 1), lambda: a.send(None), lambda: a.send(b"", -1),
                lambda: a.unpack(b"x"), lambda: b.put(key, 0, b"")):
            try:
                wrong()
            except (BufferError, TypeError, OverflowError, ValueError, Error):
                pass
        assert b.probe(9) is None and a.info().connected and c.statistics().endpoints == 2
        await a.flush()
        got.clear()
        n += 60
    m.close(); r.close()
    del key, other
    dangling = [b.recv(buf, 7), b.recv_obj(), b.recv_many([buf] * 3, 8)]
    await a.shutdown()
    a.close()
    for op in dangling:
        with contextlib.suppress(Error):
            await op
    b.close()
    c.on_am(1, None)
    c.on_notify(None)
    if messages & 1:
        c.close()

def work(messages):
    asyncio.run(round(messages))
    gc.collect()

def block():
    with ropeway.blocking.Context() as s, ropeway.blocking.Context() as c, s.listen() as l:
        ep, done = c._connect(l.address)
        while not done.done():
            s.progress(); c.progress()
        c.close()
        with contextlib.suppress(Error):
            l.accept(0.01).recv(bytearray(1), 1, timeout=5)

count = getattr(sys, "gettotalrefcount", None) or sys.getallocatedblocks
times, messages = int(sys.argv[1]), int(sys.argv[2])
for _ in range(3):
    work(300); work(301); block()
gc.collect()
before = count()
for k in range(times):
    work(messages + (k & 1)); block()
gc.collect()
print(count() - before)
"""


def work(python, times, messages, env=None, timeout=300):
    full = dict(os.environ)
    full.update(env or {})
    r = subprocess.run(
        [*python, "-c", WORK, str(times), str(messages)],
        capture_output=True,
        text=True,
        timeout=timeout,
        env=full,
    )
    assert r.returncode == 0, (r.returncode, r.stderr[-3000:], f"seed {SEED}")
    # With -X dev asyncio warns of callbacks that took 0.1 s: that is the machine's load.
    warned = re.sub(r"(?m)^Executing .* took \d+\.\d+ seconds$", "", r.stderr)
    assert not warned.strip(), warned[-3000:]
    return int(r.stdout)


@pytest.mark.timeout(300)
def test_a_debug_interpreter_counts_no_reference_after_100000_messages(transport, tmp_path):
    debug = shutil.which("python3-dbg") or shutil.which("python3d")
    if not debug:
        pytest.skip("no debug interpreter here (Debian: python3-dbg)")
    core = os.environ.get("ROPEWAY_TEST_DEBUG_CORE")
    if not core:
        pytest.skip("ROPEWAY_TEST_DEBUG_CORE names no extension that tells a debug interpreter")
    # The package, with an extension that counts; else it is the same code.
    here = os.path.dirname(ropeway.__file__)
    libs = os.path.join(os.path.dirname(here), "ropeway.libs")
    if os.path.isdir(libs):
        (tmp_path / "ropeway.libs").symlink_to(libs)
    (tmp_path / "ropeway").mkdir()
    for name in os.listdir(here):
        source = core if name == "_core.abi3.so" else os.path.join(here, name)
        (tmp_path / "ropeway" / name).symlink_to(source)
    left = work([debug, "-B"], 5, 20_000 if transport == "shm" else 4_000, {"PYTHONPATH": str(tmp_path)})
    print(f"{left} references left")
    assert left < 20


def test_no_block_is_left_for_each_message(transport):
    left = work([sys.executable], 10, 3_000)
    print(f"{left} blocks left")
    # the interpreter's free lists come and go; one for each kind of message would be 15,000
    assert left < 2500


def test_pythonmalloc_debug(transport):
    work([sys.executable, "-X", "dev"], 2, 600, {"PYTHONMALLOC": "debug", "PYTHONASYNCIODEBUG": ""})


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_suite_under_pythonmalloc_debug():
    r = subprocess.run(
        [sys.executable, "-B", "-m", "pytest", "-q", "-x", "-c", os.path.join(HERE, "pytest.ini")]
        + ["--rootdir", os.path.dirname(os.path.dirname(HERE))]
        + [os.path.join(HERE, "ropeway", f) for f in ("test_messages.py", "test_memory.py", "test_lifetime.py")],
        env=dict(os.environ, PYTHONMALLOC="debug"),
        capture_output=True,
        text=True,
        timeout=850,
    )
    assert r.returncode == 0, r.stdout[-3000:]
