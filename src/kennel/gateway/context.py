"""Owns what the parts of one gateway share: its tables, its way out, its journal, and the idle connections to hosts.

Built by process; handed to every connection. Invariant: an idle connection is found again only by its own sandbox for
the same origin; what nobody used for a while is closed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from kennel.domain.ai_lane import AiGateway
from kennel.domain.denial import Refused
from kennel.domain.secret_pin import normal_pin
from kennel.gateway.authority import Authority
from kennel.gateway.dialler import Dialler
from kennel.gateway.journal import Journal
from kennel.gateway.options import Options
from kennel.gateway.refresher import Refresher
from kennel.gateway.registry import Registry, Sandbox
from kennel.gateway.resolver import Resolver
from kennel.gateway.rotations import Rotations
from kennel.gateway.upstream import Upstream
from kennel.gateway.vault import Vault
from kennel.gateway.waiting import Holds
from kennel.wire.egress import Pin
from kennel.wire.gateway import Notice

Origin = tuple[str, str, int]
"""Scheme, host, port."""

_IDLE = 30.0
_PER_ORIGIN, _PER_SANDBOX = 32, 64


@dataclass(slots=True, eq=False)
class Context:
    """One gateway."""

    options: Options
    registry: Registry
    journal: Journal
    authority: Authority
    vault: Vault
    rotations: Rotations
    resolver: Resolver
    dialler: Dialler
    ai: AiGateway | None
    platform: dict[str, tuple[str, Pin]]
    holds: Holds
    tell: Callable[[Notice], object]
    requests: int = 0
    idle: dict[Sandbox, dict[Origin, list[Upstream]]] = field(default_factory=dict)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    refresher: Refresher = field(init=False)

    def __post_init__(self) -> None:
        self.refresher = Refresher(self)

    def number(self) -> str:
        """A name for the next request, unique to this start of the gateway."""
        self.requests += 1
        return f"{self.journal.ledger[:6]}{_START}-{self.requests:x}"

    def spawn(self, work: asyncio.Task[None]) -> None:
        """Keeps a task until it is done."""
        self.tasks.add(work)
        work.add_done_callback(self.tasks.discard)

    async def connect(self, sandbox: Sandbox, origin: Origin, *, trusted: bool = False) -> Upstream:
        """A new connection of this sandbox to an origin; it is cut with the sandbox."""
        scheme, host, port = origin
        _, upstream = await self.dialler.connect(Upstream, host, port, tls=scheme == "https", trusted=trusted)
        if sandbox.gone:
            upstream.abort()
            raise Refused("not_bound", "the sandbox is gone")
        return upstream

    def take_idle(self, sandbox: Sandbox, origin: Origin, *, within: float = _IDLE) -> Upstream | None:
        """The idle connection that was used last, if that was not too long ago."""
        kept = self.idle.get(sandbox, {}).get(origin)
        now = time.monotonic()
        while kept:
            upstream = kept.pop()
            if upstream.usable and now - upstream.idle_since < within:
                return upstream
            upstream.abort()
        return None

    def give_idle(self, sandbox: Sandbox, origin: Origin, upstream: Upstream) -> None:
        """Keeps a connection for the next request, or closes it."""
        origins = self.idle.setdefault(sandbox, {})
        kept = origins.setdefault(origin, [])
        full = len(kept) >= _PER_ORIGIN or sum(map(len, origins.values())) >= _PER_SANDBOX
        if sandbox.gone or not upstream.usable or full:
            upstream.abort()
            return
        upstream.idle_since = time.monotonic()
        kept.append(upstream)

    def drop_idle(self, sandbox: Sandbox) -> None:
        """Closes what a sandbox left."""
        for kept in self.idle.pop(sandbox, {}).values():
            for upstream in kept:
                upstream.abort()

    def sweep_idle(self, now: float) -> None:
        """Closes what was idle for too long."""
        for sandbox, origins in list(self.idle.items()):
            for origin, kept in list(origins.items()):
                for upstream in [u for u in kept if not u.usable or now - u.idle_since > _IDLE]:
                    kept.remove(upstream)
                    upstream.abort()
                if not kept:
                    del origins[origin]
            if not origins:
                del self.idle[sandbox]


_START = f"{time.time_ns() // 1_000_000:x}"


def platform_keys(options: Options) -> dict[str, tuple[str, Pin]]:
    """The installation's keys with their pins in one spelling."""
    return {name: (key.value, normal_pin(Pin(key.origins))) for name, key in options.platform_keys.items()}
