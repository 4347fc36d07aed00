# SPDX-License-Identifier: BSD-3-Clause
"""Endpoint: messages to and from one peer, in coroutines."""

import asyncio
import logging
import operator

import ropeway
from ropeway._ucx.endpoint import Messages

from ._libs.arr import Array
from ._libs.exceptions import (
    UCXCanceled,
    UCXCloseError,
    UCXError,
    of_operation,
)
from ._libs.transfer import am_post, mismatch
from .utils import hash64bits

logger = logging.getLogger("ucx")
_running_loop = asyncio.get_running_loop
_debug = logger.isEnabledFor
DEBUG = logging.DEBUG

# How long close() waits for sends that are under way, in seconds.
CLOSE_S = 1.0

SEND = "[Send #%03d] ep: %#x, tag: %#018x, nbytes: %d, type: %s"
RECV = "[Recv #%03d] ep: %#x, tag: %#018x, nbytes: %d, type: %s"
WORKER_RECV = "[Worker Recv] worker: %#x, tag: %#018x, nbytes: %d, type: %s"
AM_SEND = "[AM Send #%03d] ep: %#x, nbytes: %d, type: %s"
AM_RECV = "[AM Recv #%03d] ep: %#x"
SHUTDOWN = "[Send shutdown] ep: %#x, tag: %#018x, close_after_n_recv: %d"


def view_of(buffer, nbytes, context):
    """What ropeway takes, its bytes, and the type that the log names."""
    try:
        view = memoryview(buffer)
        kind = type(buffer)
    except TypeError:
        held = buffer if isinstance(buffer, Array) else Array(buffer)
        if held.cuda and not context.cuda_support:
            raise ValueError(
                "UCX is not configured with CUDA support: add `cuda_copy` or `cuda_ipc` to UCX_TLS"
            ) from None
        if not held.contiguous:
            raise ValueError("Array must be C or F contiguous") from None
        if nbytes is not None and held.cuda and nbytes != held.nbytes:
            raise ValueError(f"nbytes: expected {held.nbytes}, all of the GPU's array") from None
        view, kind = held.buffer, type(held.obj)
        if held.cuda:
            return view, held.nbytes, kind, held.readonly
    if not view.contiguous:
        raise ValueError("Array must be C or F contiguous")
    size = view.nbytes
    if nbytes is not None and nbytes != size:
        if nbytes > size or nbytes < 0:
            raise ValueError(f"the buffer has {size} bytes, nbytes is {nbytes}")
        view, size = view.cast("B")[:nbytes], nbytes
    return view, size, kind, view.readonly


def has(source, tag):
    """Whether a message with this tag is there, at an endpoint that has ended."""
    try:
        return source.probe(tag) is not None
    except ropeway.Error:
        return False


def canceled(name):
    """For an operation that its endpoint's end has cancelled."""
    return UCXCanceled(f"<{name[0] % name[1]}>: ")


async def finish(low, op, name):
    """Waits for an operation of an endpoint (or of a worker: low is None)."""
    if low is None or op.done():
        low = None
    else:
        low._ops[op] = name
    try:
        return await op
    except ropeway.Error as error:
        of = low.failed if low is not None else of_operation
        raise of(error, name[0] % name[1]) from error
    except asyncio.CancelledError:
        if low is not None and low.was_cancelled(op) and not asyncio.current_task().cancelling():
            raise canceled(name) from None
        raise
    finally:
        if low is not None:
            low._ops.pop(op, None)
            low._cancelled.discard(op)


class Endpoint(Messages):
    """A connection to a peer. create_endpoint() and a listener's callback give them."""

    _misused = UCXError

    def __init__(self, endpoint, ctx, tags=None):
        super().__init__()
        self._ep = endpoint
        self._uid = endpoint.handle
        self._ctx = ctx
        self._context = ctx.context  # options; stays when this side has closed
        self._eager_bytes = ctx.context.eager_bytes
        self._tags = tags
        if tags is not None:
            self._message_send, self._message_recv = tags["msg_send"], tags["msg_recv"]
        self._hashes = {}
        self._shutting_down_peer = False

    # ---- how it stands ----

    @property
    def uid(self):
        """A number that no other live endpoint of this process has."""
        return self._uid

    def closed(self):
        """Whether this side has closed it, or the peer has gone. What had come can still be
        received after the peer has gone."""
        low = self._ep
        return low is None or not low.initialized or not low.is_alive()

    def cuda_support(self):
        """Whether memory of a GPU can be sent and received."""
        self._open()
        return self._context.cuda_support

    def get_ucp_worker(self):
        """A number for the worker that it belongs to."""
        return self._open().worker.handle

    def get_ucp_endpoint(self):
        """A number for the endpoint below."""
        return self._open().handle

    def ucx_info(self):
        """Which path it has, and why: text."""
        return self._open().info()

    def _open(self):
        """The endpoint below, which this side has not closed."""
        low = self._ep
        if low is None or not low.initialized:
            raise UCXCloseError("Endpoint closed")
        return low

    def _live(self):
        """The endpoint below, where it can be sent on."""
        low = self._ep
        if low is None or not low.initialized:
            raise UCXCloseError("Endpoint closed")
        if low._error is not None:
            low.raise_on_error()
        if low.worker.loop is not _running_loop():
            self._ctx.move(low.worker)
        return low

    def _heard(self):
        """The endpoint below, where what has come can be received from."""
        low = self._ep
        if low is None or not low.initialized:
            raise UCXCloseError("Endpoint closed")
        if low.worker.loop is not _running_loop():
            self._ctx.move(low.worker)
        return low

    def _refused(self, error, low, name):
        """For an operation that could not be posted."""
        if error.status not in (ropeway.Status.PEER_GONE, ropeway.Status.CANCELED):
            return of_operation(error, name[0] % name[1])
        if not low._endpoint_error_handling:
            return UCXError(f"<{name[0] % name[1]}>: Input/output error: {error.sentence}")
        if low._error is not None:
            return low.why()
        # It has ended, and nobody here has heard so yet: as if it had been posted just before.
        return canceled(name)

    # ---- tags ----

    def _tag(self, base, tag):
        """The tag on the wire. Integers as UCX-Py makes it; anything else by the sha1 of its
        repr, which is the same in every process."""
        key = (base, tag)
        try:
            return self._hashes[key]
        except (KeyError, TypeError):
            pass
        try:
            number = hash(operator.index(tag))
        except TypeError:
            number = hash64bits(tag)
        number = hash64bits(base, number)
        if len(self._hashes) < 1024 and type(tag) in (int, str):
            self._hashes[key] = number
        return number

    def _of_peer(self, key):
        if self._tags is None:
            raise ValueError(
                "an endpoint made from a worker's address has no tag of its own: "
                "pass a tag, and force_tag=True"
            )
        return self._tags[key]

    # ---- messages ----

    async def send(self, buffer, tag=None, force_tag=False, *, nbytes=None):
        """Sends a buffer.

        buffer: has the buffer protocol, or `__cuda_array_interface__`; contiguous.
        tag: the peer's recv() needs the same; it counts for this connection only.
        force_tag: the tag goes out as it is, an integer of 64 bits.
        nbytes: only so many bytes of the buffer, from its beginning.

        Done when the buffer can be used again. UCXConnectionReset: the peer has gone.
        UCXCanceled: it went, or this side closed, before the message was on its way.
        """
        low = self._live()
        view, size, kind, _ = view_of(buffer, nbytes, self._context)
        # What is small leaves in a copy: then its buffer is free at once, wherever the copy is.
        small = size <= self._eager_bytes and type(view) is memoryview
        if tag is None:
            tag = self._of_peer("msg_send")
        elif not force_tag:
            tag = self._tag(self._of_peer("msg_send"), tag)
        name = (SEND, (self._send_count, self._uid, tag, size, kind))
        if _debug(DEBUG):
            logger.debug(*name[:1], *name[1])
        self._send_count += 1
        try:
            op = low._core.send(view.tobytes("A") if small else view, tag)
            if op.done():
                op.result()
                return True
        except ropeway.Error as error:
            raise self._refused(error, low, name) from error
        if not small or not low.hold(op, size):
            await finish(low, op, name)
        return True

    async def recv(self, buffer, tag=None, force_tag=False, *, nbytes=None):
        """Receives into a buffer, which has to be as long as the message.

        Arguments as of send(). With force_tag from any endpoint of the worker.

        Done when the message is in the buffer. UCXMsgTruncated: it was shorter. UCXError: it was
        longer. UCXCanceled: the peer went before it came. UCXConnectionReset: the peer had gone,
        and nothing was left.
        """
        low = self._heard()
        if tag is None:
            tag = self._of_peer("msg_recv")
            source = low._core
        elif not force_tag:
            tag = self._tag(self._of_peer("msg_recv"), tag)
            source = low._core
        else:
            source = low.worker.core
        if low._error is not None and not has(source, tag):
            low.raise_on_error()
        view, size, kind, readonly = view_of(buffer, nbytes, self._context)
        if readonly:
            raise ValueError("writing to readonly buffer!")
        name = (RECV, (self._recv_count, self._uid, tag, size, kind))
        if _debug(DEBUG):
            logger.debug(*name[:1], *name[1])
        self._recv_count += 1
        try:
            op = source.recv(view, tag)
        except ropeway.Error as error:
            raise self._refused(error, low, name) from error
        got = await finish(low, op, name)
        if got[0] != size:
            raise mismatch(name[0] % name[1], got[0], size)
        if size > self._eager_bytes:
            # Its sender waits for word of it, perhaps in this very process.
            low.worker.nudge()
        self._received()
        return True

    async def am_send(self, buffer):
        """Sends a buffer for the peer's am_recv(), which knows neither its length nor its kind."""
        low = self._live()
        held = buffer if isinstance(buffer, Array) else Array(buffer)
        name = (AM_SEND, (self._send_count, self._uid, held.nbytes, type(held.obj)))
        if _debug(DEBUG):
            logger.debug(*name[:1], *name[1])
        self._send_count += 1
        size = held.nbytes
        small = size <= self._eager_bytes and not held.cuda
        if small:
            held = Array(held.buffer.tobytes("A"))
        try:
            op = am_post(low, held, size, self._context)
            if op.done():
                op.result()
                return True
        except ropeway.Error as error:
            raise self._refused(error, low, name) from error
        if not small or not low.hold(op, size):
            await finish(low, op, name)
        return True

    async def am_recv(self):
        """Receives what the peer's am_send() sent: in memory of register_am_allocator()'s
        allocator, by default a bytearray."""
        low = self._heard()
        inbox = low._inbox
        if not inbox.ready:
            low.raise_on_error()
        name = (AM_RECV, (self._recv_count, self._uid))
        if _debug(DEBUG):
            logger.debug(*name[:1], *name[1])
        self._recv_count += 1
        future = _running_loop().create_future()

        def got(buffer, error):
            if future.done():
                # Its task was cancelled: the message is the next one's.
                inbox.put_back(buffer, error)
            elif error is not None:
                text = f"<{name[0] % name[1]}>: am_recv: {error}"
                future.set_exception(type(error)(text))
            else:
                future.set_result(buffer)

        inbox.get(got)
        try:
            buffer = await future
        except asyncio.CancelledError:
            inbox.forget(got)
            raise
        self._received()
        return buffer

    async def flush(self):
        """Done when all that was sent before is done on the peer's side, too."""
        low = self._live()
        name = ("[Flush] ep: %#x", (self._uid,))
        if _debug(DEBUG):
            logger.debug(*name[:1], *name[1])
        try:
            op = low._core.flush()
        except ropeway.Error as error:
            raise self._refused(error, low, name) from error
        await finish(low, op, name)
        return True

    # ---- its end ----

    def abort(self):
        """Closes at once. What is under way ends with UCXCanceled; messages that were sent still
        arrive. The peer's endpoint ends."""
        low, self._ep = self._ep, None
        if low is not None:
            if _debug(DEBUG):
                logger.debug("Endpoint.abort(): %#x", self._uid)
            low.close()
        self._ctx = None

    async def close(self):
        """Closes. Sends that are under way get CLOSE_S to end; what was sent arrives."""
        low = self._ep
        if low is None or self._shutting_down_peer:
            return
        self._shutting_down_peer = True
        tag = self._tags["ctrl_send"] if self._tags is not None else 0
        name = (SHUTDOWN, (self._uid, tag, self._send_count))
        try:
            if self.closed():
                return
            if _debug(DEBUG):
                logger.debug(*name[:1], *name[1])
            if low._error is not None:
                error = UCXError(f"<{name[0] % name[1]}>: Input/output error: {low._error}")
                logging.warning("closing %#x, whose peer has gone already: %r", self._uid, error)
                return
            if low.worker.loop is not _running_loop():
                self._ctx.move(low.worker)
            sends = [op for op, (form, _) in low._ops.items() if form in (SEND, AM_SEND)]
            if sends:
                await asyncio.wait(sends, timeout=CLOSE_S)
        finally:
            self.abort()

    def set_close_callback(self, callback_func):
        """callback_func() is called once: when the peer has gone, or when this side closes.

        What had come can still be received then. Nothing can be sent.
        """
        self._open().set_close_callback(callback_func)
