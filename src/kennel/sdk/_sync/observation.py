# Generated from sdk/_async by tools/make_sync.py; change it there.
"""Owns looking at a sandbox's state without touching it: its projection, and its live view.

Called by programs through `box.processor` and `box.live_state`. Invariant: looking wakes and creates nothing, and works
after `destroy`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kennel.sdk._sync.following import Following
from kennel.sdk._sync.transport import Transport
from kennel.sdk.deadline import SLICE, Deadline
from kennel.sdk.messages import Replica
from kennel.sdk.records import LiveUpdate, ProjectionSnapshot
from kennel.sdk.subscription import Subscription
from kennel.wire.errors import KennelError, error


class Processor:
    """What the sandbox's own stream folds into."""

    def __init__(self, transport: Transport, route: str) -> None:
        self._transport, self._route = transport, f"{route}/projection"

    def snapshot(self) -> ProjectionSnapshot:
        """The state now, with the offset it stands at; SANDBOX_NOT_FOUND."""
        return self._transport.call("GET", self._route, ProjectionSnapshot, repeat=True)

    def wait_until_processed(self, offset: int, timeout: float = 30.0) -> ProjectionSnapshot:
        """The state once `offset` is folded in: read your own writes; WAIT_TIMEOUT after `timeout` seconds."""
        deadline = Deadline(timeout)
        while True:
            query = {"waitUntil": str(offset), "timeoutMs": deadline.slice()}
            try:
                return self._transport.call(
                    "GET", self._route, ProjectionSnapshot, query=query, extra=SLICE, repeat=True
                )
            except KennelError as failure:
                if failure.code != "WAIT_TIMEOUT" or failure.admitted is not None:
                    raise
                if deadline.over:
                    told = f"offset {offset} was not processed in {deadline.seconds:g} s"
                    raise error("WAIT_TIMEOUT", told, details=failure.details) from None


class LiveState:
    """The sandbox's state as it changes."""

    def __init__(self, transport: Transport, route: str) -> None:
        self._transport, self._route = transport, route

    def get(self) -> LiveUpdate:
        """The state now, as a subscription's first update."""
        found = self._transport.call("GET", f"{self._route}/projection", ProjectionSnapshot, repeat=True)
        return LiveUpdate(kind="snapshot", revision=found.offset, state=found.state)

    def updates(self) -> Following[LiveUpdate]:
        """An iterator over a snapshot, then diffs; after a gap or a lost connection a snapshot comes again.

        Use it in a `with` block, or `close` it.
        """
        return Following(self._transport, f"{self._route}/live", {}, Replica().take, resume=False)

    def subscribe(self, callback: Callable[[LiveUpdate], Any]) -> Subscription[LiveUpdate]:
        """Calls `callback` with each of `updates`, in the background, until the returned handle's `stop`."""
        return Subscription(self.updates().open(), callback)
