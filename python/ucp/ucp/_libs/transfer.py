# SPDX-License-Identifier: BSD-3-Clause
"""Messages with callbacks: what is done at once gives None, what is not a request."""

import asyncio
import logging

import ropeway
from ropeway._ucx.calls import Feature, needs

from .am import AM_ID, HEADER, INLINE_MAX, PAYLOAD_TAG, STREAM_ID
from .exceptions import UCXCanceled, UCXMsgTruncated, log_errors, of_operation

logger = logging.getLogger("ucx")
ALL = ropeway.ALL


class UCXRequest:
    """An operation under way."""

    __slots__ = ("_op", "info")

    def __init__(self, op, name):
        self._op = op
        self.info = {"status": "pending", "name": name}

    def closed(self):
        """Whether it is complete."""
        return self._op is None

    def close(self):
        """Forgets it. It goes on by itself."""
        self._op = None

    def cancel(self):
        """Asks it to end."""
        if self._op is not None:
            self._op.cancel()

    @property
    def handle(self):
        """A number that no other live request of this process has."""
        assert not self.closed()
        return id(self._op)

    def __repr__(self):
        if self.closed():
            return "<UCXRequest closed>"
        return f"<UCXRequest handle={self.handle:#x} info={self.info}>"


def error_of(op, name, expected):
    """Why a complete operation failed; None: it has not.

    expected: the bytes that a receive is to have; None: it was no receive."""
    try:
        got = op.result()
    except ropeway.Error as error:
        return of_operation(error, name)
    except asyncio.CancelledError:
        return UCXCanceled(f"<{name}>: ")
    if expected is not None and got[0] != expected:
        return mismatch(name, got[0], expected)
    return None


def mismatch(name, got, expected):
    """A message that was shorter than its buffer."""
    return UCXMsgTruncated(f"<{name}>: length mismatch: {got} (got) != {expected} (expected)")


def follow(endpoint, op, cb_func, cb_args, cb_kwargs, name, expected=None):
    """None where it was complete at once. Else calls back at its end.

    expected: as of error_of."""
    if op.done():
        error = error_of(op, name, expected)
        if error is not None:
            raise error
        return None
    request = UCXRequest(op, name)
    if endpoint is not None:
        endpoint.track(op, name)

    def done(op):
        if endpoint is not None:
            endpoint._ops.pop(op, None)
            endpoint._cancelled.discard(op)
        request.info["status"] = "finished"
        error = error_of(op, name, expected)
        with log_errors():
            try:
                if cb_func is not None:
                    cb_func(request, error, *(cb_args or ()), **(cb_kwargs or {}))
            finally:
                request.close()

    op.add_done_callback(done)
    return request


class Together:
    """Several operations, followed as one: its result is the first error, or None."""

    def __init__(self, ops):
        self._ops = ops

    def done(self):
        """Whether all are complete."""
        return all(op.done() for op in self._ops)

    def result(self):
        """Raises what the first that failed did."""
        for op in self._ops:
            op.result()

    def cancel(self):
        """Asks all to end."""
        for op in self._ops:
            op.cancel()

    def add_done_callback(self, fn):
        """Calls fn when the last one is complete."""
        left = {op for op in self._ops if not op.done()}

        def one_is(op):
            left.discard(op)
            if not left:
                fn(self)

        for op in list(left):
            op.add_done_callback(one_is)


def bytes_of(buffer, nbytes, context):
    """What ropeway takes of an Array: its first nbytes."""
    if buffer.cuda and not context.cuda_support:
        raise ValueError(
            "UCX is not configured with CUDA support: add `cuda_copy` or `cuda_ipc` to UCX_TLS"
        )
    if not buffer.contiguous:
        raise ValueError("Array must be C or F contiguous")
    if nbytes > buffer.nbytes:
        raise ValueError(f"the buffer has {buffer.nbytes} bytes, less than nbytes: {nbytes}")
    if nbytes == buffer.nbytes:
        return buffer.buffer
    return memoryview(buffer.buffer).cast("B")[:nbytes]


def tag_send_nb(ep, buffer, nbytes, tag, cb_func, cb_args=None, cb_kwargs=None, name="tag_send_nb"):
    """Sends the first nbytes of an Array with a tag.

    Gives None where the buffer can be used again at once: then nobody is called. Else a request,
    and cb_func(request, exception, *cb_args, **cb_kwargs) is called when it can be."""
    ep.raise_on_error()
    context = ep.worker._context
    needs(Feature.TAG, context._feature_flags)
    try:
        op = ep._core.send(bytes_of(buffer, nbytes, context), tag)
    except ropeway.Error as error:
        raise of_operation(error, name) from error
    return follow(ep, op, cb_func, cb_args, cb_kwargs, name)


def tag_recv_nb(
    worker,
    buffer,
    nbytes,
    tag,
    cb_func,
    tag_mask=-1,
    cb_args=None,
    cb_kwargs=None,
    name="tag_recv_nb",
    ep=None,
):
    """Receives a message whose tag is `tag` in the bits of tag_mask, from anybody.

    ep: the endpoint whose end cancels it; None: only the worker's does. As tag_send_nb else, but
    where the message was there already cb_func is called, and None given."""
    needs(Feature.TAG, worker._context._feature_flags)
    if buffer.readonly:
        raise ValueError("writing to readonly buffer!")
    where = bytes_of(buffer, nbytes, worker._context)
    try:
        op = worker.core.recv(where, tag, tag_mask & ALL)
    except ropeway.Error as error:
        raise of_operation(error, name) from error
    request = follow(ep, op, cb_func, cb_args, cb_kwargs, name, nbytes)
    if request is None and cb_func is not None:
        cb_func(None, None, *(cb_args or ()), **(cb_kwargs or {}))
    return request


def am_post(ep, buffer, nbytes, context):
    """Posts an active message: the operation."""
    data = bytes_of(buffer, nbytes, context)
    kind = 1 if buffer.cuda else 0
    if nbytes <= INLINE_MAX and not buffer.cuda:
        return ep._core.am_send(AM_ID, data, HEADER.pack(kind, 0))
    ep._core.am_send(AM_ID, b"", HEADER.pack(kind, nbytes))
    return ep._core.send(data, PAYLOAD_TAG)


def am_send_nbx(ep, buffer, nbytes, cb_func, cb_args=None, cb_kwargs=None, name="am_send_nb"):
    """Sends an active message, for the am_recv_nb of the endpoint's other side."""
    needs(Feature.AM, ep.worker._context._feature_flags)
    ep.raise_on_error()
    try:
        op = am_post(ep, buffer, nbytes, ep.worker._context)
    except ropeway.Error as error:
        raise of_operation(error, name) from error
    return follow(ep, op, cb_func, cb_args, cb_kwargs, name)


def am_recv_nb(ep, cb_func, cb_args=None, cb_kwargs=None, name="am_recv_nb"):
    """Calls cb_func(buffer, exception, *cb_args, **cb_kwargs) with the next active message, in
    memory that the worker's allocator gave. At once where it is there."""
    needs(Feature.AM, ep.worker._context._feature_flags)

    def got(buffer, error):
        with log_errors():
            cb_func(buffer, error, *(cb_args or ()), **(cb_kwargs or {}))

    ep._inbox.get(got)


def stream_send_nb(
    ep, buffer, nbytes, cb_func, cb_args=None, cb_kwargs=None, name="stream_send_nb"
):
    """Sends bytes that keep no boundaries: the other side receives as many at once as it likes."""
    needs(Feature.STREAM, ep.worker._context._feature_flags)
    ep.raise_on_error()
    try:
        op = ep._core.am_send(STREAM_ID, bytes_of(buffer, nbytes, ep.worker._context))
    except ropeway.Error as error:
        raise of_operation(error, name) from error
    return follow(ep, op, cb_func, cb_args, cb_kwargs, name)


def stream_recv_nb(
    ep, buffer, nbytes, cb_func, cb_args=None, cb_kwargs=None, name="stream_recv_nb"
):
    """Receives nbytes of the stream into an Array."""
    context = ep.worker._context
    needs(Feature.STREAM, context._feature_flags)
    if buffer.readonly:
        raise ValueError("writing to readonly buffer!")
    where = memoryview(bytes_of(buffer, nbytes, context)).cast("B")
    request = UCXRequest(ep, name)

    def got(data, error):
        if error is None:
            where[:] = data
        request.info["status"] = "finished"
        with log_errors():
            if cb_func is not None:
                cb_func(request, error, *(cb_args or ()), **(cb_kwargs or {}))
        request.close()

    ep._inbox.stream_get(nbytes, got)
    return None if request.closed() else request
