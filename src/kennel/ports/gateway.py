"""What control needs from the gateway: calls that are answered, words that are not, and notices of its own.

Invariant: a gateway that is away raises GATEWAY_UNAVAILABLE at once on every call; none hangs. After it is back,
`on_arrival` has said everything again before a call of anybody else is sent.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from kennel.wire.gateway import Facts, Notice, Request

Arrival = Callable[[Facts], Awaitable[None]]
Hearing = Callable[[Notice], Awaitable[None]]


class GatewayLink(Protocol):
    """One gateway."""

    @property
    def here(self) -> bool:
        """Whether it answers now."""
        ...

    async def call(self, request: Request) -> Any:
        """The answer's plain value; the gateway's own refusal as a KennelError."""
        ...

    def tell(self, request: Request) -> None:
        """Sends without waiting for the answer; nothing when it is away."""
        ...

    def start(self, arrival: Arrival, hear: Hearing) -> None:
        """Keeps the connection from now on; notices come one by one, in order."""
        ...

    async def close(self) -> None:
        """Ends the connection; pending calls raise."""
        ...
