# SPDX-License-Identifier: BSD-3-Clause
"""init, reset, loops and threads, options, the environment, the log."""

import asyncio
import gc
import logging
import os
import re
import subprocess
import sys
import textwrap
import threading

import pytest
from ucp_helpers import Peer, close, collect, descriptors, pair, payload, run, soon, threads


def python(text, **environment):
    """Runs a program: its completed process."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text)],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environment},
    )


async def exchange(ucp, address, seed):
    """Connects, sends a payload each way, closes."""
    here, there, listener = await pair(ucp, address)
    for a, b in ((here, there), (there, here)):
        got = bytearray(5000)
        await asyncio.gather(a.send(payload(seed, 5000)), b.recv(got))
        assert got == payload(seed, 5000)
    await close(here, there, listener)


# ---- init and reset ----


def test_init_twice(ucp):
    ucp.init()
    with pytest.raises(RuntimeError, match="already initiated"):
        ucp.init()
    ucp.reset()
    ucp.init({"TLS": "tcp"}, blocking_progress_mode=True, connect_timeout=3)
    assert ucp.core._ctx.connect_timeout == 3 and ucp.get_config()["TLS"] == "tcp"


def test_init_after_use(ucp, address):
    async def main():
        await exchange(ucp, address, 1)
        with pytest.raises(RuntimeError):
            ucp.init()

    run(main())


@pytest.mark.parametrize("what", ["listener", "endpoint"])
@pytest.mark.parametrize("error", ["RuntimeError", "UCXError"])
def test_reset_while_something_lives(ucp, address, what, error):
    error = RuntimeError if error == "RuntimeError" else ucp.UCXError

    async def main():
        here, there, listener = await pair(ucp, address)
        if what == "listener":
            await close(here, there)
        else:
            listener.close()
            there.abort()
        with pytest.raises(error, match="not all Endpoints and/or Listeners are closed"):
            ucp.reset()
        # Nothing has changed: what is there goes on, and can still be closed.
        if what == "listener":
            again = await ucp.create_endpoint(address, listener.port)
            await again.close()
            listener.close()
            await asyncio.sleep(0.01)
        else:
            here.abort()
        collect()
        ucp.reset()

    run(main())


def test_reset_after_the_last_reference_has_gone(ucp, address):
    async def main():
        here, there, listener = await pair(ucp, address)
        ring = [here, there, listener]
        ring.append(ring)
        del here, there, listener, ring
        ucp.reset()
        assert ucp.core._ctx is None
        await exchange(ucp, address, 2)

    run(main())


def test_reset_in_a_listeners_callback(ucp, address):
    async def main():
        done = []

        def serve(ep):
            nonlocal listener
            ep.abort()
            listener = None
            ucp.reset()
            done.append(ucp.core._ctx is None)

        listener = ucp.create_listener(serve)
        with Peer("side.py", f"client:{listener.port}", "wait"):
            await soon(lambda: done)
        assert done == [True]
        await exchange(ucp, address, 3)

    run(main())


def test_a_hundred_resets_leave_no_descriptor_and_no_thread(ucp, address):
    async def main(n):
        await exchange(ucp, address, n)

    for n in range(3):
        run(main(n))
        ucp.reset()
    collect()
    before = descriptors(), threads()
    for n in range(100):
        run(main(n))
        ucp.reset()
    collect()
    assert (descriptors(), threads()) == before


def test_calls_that_do_not_initiate(ucp):
    assert ucp.get_ucx_version() >= (1, 12, 0) and len(ucp.get_ucx_version()) == 3
    assert ucp.get_config()["TLS"] == "all"
    ucp.fence()
    assert ucp.core._ctx is None
    assert isinstance(ucp.__version__, str) and isinstance(ucp.__git_commit__, str)
    assert re.fullmatch(r"\d+\.\d+\.\d+", ucp.__ucx_version__)


# ---- loops ----


def test_loops_one_after_the_other(ucp, address):
    for n in range(5):
        run(exchange(ucp, address, n))


def test_an_endpoint_outlives_its_loop(ucp, address):
    """One worker for all loops of a thread: what the first has connected the second uses."""
    kept = []

    async def first():
        kept.extend(await pair(ucp, address))
        await kept[0].send(payload(1, 3000))

    async def second():
        got = bytearray(3000)
        await kept[1].recv(got)
        assert got == payload(1, 3000)
        again = asyncio.ensure_future(kept[0].recv(got))
        await asyncio.sleep(0)
        await kept[1].send(payload(2, 3000))
        await again
        assert got == payload(2, 3000)
        await close(*kept)

    run(first())
    run(second())


def test_a_listener_that_was_made_before_the_loop(ucp, address):
    async def serve(ep):
        got = bytearray(4)
        await ep.recv(got)
        await ep.send(got[::-1])
        await ep.close()

    listener = ucp.create_listener(serve)
    assert listener.port > 0 and listener.ip == "0.0.0.0"

    async def main():
        ep = await ucp.create_endpoint(address, listener.port)
        await ep.send(b"abcd")
        got = bytearray(4)
        await ep.recv(got)
        assert got == b"dcba"
        await ep.close()
        listener.close()

    run(main())


def test_loops_in_threads(ucp, address):
    """Each has a worker of its own; they talk to each other, too."""
    failures, listeners, ready = [], [], threading.Barrier(4)

    def work(n):
        async def main():
            async def echo(ep):
                got = bytearray(5000)
                await ep.recv(got)
                await ep.send(got)
                await ep.close()

            listener = ucp.create_listener(echo)
            listeners.append(listener.port)
            await asyncio.to_thread(ready.wait, 30)
            for port in list(listeners):
                ep = await ucp.create_endpoint(address, port)
                got = bytearray(5000)
                await ep.send(payload(n, 5000))
                await ep.recv(got)
                assert got == payload(n, 5000)
                await ep.close()
            await asyncio.to_thread(ready.wait, 30)
            listener.close()

        try:
            run(main())
        except BaseException as error:
            failures.append(error)
            ready.abort()

    workers = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert not failures and not any(w.is_alive() for w in workers)


def test_an_endpoint_of_a_loop_that_runs_elsewhere_is_refused(ucp, address):
    async def main():
        here, there, listener = await pair(ucp, address)

        def elsewhere():
            with pytest.raises(RuntimeError, match="another"):
                asyncio.run(here.send(b"x"))

        await asyncio.to_thread(elsewhere)
        got = bytearray(1)
        await asyncio.gather(here.send(b"y"), there.recv(got))
        assert got == b"y"
        await close(here, there, listener)

    run(main())


def test_the_collector_of_another_thread(ucp, address):
    """Endpoints that another thread drops close all the same."""

    async def main():
        here, there, listener = await pair(ucp, address)
        box = [here]
        del here
        await asyncio.to_thread(box.clear)
        await soon(there.closed)
        with pytest.raises(ucp.exceptions.UCXConnectionReset):
            await there.recv(bytearray(1))
        await close(there, listener)

    run(main())


@pytest.mark.parametrize("how", ["argument", "environment"])
def test_non_blocking_progress(ucp, address, monkeypatch, how):
    if how == "environment":
        monkeypatch.setenv("UCXPY_NON_BLOCKING_MODE", "1")
        ucp.init()
    else:
        ucp.init(blocking_progress_mode=False)
    assert ucp.core._ctx.blocking_progress_mode is False
    run(exchange(ucp, address, 5))


def test_progress_by_hand(ucp, address):
    """Without a loop: ucp.progress() moves things on."""
    ucp.init()
    listener = ucp.create_listener(lambda ep: None)
    for _ in range(10):
        ucp.progress()
    listener.close()


def test_continuous_ucx_progress(ucp):
    async def main():
        ucp.continuous_ucx_progress()
        ucp.continuous_ucx_progress(event_loop=asyncio.get_running_loop())
        assert len(ucp.core._ctx.progress_tasks) == 1

    run(main())


def test_uvloop(ucp, address):
    uvloop = pytest.importorskip("uvloop")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(exchange(ucp, address, 6))


# ---- listeners ----


def test_a_listener_stops_when_it_is_dropped(ucp, address):
    async def main():
        listener = ucp.create_listener(lambda ep: None)
        port = listener.port
        del listener
        gc.collect()
        with pytest.raises(ucp.exceptions.UCXNotConnected):
            await ucp.create_endpoint(address, port)

    run(main())


def test_endpoints_outlive_their_listener(ucp, address):
    async def main():
        here, there, listener = await pair(ucp, address)
        assert not listener.closed()
        listener.close()
        listener.close()
        assert listener.closed()
        got = bytearray(3)
        await asyncio.gather(there.send(b"yes"), here.recv(got))
        assert got == b"yes"
        await close(here, there)

    run(main())


def test_a_plain_function_as_callback(ucp, address):
    async def main():
        seen = []
        listener = ucp.create_listener(seen.append, guarantee_msg_order=True)
        ep = await ucp.create_endpoint(address, listener.port, guarantee_msg_order=False)
        await soon(lambda: seen)
        await close(ep, seen.pop(), listener)

    run(main())


# ---- options ----


def test_options(ucp, monkeypatch):
    monkeypatch.setenv("UCX_SEG_SIZE", "2M")
    assert ucp.get_config()["SEG_SIZE"] == "2M"
    options = {"SEG_SIZE": "3M"}
    ucp.init(options)
    assert ucp.get_config()["SEG_SIZE"] == "3M"
    ucp.reset()
    ucp.init(options, env_takes_precedence=True)
    assert ucp.get_config()["SEG_SIZE"] == "2M" and options == {"SEG_SIZE": "3M"}
    ucp.reset()
    for name, value in {"SEG_SIZE": "large", "RCACHE_ENABLE": "perhaps", "TM_THRESH": "x"}.items():
        with pytest.raises(ucp.exceptions.UCXConfigError, match=name):
            ucp.init({name: value})
    ucp.init({"SOME_OPTION_OF_LATER": "3M"})


@pytest.mark.parametrize(
    "tls, path",
    [
        ("tcp", "tcp"),
        ("sm", "shm"),
        ("posix,self", "shm"),
        ("^sm,ib", "tcp"),
        ("tcp,cuda_copy", "tcp"),
    ],
)
def test_tls_chooses_the_transport(ucp, address, tls, path):
    async def main():
        ucp.init({"TLS": tls})
        here, there, listener = await pair(ucp, address)
        assert f"path: {path}:" in here.ucx_info()
        await close(here, there, listener)

    run(main())


@pytest.mark.parametrize("name, ours", [("rc,ud", "rc_verbs"), ("all", None), ("sm,tcp", None)])
def test_names_of_transports(ucp, name, ours, monkeypatch):
    monkeypatch.delenv("ROPEWAY_TRANSPORT")
    ucp.init({"TLS": name})
    active = ucp.get_active_transports()
    assert active == (
        {ours} if ours else {"all": {"posix", "rc_verbs", "tcp"}}.get(name, {"posix", "tcp"})
    )
    assert "resource" in ucp.get_ucp_context_info()


def test_get_address(ucp, monkeypatch):
    assert ucp.get_address(ifname="lo") == "127.0.0.1"
    monkeypatch.setenv("UCXPY_IFNAME", "lo")
    assert ucp.get_address() == "127.0.0.1"
    with pytest.raises(OSError):
        ucp.get_address(ifname="none0")
    monkeypatch.delenv("UCXPY_IFNAME")
    assert re.fullmatch(r"(\d+\.){3}\d+", ucp.get_address())


# ---- the log ----

LINE = re.compile(r"\[\d{10}\.\d{6}\] \[[^:\]]+:\d+\] UCXPY  (DEBUG|INFO|WARNING) (.*)")


def test_the_log(transport):
    done = python(
        """
        import asyncio, numpy as np, ucp

        async def main():
            async def echo(ep):
                await ep.send_obj(await ep.recv_obj())
                try:
                    await ep.recv(bytearray(1))
                except ucp.UCXCanceled:
                    await ep.close()

            listener = ucp.create_listener(echo)
            ep = await ucp.create_endpoint("127.0.0.1", listener.port)
            await ep.send_obj(np.arange(12, dtype="u1"))
            assert bytes(await ep.recv_obj()) == bytes(range(12))
            await ep.close()
            listener.close()

        asyncio.run(main())
        """,
        UCXPY_LOG_LEVEL="DEBUG",
    )
    assert done.returncode == 0, done.stderr
    lines = [LINE.fullmatch(line) for line in done.stderr.splitlines()]
    ours = [line.group(2) for line in lines if line]
    text = "\n".join(ours)
    tag = "0x[0-9a-f]{16}"
    made = re.search(
        rf"create_endpoint\(\) client: (0x[0-9a-f]+), error handling: True, msg-tag-send: ({tag}), "
        rf"msg-tag-recv: ({tag}), ctrl-tag-send: ({tag}), ctrl-tag-recv: ({tag})",
        text,
    )
    ep, send, recv, control, _ = made.groups()
    for line in (
        f"[Send #000] ep: {ep}, tag: {send}, nbytes: 8, type: <class 'array.array'>",
        f"[Send #001] ep: {ep}, tag: {send}, nbytes: 12, type: <class 'numpy.ndarray'>",
        f"[Recv #000] ep: {ep}, tag: {recv}, nbytes: 8, type: <class 'array.array'>",
        f"[Recv #001] ep: {ep}, tag: {recv}, nbytes: 12, type: <class 'bytearray'>",
        f"[Send shutdown] ep: {ep}, tag: {control}, close_after_n_recv: 2",
        f"Endpoint.abort(): {ep}",
    ):
        assert line in ours, f"{line}\n--\n{text}"
    assert re.search(rf"_listener_handler\(\) server: 0x[0-9a-f]+, .* msg-tag-send: {recv}", text)


def test_the_log_is_quiet_by_default(transport):
    done = python(
        """
        import ucp
        ucp.init()
        ucp.utils.get_ucxpy_logger().warning("once")
        """
    )
    assert done.returncode == 0
    assert [LINE.fullmatch(line).groups() for line in done.stderr.splitlines()] == [
        ("WARNING", "once")
    ]


def test_init_logs_its_options(ucp, caplog):
    logger = logging.getLogger("ucx")
    logger.addHandler(caplog.handler)
    try:
        with caplog.at_level(logging.INFO, logger="ucx"):
            ucp.init({"SEG_SIZE": "3M"})
    finally:
        logger.removeHandler(caplog.handler)
    assert "SEG_SIZE: 3M" in caplog.text


# ---- the package ----


def test_beside_ucx_py_the_import_fails_by_name(tmp_path):
    (tmp_path / "ucx_py_cu12-0.45.0.dist-info").mkdir()
    done = python(
        "import ucp", PYTHONPATH=f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    )
    assert done.returncode == 1
    assert "ImportError: ropeway-ucp and ucx-py-cu12" in done.stderr


def test_the_public_names(ucp):
    for name in (
        "init reset get_ucx_version progress get_config get_address create_listener "
        "create_endpoint create_endpoint_from_worker_address get_worker_address "
        "get_ucx_address_from_buffer recv register_am_allocator get_ucp_worker "
        "get_ucp_context_info get_ucp_worker_info get_active_transports flush fence "
        "continuous_ucx_progress"
    ).split():
        assert getattr(ucp, name).__doc__, name
    e = ucp.exceptions
    for name in (
        "UCXError UCXCloseError UCXCanceled UCXConnectionReset UCXMsgTruncated UCXNotConnected "
        "UCXUnreachable"
    ).split():
        assert issubclass(getattr(e, name), e.UCXBaseException)
    assert issubclass(e.UCXConfigError, e.UCXError) and issubclass(e.UCXWarning, UserWarning)
    for kind in (ucp.Endpoint, ucp.Listener):
        for name, value in vars(kind).items():
            if not name.startswith("_") and callable(value):
                assert value.__doc__, f"{kind.__name__}.{name}"


@pytest.mark.parametrize("end, code", [("return", 0), ("raise KeyError", 1), ("sys.exit(3)", 3)])
def test_the_interpreter_ends_with_traffic_under_way(transport, end, code):
    done = python(
        f"""
        import asyncio, sys, ucp

        async def main():
            async def serve(ep):
                for n in range(1000):
                    await ep.recv(bytearray(1000))

            listener = ucp.create_listener(serve)
            global ep, tasks
            ep = await ucp.create_endpoint("127.0.0.1", listener.port)
            tasks = [asyncio.ensure_future(ep.recv(bytearray(10))) for _ in range(10)]
            tasks += [asyncio.ensure_future(ep.send(bytes(1 << 24))) for _ in range(3)]
            for _ in range(50):
                await ep.send(bytes(1000))
            await asyncio.sleep(0)
            {end}

        asyncio.run(main())
        """
    )
    assert done.returncode == code, done.stderr
    assert "Fatal" not in done.stderr and "Segmentation" not in done.stderr
