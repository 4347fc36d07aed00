"""NVIDIA's Multi-Process Service: with it two processes use one GPU at the same time; without it they take turns of some ms, and whoever waits for the other measures those."""
import contextlib
import os
import shutil
import subprocess
import tempfile

MPS = "nvidia-cuda-mps-control"
MPS_PLACES = "/usr/local/nvidia/bin:/usr/bin:/opt/nvidia/bin"
MPS_TIMEOUT_S = 20


class Failed(Exception):
    pass


@contextlib.contextmanager
def daemon(wanted):
    """An MPS daemon of this program's own, for what it starts, in the environment while this lasts. What there is instead is said."""
    control = shutil.which(MPS) or shutil.which(MPS, path=MPS_PLACES)
    if not wanted or not control:
        print("the processes take turns on the GPU: " + ("--turns" if not wanted else f"there is no {MPS}"), flush=True)
        yield
        return
    before = dict(os.environ)
    folder = tempfile.mkdtemp(prefix="ropeway-mps-")
    os.environ.update({f"CUDA_MPS_{name}_DIRECTORY": folder for name in ("PIPE", "LOG")})

    def call(*args, text=None):
        got = subprocess.run([control, *args], input=text, capture_output=True, text=True, timeout=MPS_TIMEOUT_S, check=False)
        return got.returncode, (got.stdout + got.stderr).strip()
    try:
        status, said = call("-d")
        if status:
            raise Failed(f"{control} -d ended with {status}: {said}; --turns does without it")
        print("both processes use the GPU at the same time, by MPS", flush=True)
        try:
            yield
        finally:
            call(text="quit\n")
    finally:
        os.environ.clear()
        os.environ.update(before)
        shutil.rmtree(folder, ignore_errors=True)
