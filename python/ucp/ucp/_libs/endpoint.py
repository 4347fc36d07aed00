# SPDX-License-Identifier: BSD-3-Clause
"""An endpoint: a ropeway endpoint, how it ended, and what is under way on it."""

import logging
import socket
import weakref

import ropeway
from ropeway._ucx.calls import translated

from .am import HELLO_ID, Inbox
from .exceptions import (
    UCXConnectionReset,
    UCXError,
    UCXNotConnected,
    of_connect,
    of_operation,
)
from .objects import UCXObject

logger = logging.getLogger("ucx")

# Until then a connection is tried, where no other time is asked for, in seconds.
CONNECT_S = 5.0
# Of small messages that wait for room at the peer's: beyond it, sends wait, too.
BACKLOG_BYTES_MAX = 16 << 20
_GONE = (ropeway.Status.PEER_GONE, ropeway.Status.UNREACHABLE, ropeway.Status.TIMEOUT)
RESET = "Connection reset by remote peer"


class UCXEndpointTimeout(UCXError, UCXConnectionReset):
    """The peer behind a worker's address has gone: a UCXError in UCX-Py, a reset here, too."""


def host_port(ip_address, port):
    """Text that ropeway takes."""
    return f"[{ip_address}]:{port}" if ":" in ip_address else f"{ip_address}:{port}"


class UCXEndpoint(UCXObject):
    """One end of a connection."""

    def __init__(self, worker, core, endpoint_error_handling, inbox=None, by_address=False):
        self.worker = worker
        self._core = core
        self._handle = id(core)
        self._inbox = inbox or core.user or Inbox()
        core.user = self._inbox
        self._endpoint_error_handling = endpoint_error_handling
        self._by_address = by_address
        self._error = None  # why it ended: an exception to be raised
        self._connecting = None
        self._ops = {}  # under way: operations, and what they are called in the log
        self._cancelled = set()  # operations that this endpoint's end has cancelled
        self._on_close = None
        self._backlog = 0  # bytes of small messages that this side holds
        self._open(worker)
        me = weakref.ref(self)
        core.on_close(lambda status, text: _ended(me, status, text))

    # ---- how one is made ----

    @classmethod
    def create(cls, worker, ip_address, port, endpoint_error_handling=True, timeout=CONNECT_S):
        """Begins to connect to a listener. What is posted waits until it is connected."""
        assert worker.initialized
        try:
            socket.inet_pton(socket.AF_INET6 if ":" in ip_address else socket.AF_INET, ip_address)
        except OSError:
            ip_address = socket.gethostbyname(ip_address)
        return cls._connect(worker, host_port(ip_address, port), endpoint_error_handling, timeout)

    @classmethod
    def _connect(cls, worker, address, endpoint_error_handling, timeout, **more):
        with translated(of_connect):
            core, op = worker.core._connect(address, None, timeout, retry=False)
        self = cls(worker, core, endpoint_error_handling, **more)
        self._connecting = op
        return self

    @classmethod
    def create_from_worker_address(
        cls, worker, address, endpoint_error_handling=True, timeout=CONNECT_S
    ):
        """An endpoint to the worker whose address that is."""
        assert worker.initialized
        uid, text = address.split()
        peer = worker.adopt(uid)
        if peer is not None:
            self = cls(worker, peer.core, endpoint_error_handling, peer.inbox, by_address=True)
        else:
            self = cls._connect(worker, text, endpoint_error_handling, timeout, by_address=True)
            self._inbox.uid = uid
            self._core.am_send(HELLO_ID, b"", worker.uid)
        worker._by_uid[uid] = weakref.ref(self._inbox)
        return self

    @classmethod
    def create_from_conn_request(cls, worker, conn_request, endpoint_error_handling=True):
        """The endpoint of a connection that a listener has told of."""
        core, inbox = worker._requests.pop(conn_request)
        return cls(worker, core, endpoint_error_handling, inbox)

    # ---- how it stands ----

    @property
    def handle(self):
        """A number that no other live endpoint of this process has."""
        assert self.initialized
        return self._handle

    def is_alive(self):
        """Whether the peer is there, as far as is known here."""
        return self._error is None or not self._endpoint_error_handling

    def raise_on_error(self):
        """Raises why it ended, where it has."""
        if self._error is not None and self._endpoint_error_handling:
            raise self.why()

    def failed(self, error, name):
        """The exception for an operation of this endpoint that failed."""
        if self._by_address and error.status in _GONE and "Send" in name:
            return UCXEndpointTimeout(f"<{name}>: Endpoint timeout: {error.sentence}")
        return of_operation(error, name)

    def why(self):
        """Why it ended: each time a new exception, which holds nobody's frames."""
        return type(self._error)(*self._error.args)

    def set_close_callback(self, cb_func):
        """Called without arguments, once: when the peer has gone, or this side closes."""
        self._on_close = cb_func
        if self._error is not None:
            self._tell()

    def _tell(self):
        callback, self._on_close = self._on_close, None
        if callback is not None:
            callback()

    def am_probe(self):
        """Whether an active message is there."""
        return bool(self._inbox.ready)

    def info(self):
        """The path it has, and why."""
        assert self.initialized
        transport, path, why, peer, connected, *_ = self._core._info()
        state = "connected" if connected else "not connected"
        return (
            f"#\n# UCP endpoint {self._handle:#x}\n#\n"
            f"#               peer: {peer} ({state})\n"
            f"#               path: {transport or 'none yet'}: {path}\n#                why: {why}\n#\n"
        )

    def summary(self):
        """A line of info()."""
        transport, path, _, peer, *_ = self._core._info()
        return f"ep {self._handle:#x}: {transport or 'none yet'}: {path}, to {peer}"

    # ---- its end ----

    def track(self, op, name):
        """Remembers an operation under way, so that the endpoint's end ends it."""
        self._ops[op] = name

    def hold(self, op, size):
        """A small message that waits for room at the peer's is done for the program: this side
        has a copy. False: too much is held already, or there is no peer yet: wait for it."""
        if self._backlog > BACKLOG_BYTES_MAX:
            return False
        if self._connecting is not None:
            if not self._connecting.done():
                return False
            self._connecting = None
        self._backlog += size
        me = weakref.ref(self)

        def sent(op):
            op.exception() if not op.cancelled() else None
            if (endpoint := me()) is not None:
                endpoint._backlog -= size

        op.add_done_callback(sent)
        return True

    def cancel(self):
        """Ends what is under way. How many operations those were."""
        ops = [op for op in self._ops if not op.done()]
        for op in ops:
            logger.debug("Future cancelling: %s", self._ops[op])
            self._cancelled.add(op)
            op.cancel()
        text = "While waiting for am_recv the endpoint was closed"
        return len(ops) + self._inbox.cancel(text)

    def was_cancelled(self, op):
        """Whether the endpoint's end, and nobody else, cancelled the operation."""
        if op in self._cancelled:
            self._cancelled.discard(op)
            return True
        return False

    def _close(self):
        self.cancel()
        worker, core = self.worker, self._core
        uid = self._inbox.uid
        mine = worker._by_uid.get(uid) if uid is not None else None
        if mine is not None and mine() is self._inbox:
            del worker._by_uid[uid]
        worker.drop(core)
        self._tell()

    # ---- what it does beside messages ----

    def connected(self, limit_s=CONNECT_S):
        """Waits until it is connected. Raises why it is not."""
        op, self._connecting = self._connecting, None
        if op is not None:
            with translated(of_connect):
                op.wait(limit_s)

    def flush_op(self):
        """ropeway's flush of it, under way; None: it has ended."""
        try:
            return self._core.flush()
        except ropeway.Error:
            return None

    def flush(self, cb_func, cb_args=None, cb_kwargs=None):
        """Calls back when all that was posted is done on the peer's side. None: it is already."""
        from .transfer import follow

        with translated(of_operation, "flush"):
            op = self._core.flush()
        return follow(self, op, cb_func, cb_args, cb_kwargs, "flush")

    def unpack_rkey(self, rkey):
        """The peer's memory, as this endpoint reaches it."""
        from .memory import UCXRkey

        return UCXRkey(self, rkey)


def _ended(endpoint, status, text):
    """ropeway says, after everything else of an endpoint, that it has ended."""
    endpoint = endpoint()
    if endpoint is None or not endpoint.initialized:
        return
    handle = f"Endpoint {endpoint._handle:#x} error: "
    if endpoint._by_address:
        error = UCXEndpointTimeout(f"{handle}Endpoint timeout: {text or RESET}")
    elif status in (0, ropeway.Status.PEER_GONE):
        error = UCXConnectionReset(f"{handle}{RESET}: {text}" if text else handle + RESET)
    elif status in (ropeway.Status.UNREACHABLE, ropeway.Status.REFUSED):
        error = UCXNotConnected(f"{handle}Not connected: {text}")
    elif status == ropeway.Status.TIMEOUT:
        error = UCXError(f"{handle}Endpoint timeout: {text}")
    else:
        error = UCXError(handle + text)
    endpoint._error = error
    if logger.isEnabledFor(logging.DEBUG):
        logger.debug(
            "Error callback for endpoint %#x called with status %d: %s",
            endpoint._handle,
            status,
            text or "the peer closed in order",
        )
    if endpoint._endpoint_error_handling:
        endpoint.worker._canceled += endpoint.cancel()
    else:
        endpoint.cancel()
    endpoint._inbox.end("While waiting for am_recv the endpoint was closed")
    endpoint._tell()
