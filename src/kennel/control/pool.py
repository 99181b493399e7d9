"""Owns pets-in-waiting: containers of the default type and image that run before anybody asked for one.

Called by sandboxes (take, give back) and by itself (refill). Invariant: a waiting container has no name and nobody's
data; it is given away once, or stopped; it never takes the last room on the machine (a refusal ends the refilling).
"""

from __future__ import annotations

import asyncio
import logging
import secrets

from kennel.control.fleet import Fleet
from kennel.control.live import Live
from kennel.domain.create_options import CreateOptions
from kennel.wire.errors import KennelError, error
from kennel.wire.node import Start

log = logging.getLogger("kennel.pool")

RETRY_SECONDS = 30.0
ABSENT_SECONDS = 0.5
"""Node starts beside control and is some seconds behind on a new machine: the first pets are not to wait for RETRY."""
COURTESY_SECONDS = 0.3
"""How long the place of a container that was taken stays empty: making the next at once took the CPU from the first
command of who had taken it."""
HOSTNAME = "kennel"
_DEFAULT = CreateOptions()


class Pool:
    """`size` containers of the default type, image and isolation."""

    def __init__(self, fleet: Fleet, size: int) -> None:
        self._fleet = fleet
        self._size = size
        self._waiting: list[Live] = []
        self._stale: list[Live] = []
        self._making: set[str] = set()
        self._digest = ""
        self._wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._size > 0:
            self._task = asyncio.get_running_loop().create_task(self._refill(), name="pool")

    @property
    def sandboxes(self) -> set[str]:
        """Ids that belong to the pool now; the reconciler leaves them alone, and removes those that died waiting."""
        if not all(live.usable for live in self._waiting):
            self._waiting = [live for live in self._waiting if live.usable]
            self._wanted.set()
        return {live.sandbox for live in self._waiting + self._stale} | self._making

    def take(self, options: CreateOptions, digest: str) -> Live | None:
        """A waiting container that fits, now the caller's; None when there is none."""
        fits = (options.instance_type, options.isolation) == (_DEFAULT.instance_type, _DEFAULT.isolation)
        if not fits or options.persist != _DEFAULT.persist or options.origin is not None:
            return None
        if digest != self._digest:
            if options.image == _DEFAULT.image:
                # The default image is another now (the host installed something): those that wait fit nobody any more.
                self._retire()
            return None
        while self._waiting:
            live = self._waiting.pop()
            self._wanted.set()
            if live.usable:
                return live
        return None

    def give_back(self, live: Live | None) -> None:
        """Returns a container that was taken and not used."""
        if live is not None and live.usable:
            self._waiting.append(live)

    async def close(self) -> None:
        """Stops refilling and every container that waits."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._retire()
        await self._discard()

    async def _refill(self) -> None:
        while True:
            self._wanted.clear()
            try:
                await self._discard()
                while len(self._waiting) < self._size:
                    await self._make()
            except Exception as refused:  # whatever it is, the pool must not stay empty for it
                if isinstance(refused, KennelError) and refused.code == "NODE_UNAVAILABLE":
                    await asyncio.sleep(ABSENT_SECONDS)
                    continue
                unforeseen = None if isinstance(refused, KennelError) else refused
                log.info("no pet-in-waiting for now: %s", refused, exc_info=unforeseen)
                await asyncio.sleep(RETRY_SECONDS)
                continue
            await self._wanted.wait()
            await asyncio.sleep(COURTESY_SECONDS)

    async def _make(self) -> None:
        node = self._fleet.node
        digest = await node.resolve_image(_DEFAULT.image)
        if digest != self._digest:
            self._retire()
            self._digest = digest
        sandbox = f"sb{secrets.token_hex(10)}"
        self._making.add(sandbox)
        try:
            await node.build(sandbox, _DEFAULT.instance_type, digest, _DEFAULT.isolation)
            await node.start(Start(sandbox, HOSTNAME))
            live = await self._fleet.connect(sandbox)
            self._waiting.append(live)
        except BaseException:
            await self._remove(sandbox)
            raise
        finally:
            self._making.discard(sandbox)

    def _retire(self) -> None:
        self._stale, self._waiting = self._stale + self._waiting, []
        self._wanted.set()

    async def _discard(self) -> None:
        while self._stale:
            live = self._stale.pop()
            await live.release(error("OPERATION_INTERRUPTED", "nobody needs this container"))
            await self._remove(live.sandbox)

    async def _remove(self, sandbox: str) -> None:
        try:
            await self._fleet.node.remove(sandbox)
        except KennelError as failure:
            # No claim names it, so the reconciler removes what is left.
            log.info("%s, which waited for a pet, is not removed yet: %s", sandbox, failure)
