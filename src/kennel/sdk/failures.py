"""Owns what a broken connection means to the caller: which code, and whether the work may have been started.

Called by both halves' transports. Invariant: `admitted` is `no` only when not one byte of the request can have arrived.
"""

from __future__ import annotations

import socket
from contextlib import suppress

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


def may_follow_on(failure: KennelError, reached: bool) -> bool:
    """Whether a follower should connect again: the connection broke or fell silent, and there had been one."""
    broken = failure.code == "CONNECTION_LOST" or (failure.code == "WAIT_TIMEOUT" and failure.admitted == "unknown")
    return broken and (reached or failure.admitted == "unknown")


def hang_up(response: httpcore2.Response) -> None:
    """Ends the connection that an answer is read from, so that whoever waits for its bytes sees the end."""
    stream = response.extensions.get("network_stream")
    connection = None if stream is None else stream.get_extra_info("socket")
    if isinstance(connection, socket.socket):
        with suppress(OSError):  # it is closed already
            # Not `connection.shutdown`: that of a TLS socket pulls the state away under the thread that reads.
            socket.socket.shutdown(connection, socket.SHUT_RDWR)


def worth_repeating(failure: KennelError, before: KennelError | None) -> bool:
    """Whether a call that is safe to repeat should be: a server that restarts first drops, then refuses connections.

    A server that refused the very first attempt is not there, and waiting would only delay saying so.
    """
    return failure.code == "CONNECTION_LOST" and (before is not None or failure.admitted == "unknown")
