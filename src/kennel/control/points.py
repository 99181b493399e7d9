"""Owns the points of sandboxes that ask for them: what was in their files before each command.

Called by sandboxes before a command is told to the log. Invariant: a point is queued for the log behind every command
that began before its files were looked at, and ahead of the one it is for, so offsets tell what it holds; a point that
cannot be taken fails no command; of one sandbox the last KEPT_POINTS are kept, others' files go at once.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any
from weakref import WeakKeyDictionary

from kennel.control.fleet import Fleet, Pet
from kennel.control.live import Live
from kennel.control.recorder import Recorder
from kennel.control.workspaces import blob_name
from kennel.domain.event import fact
from kennel.domain.principal import SYSTEM
from kennel.domain.snapshot import KEPT_POINTS, POINT, Snapshot
from kennel.ports.blobs import Blobs
from kennel.wire.errors import KennelError
from kennel.wire.node import Packed

log = logging.getLogger("kennel.points")

WAIT_SECONDS = 15.0
"""How long a command waits for its point, for example behind a large snapshot."""
MANY_NAMES = 2000
SHARE = 10.0
"""Where a sandbox changed so many names, the next look comes no sooner than this many times the last one's length."""
REST_SECONDS = 60.0
"""How long none is tried after one failed: files that are too many, or too large, stay so. A node that went away may
be back by the next command."""

Stacks = tuple[tuple[str, ...], ...]
Book = Callable[[str, str], Awaitable[dict[str, Snapshot]]]


class _Line:
    """What is known of one sandbox's points in this process."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.live: Live | None = None
        self.mark = ""
        self.looked = self.resting = float("-inf")
        self.last: Stacks = ()
        self.kept: deque[Stacks] | None = None


class Points:
    """The service; `book` gives a sandbox's snapshots by its stream."""

    def __init__(self, fleet: Fleet, recorder: Recorder, blobs: Blobs, book: Book) -> None:
        self._fleet, self._recorder, self._blobs, self._book = fleet, recorder, blobs, book
        self._lines: WeakKeyDictionary[Pet, _Line] = WeakKeyDictionary()
        self._drops: set[asyncio.Task[None]] = set()

    async def before(self, pet: Pet, live: Live) -> None:
        """Takes a point if anything changed since the last one; the caller holds a ticket. Never raises a failure."""
        line, came = self._lines.setdefault(pet, _Line()), time.monotonic()
        async with line.lock:
            # A look that began after this command came is as good as its own: a hundred at once cost two.
            if line.looked > came or came < line.resting:
                return
            line.looked = time.monotonic()
            if line.live is not live:
                line.live, line.mark, line.last = live, "", ()
            try:
                async with asyncio.timeout(WAIT_SECONDS):
                    answer = await self._fleet.node.point(pet.sandbox, line.mark)
                if answer.packed is not None:
                    await self._take(pet, line, answer.packed, line.looked)
                line.mark = answer.mark
                if answer.names > MANY_NAMES:
                    line.resting = time.monotonic() + SHARE * (time.monotonic() - line.looked)
            except (KennelError, TimeoutError) as failure:
                away = isinstance(failure, KennelError) and failure.code == "NODE_UNAVAILABLE"
                line.mark, line.resting = "", time.monotonic() + (0.0 if away else REST_SECONDS)
                log.info("%s%s has no point for a while: %s", pet.project, pet.path, failure)

    async def _take(self, pet: Pet, line: _Line, packed: Packed, begun: float) -> None:
        parts = {"layers": packed.workspace, "root": packed.root, "usr": packed.usr}
        stacks = {word: part.stack for word, part in parts.items() if part is not None}
        found = tuple(tuple(stack) for stack in stacks.values())
        if found == line.last:
            return
        if line.kept is None:
            known = (await self._book(pet.project, pet.path)).values()
            line.kept = deque(each.stacks for each in known if each.reason == POINT)
        payload: dict[str, Any] = {
            "backupId": f"pt{secrets.token_hex(10)}",
            **stacks,
            "bytes": sum(part.made.size for part in parts.values() if part is not None and part.made is not None),
            "durationMs": round((time.monotonic() - begun) * 1000, 3),
            "frozenMs": packed.frozen_ms,
            **({} if packed.image is None else {"imageDigest": packed.image}),
        }
        await self._recorder.note(pet.project, pet.path, fact(SYSTEM, "sandbox/point-taken", payload))
        line.last = found
        line.kept.append(found)
        while len(line.kept) > KEPT_POINTS:
            self._drop(line.kept.popleft(), line.kept)

    def _drop(self, gone: Stacks, kept: deque[Stacks]) -> None:
        """Deletes the top layers of a point in the background, unless another point has them."""
        needed = {layer for stacks in kept for stack in stacks for layer in stack}
        tops = [stack[0] for stack in gone if stack and stack[0] not in needed]
        if tops:
            task = asyncio.get_running_loop().create_task(self._remove(tops), name="drop point")
            self._drops.add(task)
            task.add_done_callback(self._drops.discard)

    async def _remove(self, layers: list[str]) -> None:
        for layer in layers:
            try:
                # A point's layer is its sandbox's alone (its image is salted); one that somebody rolled back to, or
                # forked from, was uploaded first, and collection looks after those.
                if not await self._blobs.exists(blob_name(layer)):
                    await self._fleet.node.remove_layer(layer)
            except KennelError as failure:
                log.info("layer %s of a point is left to the collection: %s", layer, failure)

    async def close(self) -> None:
        """Waits for files that are being deleted."""
        await asyncio.gather(*self._drops, return_exceptions=True)
