# SPDX-License-Identifier: BSD-3-Clause
"""What moves a worker: its loop, when there is something to do, or a task that never rests."""

import asyncio
import weakref


class ProgressTask:
    """Ties a worker to a loop. Holds no reference to the worker."""

    def __init__(self, worker, event_loop):
        self.weakref_worker = weakref.ref(worker)
        self.event_loop = event_loop
        self.asyncio_task = None
        worker.attach(event_loop)

    def __del__(self):
        task = self.asyncio_task
        if task is not None and not self.event_loop.is_closed():
            task.cancel()

    # They are equal where their loop is the same.
    def __hash__(self):
        return hash(self.event_loop)

    def __eq__(self, other):
        return hash(self) == hash(other)


class BlockingMode(ProgressTask):
    """The loop sleeps until the worker's descriptor says that there is something to do."""


class NonBlockingMode(ProgressTask):
    """Progress in every turn of the loop: the shortest delay, and a processor that never rests."""

    def __init__(self, worker, event_loop):
        super().__init__(worker, event_loop)
        self.asyncio_task = event_loop.create_task(_spin(self.weakref_worker))


async def _spin(weakref_worker):
    while (worker := weakref_worker()) is not None and worker.initialized:
        worker.progress()
        del worker
        await asyncio.sleep(0)
