# SPDX-License-Identifier: BSD-3-Clause
"""Calls that block, and calls that count, for programs without a loop."""

import multiprocessing

from . import ucx_api
from .arr import Array

mp = multiprocessing.get_context("spawn")


def blocking_handler(request, exception, finished):
    """A callback for the blocking calls below."""
    assert exception is None
    finished[0] = True


def _until_done(progress, post, *args, **kwargs):
    """Posts, and moves things on until it is complete."""
    finished = [False]
    if post(*args, cb_func=blocking_handler, cb_args=(finished,), **kwargs) is not None:
        while not finished[0]:
            progress()


def blocking_flush(obj):
    """Flushes an endpoint or a worker."""
    _until_done(obj.progress if hasattr(obj, "progress") else obj.worker.progress, obj.flush)


def blocking_send(worker, ep, msg, tag=0):
    """Sends, and waits until the buffer can be used again."""
    msg = Array(msg)
    _until_done(worker.progress, ucx_api.tag_send_nb, ep, msg, msg.nbytes, tag=tag)


def blocking_recv(worker, ep, msg, tag=0):
    """Receives, and waits for the message."""
    msg = Array(msg)
    _until_done(worker.progress, ucx_api.tag_recv_nb, worker, msg, msg.nbytes, tag=tag, ep=ep)


def non_blocking_handler(request, exception, completed_cb):
    """A callback that tells another one."""
    if exception is not None:
        print(exception)
    assert exception is None
    completed_cb()


def non_blocking_send(worker, ep, msg, started_cb, completed_cb, tag=0):
    """Sends; started_cb is called before, completed_cb at the end."""
    msg = Array(msg)
    started_cb()
    request = ucx_api.tag_send_nb(
        ep, msg, msg.nbytes, tag=tag, cb_func=non_blocking_handler, cb_args=(completed_cb,)
    )
    if request is None:
        completed_cb()
    return request


def non_blocking_recv(worker, ep, msg, started_cb, completed_cb, tag=0):
    """Receives; started_cb is called before, completed_cb at the end."""
    msg = Array(msg)
    started_cb()
    return ucx_api.tag_recv_nb(
        worker,
        msg,
        msg.nbytes,
        tag=tag,
        cb_func=non_blocking_handler,
        cb_args=(completed_cb,),
        ep=ep,
    )


def blocking_am_send(worker, ep, msg):
    """Sends an active message, and waits until the buffer can be used again."""
    msg = Array(msg)
    _until_done(worker.progress, ucx_api.am_send_nbx, ep, msg, msg.nbytes)


def blocking_am_recv_handler(recv_obj, exception, ret):
    """A callback for blocking_am_recv."""
    assert exception is None
    ret[0] = recv_obj


def blocking_am_recv(worker, ep):
    """Waits for an active message."""
    ret = [None]
    ucx_api.am_recv_nb(ep, cb_func=blocking_am_recv_handler, cb_args=(ret,))
    while ret[0] is None:
        worker.progress()
    return ret[0]
