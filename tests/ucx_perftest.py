"""The command ucx_perftest for tests, whose standard input is no terminal: where it was built with MPI (Debian 13), it would be a rank of MPI's, if it is not told otherwise."""
import os
import subprocess


def command():
    env = {name: value for name, value in os.environ.items() if not name.startswith("LD_")}  # meson names folders of other libibverbs
    try:
        text = subprocess.run(["ucx_perftest", "-h"], capture_output=True, text=True, stdin=subprocess.DEVNULL, env=env, timeout=30).stdout
    except OSError:
        return "ucx_perftest"
    return "ucx_perftest -P 0" if "MPI mode" in text else "ucx_perftest"
