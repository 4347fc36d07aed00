# SPDX-License-Identifier: BSD-3-Clause
"""Helpers for tests with several processes."""

from __future__ import annotations

import queue
import time
import traceback
from typing import Any, Callable


def run_in_subprocess(target: Callable[..., Any], error_queue: Any, *args: Any, **kwargs: Any):
    """Calls `target`, and puts the traceback of its exception into `error_queue`.

    The exception goes on, so the process ends with a status that is not 0. `terminate_process` with
    the same queue shows the traceback.
    """
    try:
        target(*args, **kwargs)
    except Exception:
        error_queue.put(traceback.format_exc())
        raise


def join_processes(processes: list, timeout: float) -> None:
    """Joins all of them, for `timeout` seconds in all."""
    end = time.monotonic() + timeout
    for process in processes:
        process.join(timeout=max(0.0, end - time.monotonic()))


def terminate_process(process: Any, kill_wait: float = 3.0, error_queue: Any = None) -> None:
    """Ends a process that was to have ended by itself.

    Raises
    ------
    RuntimeError
        Its exit status was not 0, or it had to be killed; with its traceback, where `error_queue`
        has one.
    ValueError
        It is still there `kill_wait` seconds after it was killed.
    """
    if process.is_alive():
        process.kill()
    if kill_wait > 0:
        process.join(timeout=kill_wait)
    if process.is_alive():
        process.close()
        return
    if process.exitcode == 0:
        return
    text = f"Process did not exit cleanly (exit code: {process.exitcode})"
    if error_queue is not None:
        try:
            text += f"\n\nSubprocess traceback:\n{error_queue.get(timeout=0.5)}"
        except queue.Empty:
            pass
    raise RuntimeError(text)


def wait_requests(worker: Any, progress_mode: str, requests: Any) -> None:
    """Waits for requests, and raises the error of the first one that failed.

    In the mode "blocking" the worker is progressed here, in others by its own thread.
    """
    if not isinstance(requests, list):
        requests = [requests]
    while not all(r.completed for r in requests):
        if progress_mode == "blocking":
            worker.progress_worker_event()
        else:
            time.sleep(0)
    for r in requests:
        r.check_error()
