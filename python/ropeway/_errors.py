# SPDX-License-Identifier: BSD-3-Clause
"""Statuses and the exceptions that carry them."""

from __future__ import annotations

from enum import IntEnum


class Status(IntEnum):
    """What `enum rpw_status` of ropeway.h has, without its RPW_ERR_."""

    OK = 0
    IN_PROGRESS = 1
    INVALID = -1
    NO_MEMORY = -2
    TIMEOUT = -3
    CANCELED = -4
    TRUNCATED = -5
    UNREACHABLE = -6
    REFUSED = -7
    PEER_GONE = -8
    ACCESS = -9
    PROTOCOL = -10
    NOT_SUPPORTED = -11
    LIMIT = -12
    SYSTEM = -13
    EXPIRED = -14


class Error(Exception):
    """What failed, in one sentence, and how.

    status    a Status
    sentence  what was expected, what came, from whom, and what to do
    peer      "host:pid 10.0.0.2:4711", or None
    length    of a message that was longer than its buffer (TRUNCATED): its bytes; else None
    """

    status: Status
    sentence: str
    peer: str | None
    length: int | None

    def __init__(
        self, status: int, sentence: str = "", peer: str | None = None, length: int | None = None
    ) -> None:
        super().__init__(status, sentence, peer, length)
        try:
            self.status = Status(status)
        except ValueError:  # of a newer library
            self.status = status  # type: ignore[assignment]
        self.sentence = sentence
        self.peer = peer
        self.length = length

    def __str__(self) -> str:
        name = self.status.name if isinstance(self.status, Status) else str(self.status)
        peer = f" (peer {self.peer})" if self.peer and self.peer not in self.sentence else ""
        return f"{name}: {self.sentence}{peer}"


class Timeout(Error, TimeoutError):
    """Status TIMEOUT: the peer was silent. Status EXPIRED: a wait of this side ran out of time."""


def make(status: int, sentence: str, peer: str | None, length: int | None) -> Error:
    """The exception for a status, for the C part."""
    kind = Timeout if status in (Status.TIMEOUT, Status.EXPIRED) else Error
    return kind(status, sentence, peer, length)
