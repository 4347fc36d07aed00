# SPDX-License-Identifier: BSD-3-Clause
"""Schedulers and workers as processes, started as a user would, and ended for certain."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent


class Program:
    """A program of Dask's; its output goes to a file, `log` has it."""

    def __init__(self, *command: str, env: dict[str, str] | None = None, netns: str | None = None):
        self._file = tempfile.TemporaryFile("w+b")
        before = ["ip", "netns", "exec", netns] if netns else []
        path = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")]))
        self.process = subprocess.Popen(
            [*before, sys.executable, "-m", *command],
            stdout=self._file,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": path, **(env or {})},
        )

    @property
    def log(self) -> str:
        self._file.seek(0)
        return self._file.read().decode(errors="replace")

    def expect(self, pattern: str, timeout: float = 60) -> re.Match:
        """Waits until the output has `pattern`."""
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            found = re.search(pattern, self.log)
            if found:
                return found
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        raise AssertionError(f"no {pattern!r} within {timeout} s:\n{self.log}")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(30)

    def end(self) -> int:
        """Asks it to end, as Ctrl-C does; gives its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.kill()
                raise AssertionError(f"it did not end in 30 s:\n{self.log}") from None
        return self.process.returncode

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *exc: object) -> None:
        if self.process.poll() is None:
            self.kill()


class Scheduler(Program):
    def __init__(self, protocol="ucxx", host="127.0.0.1", port=0, **kwargs):
        super().__init__(
            "distributed.cli.dask_scheduler",
            "--protocol",
            protocol,
            "--host",
            host,
            "--port",
            str(port),
            "--no-dashboard",
            **kwargs,
        )
        self.address = self.expect(r"Scheduler at:\s+(\S+)")[1]

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])


class Worker(Program):
    def __init__(self, scheduler, *more, host="127.0.0.1", name=None, nthreads=1, **kwargs):
        super().__init__(
            "distributed.cli.dask_worker",
            scheduler,
            "--protocol",
            scheduler.partition(":")[0],
            "--host",
            host,
            "--nthreads",
            str(nthreads),
            "--no-dashboard",
            "--no-nanny",
            "--memory-limit",
            "0",
            *(("--name", name) if name else ()),
            *more,
            **kwargs,
        )
