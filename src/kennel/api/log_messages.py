"""Owns how a process's log looks on the wire: whole as JSON, or followed as Server-Sent Events.

Called by the routes of processes. Invariants: an event's id is a position from which reading on gives every byte once;
no text event ends inside a character; the last event is `exit` or `error`.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import msgspec

from kennel.api.event_stream import message
from kennel.api.exec_messages import output_body
from kennel.domain.characters import Characters
from kennel.ports.processes import Log
from kennel.wire.errors import KennelError

_encoder = msgspec.json.Encoder()


async def whole_log(log: Log, encoding: str) -> dict[str, Any]:
    """What is kept of a log, its streams apart; `missed` bytes of it are gone."""
    found = {"stdout": bytearray(), "stderr": bytearray()}
    missed, at = 0, 0
    async for piece in log:
        at = piece.next
        if piece.stream is None:
            missed += piece.missed
        else:
            found[piece.stream] += piece.data
    told: dict[str, Any] = {"processId": log.facts.id, "status": log.facts.state, "encoding": encoding}
    lossy = False
    for stream, data in found.items():
        if encoding == "base64":
            told[stream] = base64.b64encode(data).decode("ascii")
        else:
            told[stream] = data.decode(errors="replace")
            lossy = lossy or told[stream].encode() != bytes(data)
    return {**told, "lossy": lossy, "truncated": missed > 0, "missed": missed, "next": at or log.facts.last}


async def log_messages(log: Log, encoding: str, follow: bool) -> AsyncGenerator[bytes, None]:
    """Pieces as they come, then how the process ended; `end` where it goes on and nobody wanted to follow it."""
    held = {"stdout": Characters(), "stderr": Characters()} if encoding == "utf8" else None
    waiting = {"stdout": False, "stderr": False}
    try:
        async for piece in log:
            if piece.stream is None:
                yield message(_encoder.encode({"bytes": piece.missed}), event="truncated", last_id=piece.at)
                continue
            data = piece.data
            if held is not None:
                data = held[piece.stream].take(piece.data)
                waiting[piece.stream] = held[piece.stream].holds
            if data:
                # While a character waits for its end on either stream, going on from here would lose its beginning.
                last_id = None if any(waiting.values()) else piece.next
                body = {**output_body(data, encoding), "cursor": piece.next}
                yield message(_encoder.encode(body), event=piece.stream, last_id=last_id)
        for stream, characters in (held or {}).items():
            if rest := characters.rest():
                body = {**output_body(rest, encoding), "cursor": log.facts.last}
                yield message(_encoder.encode(body), event=stream, last_id=log.facts.last)
        kind = "exit" if log.facts.state == "exited" else "error" if log.facts.state == "error" else "end"
        yield message(_encoder.encode(log.facts.to_wire()), event=kind, last_id=log.facts.last)
    except KennelError as failure:
        yield message(_encoder.encode(failure.to_wire()), event="error")


class Held(AsyncIterator[bytes]):
    """Messages and what must be let go of after them, also when not one of them was asked for."""

    def __init__(self, messages: AsyncGenerator[bytes, None], stack: AsyncExitStack) -> None:
        self._messages = messages
        self._stack = stack

    async def __anext__(self) -> bytes:
        return await anext(self._messages)

    async def aclose(self) -> None:
        """Ends the messages, then lets go."""
        await self._messages.aclose()
        await self._stack.aclose()
