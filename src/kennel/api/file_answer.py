"""Owns a file as an HTTP answer: ranges, validators, media type, bytes as fast as the caller takes them.

Called by the route that reads files. Invariants: what is missing or out of reach is said before the first byte; an
answer that cannot be finished breaks its connection instead of ending; nothing of a sandbox is shown as a page.
"""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from email.utils import formatdate, parsedate_to_datetime

from fastapi import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from kennel.api.hangup import unless_hung_up
from kennel.domain.file import FileFacts
from kennel.domain.media_type import media_type
from kennel.ports.files import Download
from kennel.wire.errors import KennelError, error

logger = logging.getLogger("kennel.api")

_RANGE = re.compile(r"bytes=(?:([0-9]{1,18})-([0-9]{0,18})|-([0-9]{1,18}))")
SAFE_HEADERS = {
    "x-content-type-options": "nosniff",
    "content-security-policy": "sandbox; default-src 'none'",
    "content-disposition": "attachment",
    "cache-control": "private, no-cache",
}
"""A sandbox's bytes come from this origin: no browser is to run them here."""

Open = Callable[[int, int | None], AbstractAsyncContextManager[Download]]


def wanted_range(value: str | None) -> tuple[int, int | None] | None:
    """(start, count) of a Range header with one range; start below 0 counts from the end. None for all else."""
    match = _RANGE.fullmatch(value.strip()) if value else None
    if match is None:
        return None
    if match[3] is not None:
        return (-int(match[3]), int(match[3]))
    start = int(match[1])
    if not match[2]:
        return (start, None)
    return (start, int(match[2]) - start + 1) if int(match[2]) >= start else None


def validators(facts: FileFacts) -> dict[str, str]:
    """Headers by which a caller knows this content again."""
    seconds = max(0, facts.mtime_ns // 1_000_000_000)
    stamp = formatdate(min(seconds, 253_402_300_799), usegmt=True)
    return {"etag": facts.etag, "last-modified": stamp, "accept-ranges": "bytes"}


def unchanged(request: Request, facts: FileFacts) -> bool:
    """Whether the caller's copy is this content (If-None-Match, else If-Modified-Since)."""
    tags = request.headers.get("if-none-match")
    if tags is not None:
        return tags.strip() == "*" or facts.etag in [tag.strip().removeprefix("W/") for tag in tags.split(",")]
    return _not_since(request.headers.get("if-modified-since"), facts)


def _not_since(stamp: str | None, facts: FileFacts) -> bool:
    if not stamp:
        return False
    try:
        return facts.mtime_ns // 1_000_000_000 <= parsedate_to_datetime(stamp).timestamp()
    except (ValueError, OverflowError):
        return False


def range_holds(request: Request, facts: FileFacts) -> bool:
    """Whether If-Range lets the range count: the caller's part is of this content."""
    tag = request.headers.get("if-range")
    return tag is None or tag.strip() == facts.etag


class Streamed(Response):
    """An answer whose source is opened when it is sent: a failure before the first byte is a typed answer, a later one
    leaves the answer unfinished, at which the server breaks the connection."""

    def __init__(self) -> None:
        super().__init__()
        self._started = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await unless_hung_up(Request(scope, receive), self.serve(send))
        except KennelError as failure:
            if not self._started and failure.code != "OPERATION_INTERRUPTED":
                raise
            logger.info("an answer was left unfinished: %s", failure)

    async def serve(self, send: Send) -> None:
        """Opens the source and sends it."""
        raise NotImplementedError

    async def begin(self, send: Send, status: int, headers: dict[str, str]) -> None:
        """The head, after which there is no way back."""
        pairs = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        self._started = True
        await send({"type": "http.response.start", "status": status, "headers": pairs})

    @staticmethod
    async def rest(send: Send, first: bytes, pieces: AsyncIterator[bytes]) -> None:
        """The bytes, and the proper end."""
        if first:
            await send({"type": "http.response.body", "body": first, "more_body": True})
        async for piece in pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class FileAnswer(Streamed):
    """One file, or a range of it."""

    def __init__(
        self, name: bytes, opens: Open, wanted: tuple[int, int | None] | None, *, disposition: str | None = None
    ) -> None:
        super().__init__()
        self._disposition = {} if disposition is None else {"content-disposition": disposition}
        self._name = name
        self._open = opens
        self._wanted = wanted

    async def serve(self, send: Send) -> None:
        """Opens the file, and sends what was asked for."""
        start, count = self._wanted or (0, None)
        async with self._open(start, count) as download:
            size = download.facts.size
            partial = self._wanted is not None and size is not None
            if partial and (download.count == 0 or (size or 0) <= download.start):
                raise error("RANGE_NOT_SATISFIABLE", f"the file has {size} bytes", details={"size": size})
            pieces = aiter(download)
            first = await anext(pieces, b"")
            whole = first if download.start == 0 else b""
            headers = {**SAFE_HEADERS, **self._disposition, **validators(download.facts)}
            headers["content-type"] = media_type(self._name, whole)
            if download.count is not None:
                headers["content-length"] = str(download.count)
            if partial:
                last = download.start + (download.count or 0) - 1
                headers["content-range"] = f"bytes {download.start}-{last}/{size}"
            await self.begin(send, 206 if partial else 200, headers)
            await self.rest(send, first, pieces)
