# SPDX-License-Identifier: BSD-3-Clause
"""A worker: one ropeway context, the loop that moves it, and the peers that came by its address."""

import atexit
import collections
import logging
import os
import threading
import time
import weakref

import ropeway
from ropeway._ucx.calls import translated

from .address import UCXAddress
from .am import AM_ID, HELLO_ID, STREAM_ID, Inbox, take
from .exceptions import UCXError, of_listen, of_operation
from .objects import AllocatorType, UCXObject, close_core

logger = logging.getLogger("ucx")

# How long closing a worker waits for what was sent to leave this process, in seconds.
LINGER_S = 2.0
# Rounds of progress outside of the loop, at most.
NUDGES_MAX = 5000
# Where the peer is this very process, it hears of the end at once: until it is quiet for so long,
# in seconds.
QUIET_TO_MYSELF_S = 0.0005
ALL = ropeway.ALL
_HOST = os.uname().nodename


class Peer:
    """A connection that came by this worker's address."""

    def __init__(self, core, inbox):
        self.core = core
        self.inbox = inbox
        self.ended = False


class UCXWorker(UCXObject):
    """Where messages are matched."""

    def __init__(self, context):
        assert context.initialized
        self._context = context
        self.core = context.core() if context._home_taken else context.home()
        context._home_taken = True
        self.uid = os.urandom(16)
        self.thread = threading.get_ident()
        self.loop = None
        self._door = None
        self._peers = {}  # of core endpoints: who came by the address, before anybody wants them
        self._by_uid = {}  # of workers: where their active messages go
        self._requests = {}  # of connection requests: endpoints that nobody has made one of yet
        self._request_count = 0
        self._lingering = set()
        self._dropped = collections.deque()  # by another thread's garbage collector
        self._canceled = 0
        self._nudged = False
        self._waiting = []  # coroutines for the first loop that comes
        self._am_allocators = {0: bytearray, 1: None}
        self._open(context)
        me = weakref.ref(self)
        self.core.on_am(AM_ID, lambda ep, header, data: take(me, ep, header, data))
        self.core.on_am(STREAM_ID, _on_stream)
        self.core.on_am(HELLO_ID, lambda ep, header, data: _on_hello(me, ep, header))
        _workers.add(self)

    # ---- the loop ----

    def attach(self, loop):
        """From now on `loop` moves it."""
        if self.loop is loop:
            return
        self.core.attach(loop)
        self.loop = loop
        self.thread = threading.get_ident()
        waiting, self._waiting = self._waiting, []
        for coroutine, tasks in waiting:
            self.spawn(coroutine, tasks)

    def spawn(self, coroutine, tasks):
        """Runs a coroutine as a task of the loop, or of the one that comes. `tasks` has it as
        long as it runs."""
        if self.loop is None or self.loop.is_closed():
            self._waiting.append((coroutine, tasks))
            return
        task = self.loop.create_task(coroutine)
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    def is_free(self):
        """Whether this thread can take it over: no loop moves it now."""
        if self.loop is None:
            return self.thread == threading.get_ident()
        return self.loop.is_closed() or (
            not self.loop.is_running() and self.thread == threading.get_ident()
        )

    def progress(self):
        """Moves things on, calls callbacks, never blocks."""
        assert self.initialized
        while self.core.progress() > 0:
            pass
        self.sweep()

    def sweep(self):
        """Closes what other threads' garbage collectors have dropped."""
        while self._dropped:
            self.linger(self._dropped.popleft())

    def arm(self):
        """True: the descriptor tells when there is something to do. False: progress first."""
        assert self.initialized
        return self.core.arm()

    def init_blocking_progress_mode(self):
        """A descriptor for epoll, the caller's to close."""
        assert self.initialized
        return os.dup(self.core.fd)

    # ---- endpoints that end ----

    def linger(self, core):
        """Lets an endpoint go that this side is through with: what was sent leaves first."""
        if core.closed and not _is_up(core):
            core.close()
            return
        core.on_close(None)
        myself = core._info()[3].startswith(f"{_HOST}:{os.getpid()} ")
        try:
            done = core.shutdown()
        except ropeway.Error:
            core.close()
            return
        if done.done():
            core.close()
        else:
            lingering = self._lingering
            lingering.add(core)
            done.add_done_callback(lambda _: (lingering.discard(core), core.close()))
        if self.initialized:
            self.nudge(QUIET_TO_MYSELF_S if myself else 0.0)

    def nudge(self, quiet_s=0.0):
        """What can be done now is done now, where a program stops its loop right after.

        quiet_s: until nothing has happened for so long, in seconds."""
        if self._nudged:
            return
        self._nudged = True
        try:
            until = quiet_s and time.perf_counter() + quiet_s
            for _ in range(NUDGES_MAX):
                if self.core.progress():
                    until = quiet_s and time.perf_counter() + quiet_s
                elif not quiet_s or time.perf_counter() > until:
                    break
        finally:
            self._nudged = False

    def drop(self, core):
        """linger(), from any thread."""
        if not self.initialized or self.core.closed:
            return
        try:
            self.linger(core)
        except RuntimeError:
            self._dropped.append(core)
            loop = self.loop
            if loop is not None and not loop.is_closed():
                loop.call_soon_threadsafe(self.sweep)

    def settle(self, limit_s=LINGER_S):
        """Moves things on until nothing of this side is under way, or time is up."""
        until = time.monotonic() + limit_s
        self.sweep()
        while self._lingering or self.core._statistics()[-1]:
            left = until - time.monotonic()
            if left <= 0:
                break
            self.core.wait(min(left, 0.1))

    def _close(self):
        _workers.discard(self)
        for coroutine, _ in self._waiting:
            coroutine.close()
        self._waiting.clear()
        if self._door is not None:
            self._door.close()
        for peer in list(self._peers.values()):
            if not peer.ended:
                self.drop(peer.core)
        self._peers.clear()
        self._by_uid.clear()
        if self.core.closed:
            return
        try:
            self.settle()
        except (RuntimeError, ropeway.Error) as error:
            logger.debug("worker %#x: %s", id(self), error)
        close_core(self.core)

    # ---- peers that come by the address ----

    def door(self):
        """The address, as text, of the listener that stands for this worker."""
        if self._door is None:
            me = weakref.ref(self)
            with translated(of_listen):
                self._door = self.core._listen(":0", lambda core: _on_peer(me, core))
        return self._door.address

    def adopt(self, uid):
        """A connection that came from the worker `uid`, for an endpoint to it; None: none."""
        for core, peer in self._peers.items():
            if peer.inbox.uid == uid and not peer.ended and not core.closed:
                del self._peers[core]
                return peer
        return None

    def get_address(self):
        """What others connect to it by: an UCXAddress."""
        assert self.initialized
        return UCXAddress.from_worker(self)

    # ---- what programs ask ----

    @property
    def handle(self):
        """A number that no other worker of this process has."""
        assert self.initialized
        return id(self.core)

    def tag_probe(self, tag):
        """Whether a message with this tag is there."""
        return self.core.probe(tag, ALL) is not None

    def register_am_allocator(self, allocator, allocator_type):
        """Who gives the memory of active messages that come: called with their size in bytes."""
        if allocator_type is AllocatorType.HOST:
            self._am_allocators[0] = allocator
        elif allocator_type is AllocatorType.CUDA:
            self._am_allocators[1] = allocator
        else:
            raise UCXError("Allocator type not supported")

    def fence(self):
        """What is posted from now on takes effect after what was posted before."""
        for endpoint in self.live():
            with translated(of_operation, "fence"):
                endpoint._core.fence()

    def flush(self, cb_func, cb_args=None, cb_kwargs=None):
        """Calls back when all that was posted on its endpoints is done on the peers' side."""
        from .transfer import Together, follow

        ops = [endpoint.flush_op() for endpoint in self.live()]
        together = Together([op for op in ops if op is not None])
        return follow(None, together, cb_func, cb_args, cb_kwargs, "flush")

    def live(self):
        """Its endpoints that are up."""
        from .endpoint import UCXEndpoint

        found = [child() for child in self._children]
        return [e for e in found if isinstance(e, UCXEndpoint) and e.initialized and e.is_alive()]

    def request_cancel(self, req):
        """Cancels a request; its callback has UCXCanceled."""
        assert self.initialized
        req.cancel()

    def cancel_inflight_messages(self):
        """How many operations were cancelled, because their endpoint ended, since the last call."""
        n, self._canceled = self._canceled, 0
        return n

    def info(self):
        """Its address and its endpoints, a line each."""
        assert self.initialized
        lines = ["#", f"# UCP worker '{os.uname().nodename}:{os.getpid()}'", "#"]
        s = self.core._statistics()
        lines.append(f"#  endpoints: {s[9]}, listeners: {s[10]}, requests: {s[11]}")
        lines += [f"#  {line}" for e in self.live() for line in (e.summary(),)]
        return "\n".join(lines + ["#", ""])


def _is_up(core):
    return core._info()[4]


def _on_peer(worker, core):
    worker = worker()
    if worker is None:
        core.close()
        return
    inbox = Inbox()
    core.user = inbox
    worker._peers[core] = Peer(core, inbox)
    me = weakref.ref(worker)
    core.on_close(lambda status, text: _on_peer_gone(me, core, inbox))


def _on_peer_gone(worker, core, inbox):
    worker = worker()
    if worker is None:
        return
    peer = worker._peers.get(core)
    if peer is not None:
        peer.ended = True
    # Messages of those that ended stay receivable until nobody has left any.
    for other in [p for p in worker._peers.values() if p.ended]:
        try:
            left = other.core.probe(0, 0)
        except ropeway.Error:
            left = None
        if left is None:
            del worker._peers[other.core]
            other.core.close()


def _on_hello(worker, core, header):
    worker = worker()
    inbox = core.user
    if worker is None or inbox is None:
        return
    inbox.uid = bytes(header)
    there = worker._by_uid.get(inbox.uid)
    there = there() if there is not None else None
    if there is not None and there is not inbox:
        there.join(inbox)


def _on_stream(core, header, data):
    inbox = core.user
    if inbox is not None:
        inbox.stream_put(data)


_workers = weakref.WeakSet()


@atexit.register
def _at_exit():
    """What was sent before the end of the program still leaves, within LINGER_S."""
    for worker in list(_workers):
        if worker.thread == threading.get_ident():
            worker.close()


os.register_at_fork(after_in_child=_workers.clear)
