# SPDX-License-Identifier: BSD-3-Clause
"""Home: a context of ropeway, whose turn it is to use it, and what is still to end in it.

A worker of ucxx has one home for each event loop that runs. It has one without a loop where it was
used outside of one: a lock says whose turn it is there, and programs progress it by hand or by a
progress thread, until a loop runs, which it then serves. Nothing here knows tags or requests.
"""

from __future__ import annotations

import asyncio
import logging
import select
import threading
import time
import weakref
from typing import Any, Callable

import ropeway
from ropeway._ucx.calls import translated

from . import _options
from .exceptions import UCXBusyError, UCXError, of_failure

logger = logging.getLogger("ucx")

#: How long an endpoint that was closed may take until its peer has what was sent, in seconds.
LINGER_S = 10.0
#: How long the end of a home waits for such endpoints, in seconds.
DRAIN_S = 1.0
#: How long a progress thread sleeps at most, in seconds.
_SLEEP_S = 0.5
#: Of shared memory for large buffers, on each connection: it stays until that ends.
LOAN_BYTES_MAX = 256 << 20


class Home:
    """One context of ropeway."""

    def __init__(self, config: dict[str, str], loop: asyncio.AbstractEventLoop | None) -> None:
        self.loop = loop
        #: Made without a loop, it serves one after the other.
        self.movable = loop is None
        self.thread = threading.get_ident()
        self.config = config
        self.lock = threading.RLock()
        self.closed = False
        self.pump: _Pump | None = None
        self._lingering: dict[ropeway.core.Endpoint, tuple[ropeway.Operation, float]] = {}
        #: The connections of this home, as long as somebody has them.
        self.connections: weakref.WeakSet[Any] = weakref.WeakSet()
        #: Called in `close`, in the thread of the home.
        self.on_close: list[Callable[[], None]] = []
        #: The listener at which this home is reached by its worker's address.
        self.door: Any = None
        with translated(of_failure):
            self.ctx = ropeway.Context(
                loop=loop,
                transports=_options.transports(config["TLS"]),
                loan_bytes_max=LOAN_BYTES_MAX,
            )
        if loop is not None:
            self._watch_loop(loop)

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """A loop runs now, and moves a home that was made without one, until it is closed."""
        with self.lock:
            self.ctx.attach(loop)
            self.loop = loop
            self.thread = threading.get_ident()
        self._watch_loop(loop)

    def _leave(self) -> None:
        with self.lock:
            self.drain()
            self.ctx.detach()
            self.loop = None

    def _watch_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Has the loop's close() end this home first: what was sent last leaves before."""
        me = weakref.ref(self)
        close = loop.close

        def close_home_first() -> None:
            home = me()
            if home is not None and home.loop is loop and not loop.is_running():
                if home.movable and not home.gone:
                    home._leave()
                else:
                    home.close()
            close()

        try:
            loop.close = close_home_first
        except AttributeError:
            pass  # a loop that lets nothing be set: it closes the context itself

    @property
    def gone(self) -> bool:
        """Is its context closed, by this, or by the end of its loop?"""
        return self.closed or self.ctx.closed

    # ---- whose turn it is ----

    def is_mine(self) -> bool:
        """May this thread use the context now, without handing the call over?"""
        return self.loop is None or self.thread == threading.get_ident()

    def run(self, fn: Callable[..., Any], *args: Any) -> Any:
        """Calls `fn` where the context may be used: here, or later in the thread of its loop.

        Does nothing where the context is gone.
        """
        if self.gone:
            return None
        if self.loop is None:
            with self.lock:
                try:
                    return fn(*args)
                finally:
                    if self.pump is not None and not self.ctx.closed:
                        self.ctx.wake()
        if self.thread == threading.get_ident():
            return fn(*args)
        try:
            self.loop.call_soon_threadsafe(fn, *args)
        except RuntimeError:
            pass  # the loop is closed, and with it all that was to be done
        return None

    # ---- progress ----

    def progress(self) -> int:
        """Moves things on without blocking."""
        if self.gone:
            return 0
        if self.loop is not None:
            return self.ctx.progress() if self.is_mine() else 0
        with self.lock:
            return self.ctx.progress()

    def wait(self, timeout: float | None) -> None:
        """Blocks until something has happened."""
        if self.gone:
            return
        if self.loop is not None or self.pump is not None:
            time.sleep(0 if timeout is None else min(timeout, 0.001))
            self.progress()
            return
        with self.lock:
            self.ctx.wait(timeout)

    def arm(self) -> bool:
        """May one sleep on the descriptor now?"""
        return bool(self.run(self.ctx.arm))

    def start_pump(self, polling: bool, started: Callable[[], Any] | None = None) -> None:
        """Starts a thread that progresses; `started` is called in it first."""
        if self.pump is None:
            self.pump = _Pump(self, polling, started)

    def stop_pump(self) -> None:
        pump, self.pump = self.pump, None
        if pump is not None:
            pump.stop()

    def describe(self) -> str:
        if self.closed:
            return "closed"
        return str(self.run(self.ctx.statistics))

    # ---- ends ----

    def linger(self, ep: ropeway.core.Endpoint) -> ropeway.Operation | None:
        """Closes an endpoint when its peer has what was sent, or after LINGER_S.

        Gives the operation that is done then; None: it is closed already.
        """
        if ep.closed or self.closed:
            ep.close()
            return None
        try:
            op = ep.shutdown()
        except ropeway.Error:
            ep.close()
            return None
        if op.done():
            op.exception()
            ep.close()
            return None
        self._lingering[ep] = op, time.monotonic() + LINGER_S
        if self.loop is None:
            op.add_done_callback(lambda done: self._lingered(ep, None))
        else:
            timer = self.loop.call_later(LINGER_S, self._lingered, ep, None)
            op.add_done_callback(lambda done: self._lingered(ep, timer))
        return op

    def _lingered(self, ep: ropeway.core.Endpoint, timer: Any) -> None:
        if timer is not None:
            timer.cancel()
        self._lingering.pop(ep, None)
        if not self.gone:
            ep.close()

    def drain(self, timeout: float = DRAIN_S) -> None:
        """Progresses until closed endpoints have said all, for `timeout` seconds at most."""
        end = time.monotonic() + timeout
        while True:
            now = time.monotonic()
            for ep, (op, deadline) in list(self._lingering.items()):
                if op.done() or deadline < now:
                    self._lingered(ep, None)
            if not self._lingering:
                return
            if now >= end:
                logger.debug("%d endpoints closed before their peers had all", len(self._lingering))
                return
            self.ctx.wait(min(end - now, 0.1))

    def close(self) -> None:
        """Ends everything in it. In a thread that is not its own: as soon as its own runs."""
        if self.closed:
            return
        self.stop_pump()
        if self.loop is not None and not self.is_mine() and not self.loop.is_closed():
            self.run(self.close)
            return
        with self.lock:
            if self.closed:
                return
            try:
                for fn in self.on_close:
                    fn()
                self.on_close.clear()
                if not self.ctx.closed:
                    self.drain()
            except (RuntimeError, ropeway.Error) as error:
                logger.debug("the end of a context: %s", error)
            self.closed = True
            try:
                self.ctx.close()
            except (RuntimeError, ropeway.Error) as error:
                logger.debug("the end of a context: %s", error)

    # ---- listeners ----

    def listen(self, port: int, accepted: Callable[[ropeway.core.Endpoint], None]) -> Any:
        address = f"{_options.listen_host(self.config['NET_DEVICES'])}:{port}"
        with translated(_of_listen):
            return self.ctx._listen(address, accepted)


def _of_listen(error: ropeway.Error) -> UCXError:
    if error.status == ropeway.Status.SYSTEM and "in use" in str(error):
        return UCXBusyError(f"Device is busy: {error}")
    return of_failure(error)


class _Pump:
    """A thread that progresses a home without a loop."""

    def __init__(self, home: Home, polling: bool, started: Callable[[], Any] | None) -> None:
        self._home = weakref.ref(home)
        self._started = started
        self._stopping = False
        self._wake = home.ctx.wake
        self._fd = home.ctx.fd
        self._thread = threading.Thread(
            target=self._main, args=(polling,), name="ucxx progress", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        self._stopping = True
        if self._thread is threading.current_thread():
            return
        try:
            self._wake()
        except (RuntimeError, ropeway.Error):
            pass
        self._thread.join()

    def _main(self, polling: bool) -> None:
        if self._started is not None:
            try:
                self._started()
            except Exception:
                logger.exception("Uncaught error in the start callback of the progress thread")
        if polling:
            self._polls()
        else:
            self._sleeps()

    def _round(self) -> bool | None:
        """One round of progress: may the thread sleep now? None: it is over."""
        home = self._home()
        if self._stopping or home is None or home.closed:
            return None
        with home.lock:
            if self._stopping or home.closed:
                return None
            try:
                return home.ctx.progress() == 0 and home.ctx.arm()
            except UCXError:
                raise
            except Exception:
                logger.exception("Uncaught error in a callback of the progress thread")
                return False

    def _polls(self) -> None:
        while self._round() is not None:
            time.sleep(0)

    def _sleeps(self) -> None:
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        while True:
            idle = self._round()
            if idle is None:
                return
            if idle:
                poll.poll(_SLEEP_S * 1000)
