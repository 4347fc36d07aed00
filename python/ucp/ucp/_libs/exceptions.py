# SPDX-License-Identifier: BSD-3-Clause
"""The exceptions of `ucp`, and how ropeway's errors become them."""

import contextlib
import logging

logger = logging.getLogger("ucx")

__all__ = [
    "UCXBaseException",
    "UCXCanceled",
    "UCXCloseError",
    "UCXConfigError",
    "UCXConnectionReset",
    "UCXError",
    "UCXMsgTruncated",
    "UCXNotConnected",
    "UCXResetError",
    "UCXUnreachable",
    "UCXWarning",
    "log_errors",
]


class UCXBaseException(Exception):
    """Every exception of `ucp` is one."""


class UCXError(UCXBaseException):
    """An operation failed."""


class UCXConfigError(UCXError):
    """An option has a value that it cannot have."""


class UCXResetError(UCXError, RuntimeError):
    """reset() was called while endpoints or listeners were in use."""


class UCXWarning(UserWarning):
    """A warning of `ucp`."""


class UCXCloseError(UCXBaseException):
    """The endpoint is closed on this side."""


class UCXCanceled(UCXBaseException):
    """The operation was under way when its endpoint ended."""


class UCXConnectionReset(UCXBaseException):
    """The peer has closed the connection, or its process has ended."""


class UCXMsgTruncated(UCXBaseException):
    """The message was shorter than the buffer that it was received into."""


class UCXNotConnected(UCXBaseException):
    """Nobody answers at that address."""


class UCXUnreachable(UCXBaseException):
    """The peer answers, but there is no path to it."""


@contextlib.contextmanager
def log_errors(reraise_exception=False):
    """Logs what is raised inside, and raises it further where asked to."""
    try:
        yield
    except BaseException as error:
        logger.exception(error)
        if reraise_exception:
            raise


def of_sentence(error):
    """The exception for a ropeway.Error that says all."""
    return UCXError(error.sentence)


def of_operation(error, name):
    """The exception for a ropeway.Error of the operation `name`, as it reads in the log."""
    status = error.status
    if status in (_CANCELED, _PEER_GONE):
        return UCXCanceled(f"<{name}>: {_sentence(error)}")
    if status == _TRUNCATED:
        return UCXError(f"<{name}>: Message truncated")
    if status == _UNREACHABLE:
        return UCXError(f"<{name}>: Destination is unreachable: {_sentence(error)}")
    return UCXError(f"<{name}>: {_sentence(error)}")


def of_connect(error):
    """The exception for a ropeway.Error of a connection that was not made."""
    if error.status in (_TIMEOUT, _EXPIRED):
        return TimeoutError(error.sentence)
    if error.status == _UNREACHABLE and error.sentence.startswith("no path to"):
        return UCXUnreachable(f"Destination is unreachable: {error.sentence}")
    if error.status in (_UNREACHABLE, _REFUSED, _PEER_GONE):
        return UCXNotConnected(f"Not connected: {_sentence(error)}")
    if error.status == _CANCELED:
        return UCXCanceled(f"<connect>: {_sentence(error)}")
    return UCXError(_sentence(error))


def of_listen(error):
    """The exception for a ropeway.Error of a listener that was not made."""
    if error.status == _SYSTEM and "in use" in error.sentence:
        return UCXError(f"Device is busy: {error.sentence}")
    return UCXError(_sentence(error))


def _sentence(error):
    return error.sentence or str(error)


# Numbers of enum rpw_status: comparisons with an IntEnum cost more.
_TIMEOUT = -3
_CANCELED = -4
_TRUNCATED = -5
_UNREACHABLE = -6
_REFUSED = -7
_PEER_GONE = -8
_SYSTEM = -13
_EXPIRED = -14
