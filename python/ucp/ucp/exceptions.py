# SPDX-License-Identifier: BSD-3-Clause
"""The exceptions of `ucp`, where programs look for them."""

from ._libs.exceptions import (  # noqa: F401
    UCXBaseException,
    UCXCanceled,
    UCXCloseError,
    UCXConfigError,
    UCXConnectionReset,
    UCXError,
    UCXMsgTruncated,
    UCXNotConnected,
    UCXResetError,
    UCXUnreachable,
    UCXWarning,
    log_errors,
)

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
