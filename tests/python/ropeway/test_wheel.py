# SPDX-License-Identifier: BSD-3-Clause
"""What a wheel has beside the module: the command, the device, the versioned library, the plugin,
man pages; what it needs, what it loads, and what an import costs. tests/wheels/bare.py does this in
trees that have nothing else."""

import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import sysconfig

import pytest
import ropeway

PACKAGE = pathlib.Path(ropeway.__file__).parent
COMMAND = pathlib.Path(sysconfig.get_path("scripts"), "ropeway")
IMPORT_MOST_S = 0.010
GLIBC = {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}

pytestmark = pytest.mark.skipif(
    not (PACKAGE / "bin" / "ropeway").exists(), reason="the package did not come as a wheel"
)


def call(*words, env=None, status=0):
    done = subprocess.run(
        [str(w) for w in words],
        capture_output=True,
        text=True,
        timeout=60,
        env=None if env is None else os.environ | env,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_console_script_is_the_command():
    assert call(COMMAND, "--version") == f"ropeway {ropeway.__version__}\n"
    assert call(sys.executable, "-m", "ropeway", "--version") == call(COMMAND, "--version")
    assert "did you mean 'devices'" in call(COMMAND, "device", status=2)
    assert call(COMMAND, "run", "--", "sh", "-c", "exit 7", status=7) == ""


def test_programs_ignore_no_signal_that_python_ignores():
    # With a path: Python 3.13 starts such by posix_spawn, whose children ignore glibc's own two.
    grep = (shutil.which("grep"), "SigIgn", "/proc/self/status")
    assert call(COMMAND, "run", "--", *grep) == call(*grep)


def test_the_device_and_the_libraries_are_those_of_the_wheel():
    assert "software device on lo" in call(COMMAND, "devices")
    shown = call(COMMAND, "run", "--devices", "lo", "--", "sh", "-c",
        "ls /sys/class/infiniband; echo $LD_PRELOAD").split()
    assert shown == ["rpw_lo", str(PACKAGE.resolve() / "lib" / "libropeway-verbs.so.0")]
    versioned = call(COMMAND, "run", "--print-library").strip()
    assert pathlib.Path(versioned, "libibverbs.so.1") == (
        PACKAGE.resolve() / "lib" / "ropeway" / "libibverbs.so.1")
    for program in ("bin/ropeway", "libexec/ropeway/ropeway-helper"):
        assert os.access(PACKAGE / program, os.X_OK)


def test_the_command_moves_a_file_by_its_device_and_explains_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "verified  all 1048576 bytes" in call(COMMAND, "demo", "--size", "1M")
    assert "WRITE_FIRST" in call(COMMAND, "explain", "ropeway-demo.pcapng")


def test_perf_finds_what_it_leaves_to_python(tmp_path):
    plot = tmp_path / "curves.svg"
    shown = call(COMMAND, "perf", "--sizes", "8", "--ops", "tag", "--transport", "shm", "--no-bare",
        "--plot", plot)
    assert "tag" in shown and plot.read_text().startswith("<svg")


def test_the_doctor_finds_its_own_parts():
    lines = json.loads(call(COMMAND, "doctor", "--json"))["verdicts"]
    told = {line["what"]: line["text"] for line in lines}
    assert told["version"] == f"command {ropeway.__version__}, library {ropeway.__version__}"


def test_nccl_gets_the_path_of_a_plugin_that_works():
    path = call(COMMAND, "plugin", "path").strip()
    assert path == str(PACKAGE.resolve() / "lib" / "libnccl-net-ropeway.so")
    assert ", 0 fail" in call(COMMAND, "plugin", "check", path, "--only", "load")


def test_man_pages_are_where_man_looks():
    pages = pathlib.Path(sysconfig.get_path("data"), "share", "man")
    for page in ("man1/ropeway.1", "man7/libnccl-net-ropeway.7", "man7/rpw.7"):
        assert (pages / page).read_text().startswith(".Dd ")


def test_nothing_but_glibc_is_needed():
    if not shutil.which("readelf"):
        pytest.skip("no readelf (package binutils)")
    objects = [p for p in PACKAGE.parent.glob("ropeway*/**/*") if p.is_file() and
        p.open("rb").read(4) == b"\x7fELF"]
    assert len(objects) >= 7
    own = {p.name for p in objects}
    for p in objects:
        needed = set(re.findall(r"NEEDED.*\[(.+)\]", call("readelf", "-d", p)))
        assert needed <= GLIBC | own, p


def test_the_licenses_of_what_it_brings_are_there():
    text = (PACKAGE / "LICENSES").read_text(encoding="utf-8")
    for name in ("ISA-L", "zlib", "jansson", "xxHash"):
        assert re.search(rf"^{name} \d", text, re.M), text[:500]
        assert f"==== {name} ====" in text


def test_an_import_loads_no_tls_and_takes_little_more_than_asyncio():
    code = """if 1:
        import time
        import asyncio
        began = time.perf_counter()
        import ropeway
        print(time.perf_counter() - began, "gnutls" in open("/proc/self/maps").read())"""
    took = []
    for _ in range(9):
        seconds, tls = call(sys.executable, "-c", code).split()
        assert tls == "False"
        took.append(float(seconds))
    assert min(took) <= IMPORT_MOST_S, took


def test_a_key_without_the_tls_library_is_an_error_before_the_first_byte(tmp_path):
    key, bogus = tmp_path / "key", tmp_path / "libgnutls.so.30"
    key.write_text("a long pass phrase, no hex\n")
    key.chmod(0o600)
    bogus.write_bytes(b"")
    code = """if 1:
        import sys, ropeway.blocking
        try:
            ropeway.blocking.connect(sys.argv[1], timeout=5.0)
        except ropeway.Error as e:
            print(e.status.name, e)"""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        shown = call(sys.executable, "-c", code, "127.0.0.1:%d" % listener.getsockname()[1],
            env={"ROPEWAY_KEY_FILE": str(key), "LD_LIBRARY_PATH": str(tmp_path)})
        assert shown.startswith("NOT_SUPPORTED ") and "a key needs the library GnuTLS" in shown
        with pytest.raises(BlockingIOError):
            listener.accept()
