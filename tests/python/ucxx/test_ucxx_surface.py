# SPDX-License-Identifier: BSD-3-Clause
"""What `import ucxx` offers: names, exceptions, options, versions, the log."""

from __future__ import annotations

import logging
import os
import pickle
import re
import subprocess
import sys

import pytest

import ucxx
from ucxx_help import asynchronous, pair

CALLS = """init reset stop_notifier_thread get_ucx_version progress get_config create_listener
create_endpoint create_endpoint_from_worker_address get_ucp_context_info get_ucp_worker_info
get_active_transports continuous_ucx_progress get_ucp_worker get_ucxx_worker get_worker_address
get_ucx_address_from_buffer recv get_address""".split()

ERRORS = """AlreadyExists BufferTooSmall Busy Canceled Close Config ConnectionReset EndpointTimeout
ExceedsLimit FirstEndpointFailure FirstLinkFailure InvalidAddr InvalidParam IO LastEndpointFailure
LastLinkFailure MessageTruncated NoDevice NoElem NoMemory NoMessage NoProgress NoResource
NotConnected NotImplemented OutOfRange Rejected ShmemSegment SomeConnectsFailed TimedOut Unreachable
Unsupported""".split()


@pytest.mark.parametrize("name", CALLS)
def test_every_public_call_is_there_and_says_what_it_does(name):
    assert name in ucxx.__all__
    assert (getattr(ucxx, name).__doc__ or "").strip()


@pytest.mark.parametrize("name", ERRORS)
def test_every_exception_is_a_ucx_error(name):
    error = getattr(ucxx.exceptions, f"UCX{name}Error")
    assert issubclass(error, ucxx.exceptions.UCXError) and error is not ucxx.exceptions.UCXError
    assert str(pickle.loads(pickle.dumps(error("why")))) == "why"
    assert getattr(ucxx._lib.libucxx, f"UCX{name}Error") is error


def test_older_names_of_exceptions():
    assert ucxx.exceptions.UCXCanceled is ucxx.exceptions.UCXCanceledError
    assert ucxx.exceptions.UCXMsgTruncated is ucxx.exceptions.UCXMessageTruncatedError


def test_versions_need_no_context():
    assert ucxx.get_ucx_version() >= (1, 19, 0) and len(ucxx.get_ucx_version()) == 3
    assert ucxx.__ucx_version__ == "%d.%d.%d" % ucxx.get_ucx_version()
    assert ucxx.core._ctx is None


def test_tags_are_compared_with_numbers_and_with_each_other():
    Tag, Mask = ucxx.types.Tag, ucxx.types.TagMask
    assert Tag(7) == 7 and Tag(7) == Tag(7) and Tag(7) != Tag(8) and Tag(7) != Mask(7)
    assert len({Tag(1), Tag(1), Tag(2)}) == 2 and repr(Tag(42)) == "UCXXTag(42)"
    assert ucxx.types.TagMaskFull == (1 << 64) - 1
    assert Tag(Tag(9)).value == 9
    for wrong in (-1, 1 << 64):
        with pytest.raises(OverflowError):
            Tag(wrong)
    with pytest.raises(AttributeError):
        Tag(1).value = 2


def test_a_second_init_is_refused():
    ucxx.init()
    with pytest.raises(RuntimeError, match="already initiated"):
        ucxx.init()
    ucxx.reset()
    ucxx.init()


@pytest.mark.parametrize("mode", ["blocking", "polling", "thread", "thread-polling"])
def test_progress_modes_are_accepted(mode):
    ucxx.init(progress_mode=mode)
    assert ucxx.core._get_ctx().progress_mode == mode


def test_an_unknown_progress_mode_is_refused():
    with pytest.raises(ValueError, match="Unknown progress mode"):
        ucxx.init(progress_mode="telepathy")


@pytest.mark.parametrize("mode", ["blocking", "polling"])
def test_delayed_submission_takes_a_thread_mode(mode):
    with pytest.raises(ValueError, match="Delayed submission"):
        ucxx.init(progress_mode=mode, enable_delayed_submission=True)


def test_options_and_environment(monkeypatch):
    monkeypatch.setenv("UCX_SEG_SIZE", "2M")
    assert ucxx.get_config()["SEG_SIZE"] == "2M"
    mine = {"SEG_SIZE": "3M"}
    ucxx.init(mine)
    assert ucxx.get_config()["SEG_SIZE"] == "3M"
    ucxx.reset()
    ucxx.init(mine, env_takes_precedence=True)
    assert ucxx.get_config()["SEG_SIZE"] == "2M" and mine == {"SEG_SIZE": "3M"}


def test_options_that_cannot_be(monkeypatch):
    with pytest.raises(ucxx.exceptions.UCXInvalidParamError, match="SEG_SIZE"):
        ucxx.init({"SEG_SIZE": "much"})
    with pytest.raises(ucxx.exceptions.UCXUnsupportedError, match="TLS"):
        ucxx.init({"TLS": "cuda_ipc"})
    monkeypatch.delenv("UCX_TLS", raising=False)
    assert ucxx.get_config()["TLS"] == "all"


@pytest.mark.parametrize(
    "tls, ropeway_s",
    [
        ("all", None),
        ("tcp", "tcp"),
        ("sm,tcp", "shm,tcp"),
        ("rc,tcp,cuda_copy", "verbs,tcp"),
        ("^ib", "shm,tcp"),
        ("^cuda", None),
        ("tcp,cuda_copy,cuda_ipc", "tcp"),
        ("self,posix", "shm"),
    ],
)
def test_tls_chooses_among_ropeway_s_transports(tls, ropeway_s):
    assert ucxx._options.transports(tls) == ropeway_s


def test_active_transports():
    ucxx.init({"TLS": "self,tcp"})
    assert ucxx.get_active_transports() == {"self", "tcp"}


def test_addresses_of_interfaces():
    assert ucxx.get_address("lo") == "127.0.0.1"
    with pytest.raises(OSError):
        ucxx.get_address("no-such-one")


def test_a_file_of_the_original_s_is_refused(tmp_path):
    """pip lets two wheels with one module's name overwrite each other."""
    import shutil
    from pathlib import Path

    shutil.copytree(Path(ucxx.__file__).parent, tmp_path / "ucxx")
    (tmp_path / "ucxx_cu12-0.52.0.dist-info").mkdir()
    got = subprocess.run(
        [sys.executable, "-c", "import ucxx"],
        cwd=tmp_path,
        text=True,
        capture_output=True,
        timeout=60,
    )
    assert got.returncode == 1 and "ImportError: ropeway-ucxx and ucxx-cu12-0.52.0" in got.stderr


def test_import_needs_neither_a_gpu_nor_numba():
    code = (
        "import sys, ucxx\n"
        "print([m for m in ('numba', 'rmm', 'cupy', 'pynvml', 'cuda') if m in sys.modules])"
    )
    got = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True, timeout=60)
    assert got.stdout == "[]\n", got.stderr


def test_the_log_has_ucx_s_form():
    """A line for each message: epoch seconds, tags of 16 digits, the same on both sides."""
    code = """
import asyncio, time, ucxx
async def main():
    async def serve(ep):
        await ep.send_obj(await ep.recv_obj())
    listener = ucxx.create_listener(serve)
    ep = await ucxx.create_endpoint("127.0.0.1", listener.port)
    await ep.send_obj(b"hello, world")
    assert await ep.recv_obj() == b"hello, world"
    await ep.close()
    await listener._wait_for_active_clients()
asyncio.run(main())
"""
    got = subprocess.run(
        [sys.executable, "-c", code],
        text=True,
        capture_output=True,
        timeout=60,
        env={**os.environ, "UCXPY_LOG_LEVEL": "DEBUG"},
    )
    assert got.returncode == 0, got.stderr
    line = re.compile(
        r"\[\d{10}\.\d{6}\] \[[^ ]+:\d+\] UCXPY  DEBUG \[(Send|Recv) #(\d{3})\] ep: 0x[0-9a-f]+, "
        r"tag: (0x[0-9a-f]{16}), nbytes: (\d+), type: <class '([a-z.]+)'>"
    )
    found = [m.groups() for m in map(line.match, got.stderr.splitlines()) if m]
    sends = [f for f in found if f[0] == "Send"]
    recvs = [f for f in found if f[0] == "Recv"]
    assert len(sends) == len(recvs) == 4, got.stderr
    assert {f[2] for f in sends} == {f[2] for f in recvs} and len({f[2] for f in sends}) == 2
    assert sorted(f[3] for f in sends) == ["12", "12", "8", "8"]
    assert ("Send", "000", sends[0][2], "8", "array.array") == sends[0]
    created = [line for line in got.stderr.splitlines() if "create_endpoint() client" in line]
    assert len(created) == 1 and len(re.findall(r"0x[0-9a-f]{16}", created[0])) == 4


def test_no_more_than_one_handler_is_added_to_the_log():
    before = list(logging.getLogger("ucx").handlers)
    ucxx.utils.get_ucxpy_logger()
    assert logging.getLogger("ucx").handlers == before


@asynchronous
async def test_handles_are_numbers_of_their_own():
    async with pair() as (a, b):
        assert len({a.uid, b.uid, ucxx.get_ucp_worker()}) == 3
        assert a.ucp_endpoint == a.ucxx_endpoint == a.uid > 0
        assert a.ucp_worker == b.ucp_worker == ucxx.get_ucp_worker()
        assert a._ep.handle == a.uid


@asynchronous
async def test_an_endpoint_says_which_path_it_took():
    async with pair() as (a, b):
        info = a.info()
        assert info.connected and info.transport and info.why
        assert info.transport in a.ucx_info() and info.why in a.ucx_info()
        assert b.info().transport == info.transport
        del a, b
    assert isinstance(ucxx.get_ucp_context_info(), str)
    assert isinstance(ucxx.get_ucp_worker_info(), str)
