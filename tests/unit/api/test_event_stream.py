"""Server-Sent Events that are silent for long: the line is kept alive, and the iterator is not disturbed by it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kennel.api.event_stream import EventStream, message

pytestmark = pytest.mark.anyio


async def test_a_silence_is_filled_with_comments_and_nothing_is_lost() -> None:
    sent: list[bytes] = []
    go_on = asyncio.Event()

    async def events() -> AsyncIterator[bytes]:
        yield message(b"1", event="stdout", last_id=1)
        await go_on.wait()
        yield message(b"2", event="exit", last_id=2)

    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    async def send(told: Any) -> None:
        sent.append(told.get("body", b""))
        if sent.count(b": alive\n\n") == 3:
            go_on.set()

    await EventStream(events(), heartbeat=0.01)({"type": "http"}, receive, send)
    whole = b"".join(sent)
    assert sent.count(b": alive\n\n") >= 3
    assert whole.replace(b": alive\n\n", b"") == b"event: stdout\nid: 1\ndata: 1\n\nevent: exit\nid: 2\ndata: 2\n\n"
