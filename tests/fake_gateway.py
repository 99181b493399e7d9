"""Owns a gateway for tests of control: it keeps what it is told, seals with real keys, and says what the test tells it.

Used by unit tests of control. Invariant: it implements `ports.gateway.GatewayLink`; while it is away every call fails.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from kennel.gateway.vault import Vault
from kennel.ports.gateway import Arrival, Hearing
from kennel.wire import gateway as wire
from kennel.wire.errors import error


class FakeGateway:
    """`told` is everything in order; `answers` gives an answer by the request's type."""

    def __init__(self, folder: Path) -> None:
        self.vault = Vault(folder / "keys")
        self.here = True
        self.told: list[Any] = []
        self.answers: dict[type, Callable[[Any], Any]] = {
            wire.ProjectKey: lambda ask: msgspec.to_builtins(self.vault.public_key(ask.project))
        }
        self.arrival: Arrival | None = None
        self.hear: Hearing | None = None

    async def call(self, request: wire.Request) -> Any:
        if not self.here:
            raise error("GATEWAY_UNAVAILABLE", "away", admitted="no")
        self.told.append(request)
        answer = self.answers.get(type(request))
        return answer(request) if answer is not None else None

    def tell(self, request: wire.Request) -> None:
        if self.here:
            self.told.append(request)

    def start(self, arrival: Arrival, hear: Hearing) -> None:
        self.arrival, self.hear = arrival, hear

    async def close(self) -> None:
        self.here = False

    async def arrives(self, instance: str) -> None:
        """A gateway that has just started."""
        assert self.arrival is not None
        self.here = True
        self.told.clear()
        await self.arrival(wire.Facts(wire.PROTOCOL, instance, "", [], 0))

    async def says(self, notice: wire.Notice) -> None:
        """A notice of its own."""
        assert self.hear is not None
        await self.hear(notice)

    def of(self, kind: type) -> list[Any]:
        """What it was told of one kind."""
        return [request for request in self.told if type(request) is kind]
