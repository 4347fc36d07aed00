# SPDX-License-Identifier: BSD-3-Clause
"""The same without a loop: every operation blocks until it is done, `timeout` seconds at most.

    with ropeway.blocking.Context() as c:
        ep = c.connect("127.0.0.1:7400")
        ep.send(b"hello", tag=1)

An operation whose time is up is withdrawn, and raises ropeway.Timeout (status EXPIRED): its buffer
is the program's again as soon as no byte moves. `ep.start` has the same calls without waiting.
"""

from __future__ import annotations

import collections

from . import _core as core
from ._aio import MemoryDoor, Statistics, info_of
from ._core import ALL
from ._errors import Error, Status, Timeout

__all__ = ["Context", "Endpoint", "Listener", "connect"]


def _finish(op, timeout):
    try:
        return op.wait(timeout)
    except Timeout as e:
        if e.status == Status.EXPIRED and not op.cancel() and op.done():
            return op.result()  # it came in the last moment
        raise


class Endpoint(core.Endpoint):
    """One end of a connection. Its calls block; see ropeway.core.Endpoint for each."""

    __slots__ = ()

    @property
    def start(self):
        """The same calls, begun: they give an Operation (done, wait, cancel, result)."""
        return _Start(self)

    # in one call of C's
    send = core.Endpoint._send_block
    recv = core.Endpoint._recv_block

    def send_many(self, bufs, tags=0, timeout=None):
        """A send of each."""
        return _finish(core.Endpoint.send_many(self, bufs, tags), timeout)

    def recv_many(self, bufs, tags=0, mask=ALL, timeout=None):
        """A receive into each; gives a list of Received."""
        return _finish(core.Endpoint.recv_many(self, bufs, tags, mask), timeout)

    def send_obj(self, buf, timeout=None):
        """Until the receiver has taken it."""
        return _finish(core.Endpoint.send_obj(self, buf), timeout)

    def recv_obj(self, allocator=bytearray, timeout=None):
        """Gives what the allocator gave, filled."""
        return _finish(core.Endpoint.recv_obj(self, allocator), timeout)

    def am_send(self, id, data, header=b"", timeout=None):
        """Until `data` can be used again."""
        return _finish(core.Endpoint.am_send(self, id, data, header), timeout)

    def put(self, rkey, offset, buf, timeout=None):
        """Until the buffer can be used again."""
        return _finish(core.Endpoint.put(self, rkey, offset, buf), timeout)

    def put_notify(self, rkey, offset, buf, data, timeout=None):
        """Likewise; the peer learns of it."""
        return _finish(core.Endpoint.put_notify(self, rkey, offset, buf, data), timeout)

    def get(self, rkey, offset, buf, timeout=None):
        """Until the bytes are here."""
        return _finish(core.Endpoint.get(self, rkey, offset, buf), timeout)

    def fetch_add(self, rkey, offset, add, timeout=None):
        """Gives the value that was there."""
        return _finish(core.Endpoint.fetch_add(self, rkey, offset, add), timeout)

    def compare_swap(self, rkey, offset, compare, swap, timeout=None):
        """Gives the value that was there."""
        return _finish(core.Endpoint.compare_swap(self, rkey, offset, compare, swap), timeout)

    def flush(self, timeout=None):
        """Until everything posted before is done on the peer's side."""
        return _finish(core.Endpoint.flush(self), timeout)

    def shutdown(self, timeout=None):
        """The orderly end."""
        return _finish(core.Endpoint.shutdown(self), timeout)

    def info(self):
        """Which path it has and why, as ropeway.Info."""
        return info_of(self)

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        try:
            if kind is None and not self.closed:
                self.shutdown(timeout=5.0)
        except Error:
            pass  # the peer has gone, or does not answer
        finally:
            self.close()


class _Start:
    """The calls of core.Endpoint on an endpoint whose own calls block."""

    __slots__ = ("_ep",)

    def __init__(self, ep):
        self._ep = ep

    def __getattr__(self, name):
        return getattr(core.Endpoint, name).__get__(self._ep)


class Listener:
    """Waits for peers: accept(timeout)."""

    def __init__(self, context, address):
        self._context = context
        self._ready = collections.deque()
        self._core = context._listen(address, self._ready.append)

    @property
    def port(self):
        """The TCP port, 1 to 65535."""
        return self._core.port

    @property
    def address(self):
        """Text that connect() takes in any process, on any host."""
        return self._core.address

    @property
    def closed(self):
        """True after close()."""
        return self._core.closed

    def accept(self, timeout=None):
        """The next endpoint; ropeway.Timeout (EXPIRED) where none came within `timeout` seconds."""
        from time import monotonic

        until = None if timeout is None else monotonic() + timeout
        while not self._ready:
            if self._core.closed:
                raise Error(Status.CANCELED, "the listener was closed")
            left = None if until is None else max(0.0, until - monotonic())
            if not self._context.wait(left) and not self._ready and left is not None:
                if monotonic() >= until:
                    raise Timeout(Status.EXPIRED, f"nobody connected within {timeout} s")
        return self._ready.popleft()

    def close(self):
        """Ends it; accepted endpoints stay, those that nobody took close."""
        self._core.close()
        self._ready.clear()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()


class Context(core.Context):
    """All that one thread has; arguments as of ropeway.Context, without a loop."""

    __slots__ = ("__weakref__",)

    def __init__(self, transports=None, key_file=None, **options):
        super().__init__(None, transports, key_file, **options)
        self.endpoint_class = Endpoint

    @property
    def memory(self):
        """Memory that peers can reach: register and allocate."""
        return MemoryDoor(self)

    def statistics(self):
        """What it has done, as ropeway.Statistics."""
        return Statistics(*self._statistics())

    def connect(self, address, *, transports=None, timeout=10.0, retry=True):
        """Connects to a listener; gives an Endpoint. Errors as of ropeway.connect."""
        ep, connected = self._connect(address, transports, timeout, retry)
        try:
            connected.wait(None)
        except BaseException:
            ep.close()
            raise
        return ep

    def listen(self, address="127.0.0.1:0"):
        """Waits for peers."""
        return Listener(self, address)

    def recv(self, buf, tag=0, mask=ALL, timeout=None):
        """From any endpoint; Received.endpoint says from which."""
        return _finish(core.Context.recv(self, buf, tag, mask), timeout)

    def recv_many(self, bufs, tags=0, mask=ALL, timeout=None):
        """From any endpoint."""
        return _finish(core.Context.recv_many(self, bufs, tags, mask), timeout)

    def recv_obj(self, allocator=bytearray, timeout=None):
        """From any endpoint."""
        return _finish(core.Context.recv_obj(self, allocator), timeout)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()


def connect(address, *, transports=None, timeout=10.0, retry=True, **options):
    """An endpoint with a context of its own, which lives as long as the endpoint."""
    return Context(**options).connect(address, transports=transports, timeout=timeout, retry=retry)
