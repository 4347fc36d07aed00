# SPDX-License-Identifier: BSD-3-Clause
"""UCXListener: takes connections at a port."""

from __future__ import annotations

import logging
import weakref
from typing import Any, Callable

import ropeway

from .. import _options
from .._connection import Connection
from .._home import Home
from .context import Numbered, handles
from .endpoint import UCXEndpoint
from .worker import UCXWorker

logger = logging.getLogger("ucx")


class UCXListener(Numbered):
    """Takes connections at a port, until it is dropped."""

    def __init__(self) -> None:
        raise TypeError("UCXListener cannot be instantiated directly.")

    @classmethod
    def create(
        cls,
        worker: UCXWorker,
        port: int,
        cb_func: Callable,
        cb_args: tuple | None = None,
        cb_kwargs: dict | None = None,
        deliver_endpoint: bool = False,
    ) -> UCXListener:
        """Begins to listen.

        Parameters
        ----------
        port
            0: any free one.
        cb_func
            Called for each connection with a number, which `create_endpoint_from_conn_request`
            takes; with the endpoint, where `deliver_endpoint` is true. `cb_args` and `cb_kwargs`
            follow it.
        """
        self = object.__new__(cls)
        self._worker_handle = worker.handle
        self._context = worker._context
        self._home = home = worker.home()
        self.enable_python_future = worker.enable_python_future
        self._requests: dict[int, Connection] = {}
        self.handle = next(handles)
        args, kwargs = cb_args or (), cb_kwargs or {}
        me = weakref.ref(self)

        def accepted(core: ropeway.core.Endpoint) -> None:
            listener = me()
            if listener is None:
                core.close()
                return
            listener._accepted(core, deliver_endpoint, cb_func, args, kwargs)

        self._listener = home.run(home.listen, port, accepted)
        weakref.finalize(self, _stop_listening, home, self._listener, self._requests)
        return self

    def _accepted(
        self, core: ropeway.core.Endpoint, deliver: bool, fn: Callable, args: tuple, kwargs: dict
    ) -> None:
        connection = Connection(self._home, core)
        number = next(handles)
        self._requests[number] = connection
        what = self._claim(number) if deliver else number
        try:
            fn(what, *args, **kwargs)
        except Exception as error:
            logger.error("%s when calling listener callback: %s", type(error), error)

    def _claim(self, number: int) -> UCXEndpoint:
        connection = self._requests.pop(number, None)
        if connection is None:
            raise ValueError(
                f"{number} is no connection of this listener that is still to be taken"
            )
        return UCXEndpoint._of(connection, self._context, self._worker_handle)

    def create_endpoint_from_conn_request(
        self, conn_request: int, endpoint_error_handling: bool = True
    ) -> UCXEndpoint:
        return self._claim(conn_request)

    @property
    def port(self) -> int:
        return self._listener.port

    @property
    def ip(self) -> str:
        """The address that it is bound to; "0.0.0.0": all of them."""
        return _options.listen_host(self._home.config["NET_DEVICES"]) or "0.0.0.0"


def _stop_listening(home: Home, listener: Any, requests: dict[int, Connection]) -> None:
    def stop() -> None:
        listener.close()
        for connection in requests.values():
            connection.close()
        requests.clear()

    try:
        home.run(stop)
    except ropeway.Error as error:
        logger.debug("the end of a listener: %s", error)
