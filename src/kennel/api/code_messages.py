"""Owns how a cell of code looks on the wire: Server-Sent Events while it runs, or one answer at its end.

Called by the routes of contexts. Invariant: both say the same; the text of one stream is whole in its order, and what
was left out is told by `truncated`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import msgspec

from kennel.api.event_stream import message
from kennel.control.followed import StreamEvent
from kennel.wire.errors import error, from_wire

_encoder = msgspec.json.Encoder()
PATIENCE = 5.0
"""Seconds the first event is waited for before the answer begins anyway: a cell may wait for its turn for hours."""
FAREWELL = message(
    _encoder.encode(error("OPERATION_INTERRUPTED", "the server is being stopped", admitted="unknown").to_wire()),
    event="failure",
)


class Cell:
    """A cell's events: `begin` raises what refuses it, `messages` and `execution` carry on from there."""

    def __init__(self, events: AsyncIterator[StreamEvent]) -> None:
        self._events = events
        self._first: asyncio.Task[StreamEvent | None] | None = None

    async def begin(self) -> None:
        """Waits for the first event, for a while."""
        self._first = asyncio.ensure_future(self._next())
        try:
            done, _ = await asyncio.wait({self._first}, timeout=PATIENCE)
        except BaseException:
            await self.close()
            raise
        first = self._first.result() if done else None
        if first is not None and first.kind == "failure":
            await self.close()
            raise from_wire(500, first.body)

    async def _next(self) -> StreamEvent | None:
        return await anext(self._events, None)

    async def _each(self) -> AsyncGenerator[StreamEvent, None]:
        first, self._first = self._first, None
        event = await (first if first is not None else self._next())
        while event is not None:
            yield event
            event = await self._next()

    async def messages(self) -> AsyncGenerator[bytes, None]:
        """Server-Sent Events; the id is the event's number."""
        try:
            async for event in self._each():
                yield message(_encoder.encode(event.body), event=event.kind, last_id=event.sequence)
        finally:
            await self.close()

    async def execution(self) -> dict[str, Any]:
        """The whole of it; raises what it came to nothing for."""
        logs: dict[str, list[str]] = {"stdout": [], "stderr": []}
        found: dict[str, Any] = {"logs": logs, "results": [], "error": None}
        try:
            async for event in self._each():
                if event.kind in logs:
                    logs[event.kind].append(event.body["text"])
                elif event.kind == "result":
                    found["results"].append(event.body)
                elif event.kind == "error":
                    found["error"] = event.body
                elif event.kind == "failure":
                    raise from_wire(500, event.body)
                elif event.kind in ("start", "end"):
                    found |= event.body
        finally:
            await self.close()
        return found

    async def close(self) -> None:
        """Ends it, which interrupts what still runs."""
        if self._first is not None:
            self._first.cancel()
            await asyncio.gather(self._first, return_exceptions=True)
        close = getattr(self._events, "aclose", None)
        if close is not None:
            await close()
