"""Owns looking at a sandbox's state without touching it: its projection, and its live view.

Called by programs through `box.processor` and `box.live_state`. Invariant: looking wakes and creates nothing, and works
after `destroy`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kennel.sdk._async.following import AsyncFollowing
from kennel.sdk._async.transport import AsyncTransport
from kennel.sdk.deadline import SLICE, Deadline
from kennel.sdk.messages import Replica
from kennel.sdk.records import LiveUpdate, ProjectionSnapshot
from kennel.sdk.subscription import AsyncSubscription
from kennel.wire.errors import KennelError, error


class AsyncProcessor:
    """What the sandbox's own stream folds into."""

    def __init__(self, transport: AsyncTransport, route: str) -> None:
        self._transport, self._route = transport, f"{route}/projection"

    async def snapshot(self) -> ProjectionSnapshot:
        """The state now, with the offset it stands at; SANDBOX_NOT_FOUND."""
        return await self._transport.call("GET", self._route, ProjectionSnapshot, repeat=True)

    async def wait_until_processed(self, offset: int, timeout: float = 30.0) -> ProjectionSnapshot:
        """The state once `offset` is folded in: read your own writes; WAIT_TIMEOUT after `timeout` seconds."""
        deadline = Deadline(timeout)
        while True:
            query = {"waitUntil": str(offset), "timeoutMs": deadline.slice()}
            try:
                return await self._transport.call(
                    "GET", self._route, ProjectionSnapshot, query=query, extra=SLICE, repeat=True
                )
            except KennelError as failure:
                if failure.code != "WAIT_TIMEOUT" or failure.admitted is not None:
                    raise
                if deadline.over:
                    told = f"offset {offset} was not processed in {deadline.seconds:g} s"
                    raise error("WAIT_TIMEOUT", told, details=failure.details) from None


class AsyncLiveState:
    """The sandbox's state as it changes."""

    def __init__(self, transport: AsyncTransport, route: str) -> None:
        self._transport, self._route = transport, route

    async def get(self) -> LiveUpdate:
        """The state now, as a subscription's first update."""
        found = await self._transport.call("GET", f"{self._route}/projection", ProjectionSnapshot, repeat=True)
        return LiveUpdate(kind="snapshot", revision=found.offset, state=found.state)

    def updates(self) -> AsyncFollowing[LiveUpdate]:
        """An iterator over a snapshot, then diffs; after a gap or a lost connection a snapshot comes again.

        Use it in a `with` block, or `close` it.
        """
        return AsyncFollowing(self._transport, f"{self._route}/live", {}, Replica().take, resume=False)

    async def subscribe(self, callback: Callable[[LiveUpdate], Any]) -> AsyncSubscription[LiveUpdate]:
        """Calls `callback` with each of `updates`, in the background, until the returned handle's `stop`."""
        return AsyncSubscription(await self.updates().open(), callback)
