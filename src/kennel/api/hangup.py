"""Owns what happens when a caller hangs up during a long call: the work is cancelled, and so the command killed.

Called by the exec routes. Invariant: the watcher never outlives the call, and a cancellation from elsewhere (a server
that stops) passes through.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import TypeVar

from fastapi import Request

from kennel.wire.errors import error

logger = logging.getLogger("kennel.api")

T = TypeVar("T")


async def unless_hung_up(request: Request, work: Coroutine[None, None, T]) -> T:
    """What `work` returns; when the caller hangs up first, `work` is cancelled and OPERATION_INTERRUPTED raised.

    The body must have been read: the next message of the connection is then its end.
    """
    task = asyncio.current_task()
    assert task is not None
    left = False

    async def watch() -> None:
        nonlocal left
        while (await request.receive())["type"] != "http.disconnect":
            pass
        left = True
        task.cancel()

    watcher = asyncio.create_task(watch())
    watcher.add_done_callback(_retrieve)
    try:
        return await work
    except asyncio.CancelledError:
        if not left or task.uncancel() > 0:
            raise
        raise error("OPERATION_INTERRUPTED", "the caller hung up", admitted="unknown") from None
    finally:
        watcher.cancel()


def _retrieve(watcher: asyncio.Task[None]) -> None:
    """A connection whose messages cannot be read any more only loses its watcher."""
    if not watcher.cancelled() and (failure := watcher.exception()) is not None:
        logger.warning("a connection cannot be watched: %r", failure)
