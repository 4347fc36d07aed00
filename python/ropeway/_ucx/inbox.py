# SPDX-License-Identifier: BSD-3-Clause
"""Inbox: active messages, and the callbacks that wait for them, in the order of arrival."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any


class Inbox:
    """Of one endpoint."""

    __slots__ = ("ready", "waiting", "ended", "into", "__weakref__")

    #: The exception that waiting callbacks get when no message comes.
    canceled: type[Exception]

    def __init__(self) -> None:
        #: [buffer, error, operation that fills it or None]
        self.ready: collections.deque[list[Any]] = collections.deque()
        self.waiting: collections.deque[Callable[[Any, Any], Any]] = collections.deque()
        self.ended: str | None = None  # why nothing more comes
        self.into: Inbox | None = None  # the inbox that this one's messages go to

    @staticmethod
    def error_of(op: Any) -> BaseException | None:
        """Why an operation failed, as an exception of the module; None: it has not."""
        raise NotImplementedError

    @staticmethod
    def buffer_of(buffer: Any, op: Any) -> Any:
        """The buffer of a message that has come whole; None was put where only the operation gives
        one."""
        return buffer

    def put(self, buffer: Any, error: Any = None, op: Any = None) -> None:
        """A message has come, or has begun to come."""
        if self.into is not None:
            self.into.put(buffer, error, op)
            return
        entry = [buffer, error, op]
        if op is not None and op.done():
            self._fill(entry, op)
            op = None
        self.ready.append(entry)
        if op is None:
            self._deliver()
        else:
            op.add_done_callback(lambda op: self._filled(entry, op))

    def _fill(self, entry: list[Any], op: Any) -> None:
        entry[1], entry[2] = self.error_of(op), None
        if entry[1] is None:
            entry[0] = self.buffer_of(entry[0], op)

    def _filled(self, entry: list[Any], op: Any) -> None:
        self._fill(entry, op)
        self._deliver()

    def _deliver(self) -> None:
        while self.waiting and self.ready and self.ready[0][2] is None:
            buffer, error, _ = self.ready.popleft()
            self.waiting.popleft()(buffer, error)
        if self.ended is not None and not self.ready:
            self.cancel(self.ended)

    def get(self, callback: Callable[[Any, Any], Any]) -> None:
        """Calls back with the next message, or an error: at once, or when it has come."""
        self.waiting.append(callback)
        self._deliver()

    def put_back(self, buffer: Any, error: Any) -> None:
        """Its receiver has gone: the next one gets it."""
        self.ready.appendleft([buffer, error, None])

    def forget(self, callback: Callable[[Any, Any], Any]) -> None:
        """This callback waits no longer."""
        if callback in self.waiting:
            self.waiting.remove(callback)

    def cancel(self, text: str) -> int:
        """Ends all waiting callbacks with `canceled`. Returns how many there were."""
        n = len(self.waiting)
        while self.waiting:
            self.waiting.popleft()(None, self.canceled(text))
        return n

    def end(self, text: str) -> None:
        """Nothing more comes. Waiting callbacks still get the messages that have begun to come."""
        self.ended = text
        self._deliver()

    def join(self, other: Inbox) -> None:
        """The messages of `other`, those that came and those to come, are this one's."""
        other.into = self
        self.ready.extend(other.ready)
        other.ready.clear()
        self._deliver()
