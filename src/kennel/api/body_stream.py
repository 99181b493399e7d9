"""Owns bodies that are taken as they come: bytes of any number, never more than one piece of them at a time.

Called by the routes of files and archives. Invariant: a caller that leaves or falls silent ends the iteration with a
typed error, so that nothing takes half a body for a whole one.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import AsyncIterator

from fastapi import Request
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from kennel.api.body import PATIENCE
from kennel.api.failures import failure_response, invalid
from kennel.wire.errors import KennelError, error


async def body_of(request: Request) -> AsyncIterator[bytes]:
    """The body as it comes; OPERATION_INTERRUPTED when the caller leaves, WAIT_TIMEOUT when it falls silent."""
    stream = aiter(request.stream())
    while True:
        try:
            async with asyncio.timeout(PATIENCE):
                piece = await anext(stream, None)
        except TimeoutError:
            raise error("WAIT_TIMEOUT", "the request's body did not arrive", admitted="no") from None
        except ClientDisconnect:
            raise error("OPERATION_INTERRUPTED", "the caller hung up", admitted="no") from None
        if piece is None:
            return
        if piece:
            yield piece


async def decoded(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Base64 as bytes, four characters at a time; VALIDATION_FAILED for anything else."""
    rest, ended = b"", False
    try:
        async for piece in pieces:
            rest += piece
            if ended:
                raise ValueError("bytes after the padding")
            whole = len(rest) // 4 * 4
            if b"=" in rest[: whole - 4]:
                raise ValueError("padding in the middle")
            yield base64.b64decode(rest[:whole], validate=True)
            ended, rest = b"=" in rest[:whole], rest[whole:]
        if rest:
            raise ValueError("the last group is not whole")
    except (binascii.Error, ValueError):
        raise invalid({"body": ["not base64"]}) from None


def unread(failure: KennelError) -> Response:
    """The answer to a request whose body was not taken to its end: a caller that is still sending need not go on."""
    return failure_response(failure, {"connection": "close"})
