# SPDX-License-Identifier: BSD-3-Clause
"""The exceptions of ucxx, and which of them stands for a status of ropeway.

Every failure of communication is a UCXError. An endpoint that this process has closed raises
UCXCloseError, one that its peer has ended UCXConnectionResetError; a receive that was pending then
ends with UCXCanceledError. A receive whose buffer is too small for the message ends with
UCXMessageTruncatedError, which says both lengths.
"""

from __future__ import annotations

import ropeway


class UCXError(Exception):
    """Base of all the others."""


def _define(name: str) -> type[UCXError]:
    return type(name, (UCXError,), {"__module__": __name__})


UCXNoMessageError = _define("UCXNoMessageError")
UCXNoResourceError = _define("UCXNoResourceError")
UCXIOError = _define("UCXIOError")
UCXNoMemoryError = _define("UCXNoMemoryError")
UCXInvalidParamError = _define("UCXInvalidParamError")
UCXUnreachableError = _define("UCXUnreachableError")
UCXInvalidAddrError = _define("UCXInvalidAddrError")
UCXNotImplementedError = _define("UCXNotImplementedError")
UCXMessageTruncatedError = _define("UCXMessageTruncatedError")
UCXNoProgressError = _define("UCXNoProgressError")
UCXBufferTooSmallError = _define("UCXBufferTooSmallError")
UCXNoElemError = _define("UCXNoElemError")
UCXSomeConnectsFailedError = _define("UCXSomeConnectsFailedError")
UCXNoDeviceError = _define("UCXNoDeviceError")
UCXBusyError = _define("UCXBusyError")
UCXCanceledError = _define("UCXCanceledError")
UCXShmemSegmentError = _define("UCXShmemSegmentError")
UCXAlreadyExistsError = _define("UCXAlreadyExistsError")
UCXOutOfRangeError = _define("UCXOutOfRangeError")
UCXTimedOutError = _define("UCXTimedOutError")
UCXExceedsLimitError = _define("UCXExceedsLimitError")
UCXUnsupportedError = _define("UCXUnsupportedError")
UCXRejectedError = _define("UCXRejectedError")
UCXNotConnectedError = _define("UCXNotConnectedError")
UCXConnectionResetError = _define("UCXConnectionResetError")
UCXFirstLinkFailureError = _define("UCXFirstLinkFailureError")
UCXLastLinkFailureError = _define("UCXLastLinkFailureError")
UCXFirstEndpointFailureError = _define("UCXFirstEndpointFailureError")
UCXEndpointTimeoutError = _define("UCXEndpointTimeoutError")
UCXLastEndpointFailureError = _define("UCXLastEndpointFailureError")
UCXCloseError = _define("UCXCloseError")
UCXConfigError = _define("UCXConfigError")

# Older names of the same.
UCXCanceled = UCXCanceledError
UCXMsgTruncated = UCXMessageTruncatedError

_Status = ropeway.Status

_of_status: dict[int, type[UCXError]] = {
    _Status.INVALID: UCXInvalidParamError,
    _Status.NO_MEMORY: UCXNoMemoryError,
    _Status.TIMEOUT: UCXEndpointTimeoutError,
    _Status.CANCELED: UCXCanceledError,
    _Status.TRUNCATED: UCXMessageTruncatedError,
    _Status.UNREACHABLE: UCXUnreachableError,
    _Status.REFUSED: UCXRejectedError,
    _Status.PEER_GONE: UCXConnectionResetError,
    _Status.ACCESS: UCXRejectedError,
    _Status.PROTOCOL: UCXIOError,
    _Status.NOT_SUPPORTED: UCXUnsupportedError,
    _Status.LIMIT: UCXExceedsLimitError,
    _Status.SYSTEM: UCXIOError,
    _Status.EXPIRED: UCXTimedOutError,
}

# The statuses with which an operation of an endpoint ends because the endpoint does.
_ENDED = frozenset((_Status.PEER_GONE, _Status.UNREACHABLE, _Status.PROTOCOL, _Status.TIMEOUT))


def of_failure(error: ropeway.Error) -> UCXError:
    """The exception for an operation that failed at once, or a connection that did not come up."""
    text = str(error)
    status = error.status
    if status == _Status.PEER_GONE:
        text = f"Connection reset by remote peer: {text}"
    elif status == _Status.UNREACHABLE:
        text = f"Destination is unreachable: {text}"
    elif status == _Status.CANCELED:
        text = f"Request canceled: {text}"
    return _of_status.get(status, UCXError)(text)


def of_pending_recv(error: ropeway.Error) -> UCXError:
    """The exception for a receive that was pending: canceled, if its endpoint has ended."""
    if error.status in _ENDED:
        return UCXCanceledError(f"Request canceled: {error}")
    return of_failure(error)


def of_end(status: int, text: str) -> UCXError:
    """The exception that says why an endpoint is of no use any more.

    The peer's orderly end (status 0) is a reset, too, for who goes on to use the endpoint.
    """
    if status in (_Status.OK, _Status.PEER_GONE):
        return UCXConnectionResetError(f"Connection reset by remote peer: {text}")
    if status in (_Status.UNREACHABLE, _Status.TIMEOUT):
        return UCXEndpointTimeoutError(f"Endpoint timeout: Destination is unreachable: {text}")
    return _of_status.get(status, UCXConnectionResetError)(text)


def length_mismatch(got: int, expected: int) -> UCXError:
    """The exception for a message that does not fit the buffer of its receive."""
    return UCXMessageTruncatedError(
        f"Message truncated: length mismatch: {got} (got) != {expected} (expected)"
    )
