"""Owns what a broken connection means to the caller: which code, and whether the work may have been started.

Called by both halves' transports. Invariant: `admitted` is `no` only when not one byte of the request can have arrived.
"""

from __future__ import annotations

import httpcore2

from kennel.wire.errors import KennelError, error

BROKEN = (
    httpcore2.NetworkError,
    httpcore2.ProtocolError,
    httpcore2.TimeoutException,
    httpcore2.UnsupportedProtocol,
    httpcore2.ConnectionNotAvailable,
)
"""Everything the pool raises for an exchange that did not come to its end."""

UP_HINT = "start it with 'kennel up', or say where it is with KENNEL_URL"


def lost(failure: Exception, url: str) -> KennelError:
    """The error for a failed exchange with the server at `url`."""
    reason = str(failure) or type(failure).__name__
    if isinstance(failure, httpcore2.LocalProtocolError):
        return error("VALIDATION_FAILED", f"the request cannot be sent: {reason}", admitted="no")
    if isinstance(failure, httpcore2.ConnectError | httpcore2.ConnectTimeout | httpcore2.PoolTimeout):
        return error("CONNECTION_LOST", f"no server answers at {url} ({reason})", hint=UP_HINT, admitted="no")
    if isinstance(failure, httpcore2.TimeoutException):
        hint = "look whether it was done before you repeat it, or allow more time"
        return error("WAIT_TIMEOUT", f"the server at {url} did not answer in time", hint=hint, admitted="unknown")
    return error("CONNECTION_LOST", f"the connection to {url} was lost during the call ({reason})", admitted="unknown")


def worth_repeating(failure: KennelError, before: KennelError | None) -> bool:
    """Whether a call that is safe to repeat should be: a server that restarts first drops, then refuses connections.

    A server that refused the very first attempt is not there, and waiting would only delay saying so.
    """
    return failure.code == "CONNECTION_LOST" and (before is not None or failure.admitted == "unknown")
