# SPDX-License-Identifier: BSD-3-Clause
"""UCXWorker: what sends and receives."""

from __future__ import annotations

import asyncio
import enum
import threading
import weakref
from typing import TYPE_CHECKING, Any, Callable, Iterator

import ropeway
from ropeway._ucx.calls import Feature, needs

from .._connection import AM_ID, take_am, worker_address
from .._home import Home
from .address import UCXAddress
from .arr import Array
from .context import Numbered, UCXContext, handles
from .request import TagProbeResult, UCXRequest, probe, recv_taken
from .tag import UCXXTag, UCXXTagMask, UCXXTagMaskFull

if TYPE_CHECKING:
    from .endpoint import UCXEndpoint


class PythonRequestNotifierWaitState(enum.Enum):
    Ready = 0
    Timeout = 1
    Shutdown = 2


class UCXWorker(Numbered):
    """What sends and receives: a home for each event loop that uses it, and one without a loop."""

    def __init__(
        self,
        context: UCXContext,
        enable_delayed_submission: bool = False,
        enable_python_future: bool = False,
    ) -> None:
        self._context = context
        self.enable_delayed_submission = bool(enable_delayed_submission)
        self.enable_python_future = bool(enable_python_future)
        self.handle = next(handles)
        self._homes = _Homes(context.config)
        self._thread_callback: Callable[[], Any] | None = None
        weakref.finalize(self, _Homes.close, self._homes)

    @property
    def cuda_buffer_type(self) -> str:
        return "none"

    @property
    def info(self) -> str:
        lines = [f"# worker of ropeway {ropeway.core.VERSION}, {len(self._homes)} contexts"]
        for home in self._homes:
            lines.append(f"#   {'a loop' if home.loop else 'no loop'}: {home.describe()}")
        return "\n".join(lines) + "\n"

    # ---- progress ----

    def home(self) -> Home:
        """Where this call belongs: the home of the loop that runs, else the one without a loop."""
        return self._homes.here()

    def progress(self) -> None:
        self.home().progress()

    def progress_once(self) -> bool:
        return self.home().progress() > 0

    def progress_worker_event(self, epoll_timeout: int = -1) -> None:
        """Blocks until something has happened, for `epoll_timeout` milliseconds (-1: no limit)."""
        self.home().wait(None if epoll_timeout < 0 else epoll_timeout / 1000)

    def init_blocking_progress_mode(self) -> None:
        """Nothing to prepare."""

    @property
    def epoll_file_descriptor(self) -> int:
        """Readable when there is something to do, after `arm` has given True."""
        return self.home().ctx.fd

    def arm(self) -> bool:
        return self.home().arm()

    def set_progress_thread_start_callback(
        self, cb_func: Callable, cb_args: tuple | None = None, cb_kwargs: dict | None = None
    ) -> None:
        args, kwargs = cb_args or (), cb_kwargs or {}
        self._thread_callback = lambda: cb_func(*args, **kwargs)

    def start_progress_thread(self, polling_mode: bool = False, epoll_timeout: int = -1) -> None:
        self._homes.loopless().start_pump(polling_mode, self._thread_callback)

    def stop_progress_thread(self) -> None:
        home = self._homes.loopless_if_any()
        if home is not None:
            home.stop_pump()

    def cancel_inflight_requests(self, period: int = 0, max_attempts: int = 1) -> int:
        """Cancels what is under way on its endpoints. Gives how many operations that were."""
        return sum(
            home.run(connection.cancel_pending) or 0
            for home in self._homes
            for connection in list(home.connections)
        )

    # ---- notifier: there is none, results are set where the loop runs ----

    def stop_request_notifier_thread(self) -> None:
        """There is no such thread."""

    def wait_request_notifier(self, period_ns: int = 0) -> PythonRequestNotifierWaitState:
        return PythonRequestNotifierWaitState.Shutdown

    def run_request_notifier(self) -> None:
        """There is nothing to notify."""

    def populate_python_futures_pool(self) -> None:
        """Futures are made when they are asked for."""

    def clear_python_futures_pool(self) -> None:
        """No future is kept."""

    # ---- endpoints ----

    @property
    def address(self) -> UCXAddress:
        home = self.home()
        return bytes.__new__(UCXAddress, home.run(worker_address, home).encode("ascii"))

    def create_endpoint_from_hostname(
        self, ip_address: str, port: int, endpoint_error_handling: bool
    ) -> UCXEndpoint:
        from .endpoint import UCXEndpoint

        return UCXEndpoint.create(self, ip_address, port, endpoint_error_handling)

    def create_endpoint_from_worker_address(
        self, address: UCXAddress, endpoint_error_handling: bool
    ) -> UCXEndpoint:
        from .endpoint import UCXEndpoint

        return UCXEndpoint.create_from_worker_address(self, address, endpoint_error_handling)

    # ---- messages from any endpoint ----

    def _check_tag(self) -> None:
        needs(Feature.TAG, self._context.features)

    def tag_probe(
        self, tag: UCXXTag, tag_mask: UCXXTagMask = UCXXTagMaskFull, remove: bool = False
    ) -> TagProbeResult:
        """Is there a message with this tag? With `remove` it is taken out of the queue."""
        home = self.home()
        return home.run(probe, home, int(UCXXTag(tag)), int(tag_mask), remove)

    def tag_recv(
        self, arr: Array, tag: UCXXTag, tag_mask: UCXXTagMask = UCXXTagMaskFull
    ) -> UCXRequest:
        self._check_tag()
        home = self.home()
        op = home.run(home.ctx.recv, arr.buffer, int(tag), int(tag_mask))
        return UCXRequest(home, op, is_recv=True, room=arr.nbytes)

    def tag_recv_with_handle(self, arr: Array, probe_result: TagProbeResult) -> UCXRequest:
        """Receives a message that `tag_probe` has taken out of the queue."""
        self._check_tag()
        return recv_taken(self.home(), arr, probe_result)

    def close(self) -> None:
        """Ends all of it."""
        self._homes.close()


class _Homes:
    """The homes of a worker."""

    def __init__(self, config: dict[str, str]) -> None:
        self._config = config
        self._lock = threading.Lock()
        self._of_loop: dict[int, Home] = {}
        self._loopless: Home | None = None

    def __len__(self) -> int:
        return len(self._all())

    def __iter__(self) -> Iterator[Home]:
        return iter(self._all())

    def _all(self) -> list[Home]:
        homes = list(self._of_loop.values())
        if self._loopless is not None and self._loopless not in homes:
            homes.append(self._loopless)
        return homes

    def here(self) -> Home:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return self.loopless()
        return self.of_loop(loop)

    def of_loop(self, loop: asyncio.AbstractEventLoop) -> Home:
        home = self._of_loop.get(id(loop))
        if home is not None and home.loop is loop and not home.gone:
            return home
        self.prune()
        home = self._loopless
        if home is not None and not home.gone and home.pump is None and home.loop is None:
            home.attach(loop)
        else:
            home = self._made(loop)
        with self._lock:
            self._of_loop[id(loop)] = home
        return home

    def loopless(self) -> Home:
        if self._loopless is None or self._loopless.gone:
            self._loopless = self._made(None)
        return self._loopless

    def loopless_if_any(self) -> Home | None:
        return self._loopless

    def _made(self, loop: asyncio.AbstractEventLoop | None) -> Home:
        home = Home(self._config, loop)
        home.ctx.on_am(AM_ID, take_am)
        return home

    def prune(self) -> None:
        """Closes the homes of loops that are closed."""
        with self._lock:
            dead = [
                k for k, h in self._of_loop.items() if not h.loop or h.gone or h.loop.is_closed()
            ]
            homes = [self._of_loop.pop(k) for k in dead]
        for home in homes:
            if not home.movable:
                home.close()

    def close(self) -> None:
        with self._lock:
            homes = self._all()
            self._of_loop.clear()
            self._loopless = None
        for home in homes:
            home.close()
