# SPDX-License-Identifier: BSD-3-Clause
"""A listener: calls back with each connection that was made."""

import logging
import weakref

from ropeway._ucx.calls import translated

from .am import Inbox
from .exceptions import log_errors, of_listen
from .objects import UCXObject, close_core

logger = logging.getLogger("ucx")


class UCXListener(UCXObject):
    """Listens at a port of all addresses, until it is closed or dropped.

    cb_func: called with a connection request (a number), then cb_args and cb_kwargs.
    """

    def __init__(self, worker, port, cb_func, cb_args=None, cb_kwargs=None):
        assert worker.initialized
        self._call = [cb_func, cb_args or (), cb_kwargs or {}]
        call, me = self._call, weakref.ref(worker)
        with translated(of_listen):
            self._core = worker.core._listen(f":{port}", lambda core: _accepted(me, core, call))
        self.port = self._core.port
        self.ip = "0.0.0.0"
        self._open(worker)

    @property
    def handle(self):
        """A number that no other live listener of this process has."""
        assert self.initialized
        return id(self._core)

    def _close(self):
        self._call.clear()
        close_core(self._core, self._core.context)


def _accepted(worker, core, call):
    worker = worker()
    if worker is None or not call:
        core.close()
        return
    inbox = Inbox()
    core.user = inbox
    worker._request_count += 1
    number = worker._request_count
    worker._requests[number] = (core, inbox)
    func, args, kwargs = call
    with log_errors():
        func(number, *args, **kwargs)
