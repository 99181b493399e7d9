"""Owns where the files of sandboxes are: packed and uploaded when they sleep, fetched and mounted when they wake.

Called by fleet (sleep, wake) and snapshots. Invariant: the pointer is the fold of the sandbox's own stream; it moves by
one append whose key is the number of the move, so of two movers one is refused; it moves only to layers that the blob
store holds; a disk is dropped only after the append that makes it needless.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec

from kennel.control.leftovers import Leftovers
from kennel.control.progress import Moved, Say, in_silence, told
from kennel.control.projection import Projections
from kennel.domain import disk_room
from kennel.domain.event import fact
from kennel.domain.instance_type import INSTANCE_TYPES
from kennel.domain.principal import SYSTEM, Principal
from kennel.domain.sandbox import Projection, Workspace, made_on, require_alive
from kennel.domain.stack import MAX_DEPTH, merge_planned, merged
from kennel.ports.blobs import Blobs
from kennel.ports.node import NodeLink
from kennel.steps import step
from kennel.wire import node as wire
from kennel.wire.errors import KennelError, error

log = logging.getLogger("kennel.workspaces")

FOLDER = "layers"
AT_ONCE = 4
MAX_LAYER = 1 << 40
UNFIT = frozenset(
    {
        "LAYER_MISSING", "LAYER_CORRUPT", "BLOB_NOT_FOUND", "BLOB_CORRUPT", "STACK_MISMATCH", "SNAPSHOT_MISSING",
        "FILESYSTEM_ERROR",
    }
)  # fmt: skip
"""Failures that mean the files cannot be had; a start fails with SNAPSHOT_MISSING then."""
_TRIES = 3
MAX_ASKED, ASKED_SECONDS = 10_000, 7200.0
"""How many layers are remembered as asked for before those of ASKED_SECONDS ago are forgotten."""


def blob_name(layer: str) -> str:
    """Where a layer is in the blob store."""
    return f"{FOLDER}/{layer}"


@dataclass(frozen=True, slots=True)
class Address:
    """One sandbox: its stream, and its name on the machine."""

    project: str
    path: str
    sandbox: str


@dataclass(frozen=True, slots=True)
class Asked:
    """Why a backup is made, and what it is called."""

    reason: str
    name: str | None = None
    ttl_seconds: int | None = None
    leftovers: Leftovers = field(default_factory=Leftovers)


@dataclass(frozen=True, slots=True)
class Woken:
    """How a sandbox runs: whether this made it run, whether its files came from a backup, the digest of the image below
    what lasts outside `/workspace`, and of the one that this was made on, if it was set aside for it."""

    ran: bool
    restored: bool = False
    image: str | None = None
    set_aside: str | None = None


class Workspaces:
    """Over one node and one blob store.

    `ttl` is seconds a sandbox may sleep before its files expire, `depth` how many layers its stacks keep.
    """

    def __init__(
        self, node: NodeLink, blobs: Blobs, projections: Projections, ttl: float, depth: int = MAX_DEPTH
    ) -> None:
        self._node, self._blobs, self._projections, self._ttl = node, blobs, projections, ttl
        self.depth = depth
        self._places = asyncio.Semaphore(AT_ONCE)
        self.asked_for: dict[str, float] = {}
        """When each layer was last wanted by this process, by time.monotonic(): one that is, is not collected."""

    async def start(self, at: Address, state: Projection, who: Principal, hostname: str) -> Woken:
        """Starts the sandbox on its files. SNAPSHOT_MISSING, DISK_TOO_SMALL."""
        state = await self._expire(at, state)
        place = state.workspace
        if place.void:
            await self._node.drop_disk(at.sandbox)
        words = _start_words(at, state, hostname)
        try:
            started = await self._start_or_build(words, state, self.sayer(at, who))
        except KennelError as failure:
            if failure.code not in UNFIT:
                raise
            await self._record_failure(at, who, place, failure)
            raise error(
                "SNAPSHOT_MISSING",
                f"the sandbox's files cannot be had: {failure.message}",
                details={"cause": failure.code, "backupId": place.backup_id},
                hint='put the layer back, roll back to another snapshot, or start with {"empty": true}',
                admitted="no",
            ) from failure
        restored = started.ran and started.new_disk and place.backup_id is not None and not place.empty
        had = bool(words.root or words.usr) or not started.new_disk
        other = words.made_on is not None and started.image not in (None, words.made_on)
        return Woken(started.ran, restored, started.image, words.made_on if had and other else None)

    async def _start_or_build(self, words: wire.Start, state: Projection, say: Say) -> wire.Started:
        try:
            return await self._start(words, say)
        except KennelError as failure:
            if failure.code != "SANDBOX_NOT_FOUND" or not words.fresh or state.birth_certificate is None:
                raise
        # The machine lost it, and the last backup is all there is; what was not backed up is gone.
        birth = state.birth_certificate
        await self._node.build(words.sandbox, birth.instance_type, birth.image_digest, birth.isolation)
        return msgspec.structs.replace(await self._start(words, say), new_disk=True)

    async def _start(self, words: wire.Start, say: Say) -> wire.Started:
        for _ in range(_TRIES):
            try:
                return await self._node.start(words)
            except KennelError as failure:
                details = failure.details if isinstance(failure.details, dict) else {}
                missing = details.get("layers", [])
                if failure.code != "LAYER_CORRUPT" and not missing:
                    raise
                # A damaged one was set aside by node, so the next try finds it missing.
                await self.fetch(missing, say)
        raise error("LAYER_MISSING", "layers that were fetched are gone again")

    async def _record_failure(self, at: Address, who: Principal, place: Workspace, failure: KennelError) -> None:
        payload = {"error": f"{failure.code}: {failure.message}"}
        if place.backup_id is not None:
            payload["backupId"] = place.backup_id
        await self._append(at, fact(who, "sandbox/restore-failed", payload))

    async def _expire(self, at: Address, state: Projection) -> Projection:
        """The state after its files aged out, if they have: they are empty then, and the stream says so."""
        if not self.aged(state):
            return state
        return await self.move(at, state, SYSTEM, "sandbox/workspace-expired", {"backupId": state.workspace.backup_id})

    def aged(self, state: Projection) -> bool:
        """Whether the sandbox has slept longer than its files are kept."""
        since = state.workspace.used_at
        if state.running or state.workspace.backup_id is None or since is None:
            return False
        return (datetime.now(UTC) - datetime.fromisoformat(since)).total_seconds() >= self._ttl

    async def expire(self, at: Address, state: Projection) -> None:
        """As a start does it, for a sandbox that nobody wakes; the door is closed by the caller."""
        await self._expire(at, state)

    async def move(
        self, at: Address, seen: Projection, who: Principal, type_: str, payload: dict[str, Any]
    ) -> Projection:
        """Moves the pointer, from where `seen` has it; POINTER_CONFLICT when somebody else moved it meanwhile."""
        event = fact(who, type_, payload, key=f"pointer:{seen.workspace.moves}")
        try:
            return await self._append(at, event)
        except KennelError as failure:
            if failure.code != "IDEMPOTENCY_CONFLICT":
                raise
            raise error("POINTER_CONFLICT", "another snapshot was taken meanwhile", admitted="no") from failure

    async def _append(self, at: Address, *events: Any) -> Projection:
        return await self._projections.append_and_fold(at.project, at.path, events)

    def sayer(self, at: Address, who: Principal) -> Say:
        """What puts the progress of long work on the sandbox's stream."""

        async def say(body: dict[str, Any]) -> None:
            await self._append(at, fact(who, "sandbox/backup-progress", body))

        return say

    async def keep(self, at: Address, who: Principal, asked: Asked, *, live: bool) -> Projection:
        """Packs, uploads, and moves the pointer. What fails is recorded as `backup-failed` and raised."""
        seen = await self._projections.get(at.project, at.path)
        try:
            return await self._keep(at, seen, who, asked, live)
        except KennelError as failure:
            if asked.reason != "checkpoint" or failure.code != "OPERATION_INTERRUPTED":
                said = {"error": f"{failure.code}: {failure.message}"}
                await self._append(at, fact(who, "sandbox/backup-failed", said))
            raise

    async def _keep(self, at: Address, seen: Projection, who: Principal, asked: Asked, live: bool) -> Projection:
        begun, say = time.monotonic(), self.sayer(at, who)
        with asked.leftovers.file() as listing:
            words = wire.Pack(at.sandbox, live, list(asked.leftovers.names))
            async with told("packing", lambda: self._packed_so_far(at), say):
                packed = await self._pack(seen, words, listing)
        if packed is None:
            # Its disk was never mounted: it is as it was made.
            packed = wire.Packed(wire.Part(list(seen.workspace.layers)))
        parts = [part for part in (packed.workspace, packed.root, packed.usr) if part is not None]
        if asked.reason == "checkpoint" and _same(seen.workspace, packed):
            return seen
        made = [part.made for part in parts if part.made is not None]
        moved = Moved(sum(each.size for each in made))
        async with told("uploading", moved.look, say):
            await self.upload((layer for part in parts for layer in part.stack), moved)
        payload: dict[str, Any] = {
            "backupId": f"bk{secrets.token_hex(10)}",
            "layers": packed.workspace.stack,
            "reason": asked.reason,
            "bytes": sum(each.size for each in made),
            "leftOut": sum(each.left_out for each in made),
            "leftOutBytes": sum(each.left_out_bytes for each in made),
            "leftOutBy": asked.leftovers.by,
            "durationMs": round((time.monotonic() - begun) * 1000, 3),
        }
        optional = {
            "root": packed.root and packed.root.stack,
            "usr": packed.usr and packed.usr.stack,
            "imageDigest": packed.image,
            "name": asked.name,
            "ttlSeconds": asked.ttl_seconds,
            "frozenMs": packed.frozen_ms if live else None,
        }
        payload |= {word: value for word, value in optional.items() if value is not None}
        return await self.move(at, seen, who, "sandbox/backup-created", payload)

    async def _packed_so_far(self, at: Address) -> dict[str, Any]:
        counters = await self._node.usage(at.sandbox)
        return {"names": counters.packed_names, "bytes": counters.packed_bytes}

    async def _pack(self, seen: Projection, words: wire.Pack, listing: int | None) -> wire.Packed | None:
        place = seen.workspace
        try:
            return await self._node.pack(words, listing)
        except KennelError as failure:
            if failure.code != "SNAPSHOT_MISSING" or place.backup_id is None or place.empty:
                raise
        # It sleeps without a disk: the last backup is all there is.
        root, usr = (None if each is None else wire.Part(list(each)) for each in (place.root, place.usr))
        return wire.Packed(wire.Part(list(place.layers)), root, usr, image=place.made_on)

    async def rest(self, at: Address, who: Principal, reason: str, leftovers: Leftovers) -> None:
        """After a stop: packs what is on the disk, and drops the disk when that is safe. Never raises for a failure:
        the upper stays then, and the next start on this machine mounts it again."""
        state = await self._projections.get(at.project, at.path)
        if state.workspace.empty:
            said = {"reason": "it was started empty beside a backup that stands; its files stay on this machine"}
            await self._append(at, fact(who, "sandbox/snapshot-skipped", said))
            return
        try:
            await self.keep(at, who, Asked(reason, leftovers=leftovers), live=False)
            await self._node.drop_disk(at.sandbox)
        except KennelError as failure:
            log.warning("%s%s sleeps on its disk: %s", at.project, at.path, failure)
            return
        state = await self._projections.get(at.project, at.path)
        sizes = (await self._node.list_layers()).sizes
        held = sum(sizes.get(layer, 0) for stack in state.workspace.stacks for layer in stack)
        crowded = held * 4 > 3 * disk_of(state) and self.merge_wanted(state, sizes)
        if crowded or deepest(state.workspace) > 2 * self.depth:
            # The background did not get to it: it wakes too soon each time.
            await self.compact(at)

    async def compact(self, at: Address) -> None:
        """Merges layers until no stack of the pointer is too deep or too heavy; what fails is left for another time."""
        try:
            for _ in range(MAX_DEPTH):
                seen = await self._projections.get(at.project, at.path)
                place = seen.workspace
                if seen.status == "destroyed":
                    return
                stacks = {"layers": place.layers, "root": place.root, "usr": place.usr}
                await self.ensure(layer for stack in place.stacks for layer in stack)
                sizes = (await self._node.list_layers()).sizes
                if not self.merge_wanted(seen, sizes):
                    return
                payload = {
                    word: await self._merged(stack, sizes, disk_of(seen), on_image=word != "layers")
                    for word, stack in stacks.items()
                    if stack is not None
                }
                await self.move(at, seen, SYSTEM, "sandbox/compacted", payload)
        except KennelError as failure:
            log.info("%s%s stays as deep as it is: %s", at.project, at.path, failure)

    def merge_wanted(self, state: Projection, sizes: Mapping[str, int]) -> bool:
        """Whether one of its stacks is to be merged; a layer whose size is not known here weighs nothing."""
        return any(
            merge_planned([sizes.get(layer, 0) for layer in stack], disk_of(state), self.depth) is not None
            for stack in state.workspace.stacks
        )

    async def _merged(self, stack: Sequence[str], sizes: dict[str, int], disk: int, *, on_image: bool) -> list[str]:
        merge = merge_planned([sizes[layer] for layer in stack], disk, self.depth)
        if merge is None:
            return list(stack)
        bottom = merge.bottom and not on_image
        made = await self._node.compact(stack[merge.first : merge.last], bottom=bottom)
        await self.upload([made.digest])
        return list(merged(stack, merge, made.digest))

    async def require_room(self, stacks: Iterable[Sequence[str]], instance_type: str) -> None:
        """DISK_TOO_SMALL when these layers, which are on this machine, do not fit that type."""
        sizes = (await self._node.list_layers()).sizes
        held = sum(sizes.get(layer, 0) for layer in {layer for stack in stacks for layer in stack})
        refused = disk_room.refusal(held, INSTANCE_TYPES[instance_type])
        if refused is not None:
            raise refused

    async def upload(self, layers: Iterable[str], moved: Moved | None = None) -> None:
        """Brings layers of this machine to the blob store; those that are there already cost one look."""
        layers = list(dict.fromkeys(layers))
        self._want(layers)
        await asyncio.gather(*(self._upload(layer, moved or Moved()) for layer in layers))

    async def _upload(self, layer: str, moved: Moved) -> None:
        async with self._places:
            if await self._blobs.exists(blob_name(layer)):
                return
            descriptor = await self._node.open_layer(layer)
            try:
                await self._blobs.put(blob_name(layer), descriptor, moved.add)
            finally:
                os.close(descriptor)

    def _want(self, layers: Sequence[str]) -> None:
        now = time.monotonic()
        self.asked_for.update(dict.fromkeys(layers, now))
        if len(self.asked_for) > MAX_ASKED:
            self.asked_for = {layer: when for layer, when in self.asked_for.items() if now - when < ASKED_SECONDS}

    async def ensure(self, layers: Iterable[str], say: Say = in_silence) -> None:
        """Fetches what is not on this machine; SNAPSHOT_MISSING when it cannot be had."""
        wanted = list(dict.fromkeys(layers))
        self._want(wanted)
        here = (await self._node.list_layers()).sizes if wanted else {}
        try:
            await self.fetch([layer for layer in wanted if layer not in here], say)
        except KennelError as failure:
            if failure.code not in UNFIT:
                raise
            why = f"the snapshot's files cannot be had: {failure.message}"
            raise error("SNAPSHOT_MISSING", why, details={"cause": failure.code}, admitted="no") from failure

    async def fetch(self, layers: Sequence[str], say: Say = in_silence) -> None:
        """Brings layers of the blob store to this machine, verified."""
        moved = Moved()
        async with told("fetching", moved.look, say):
            await asyncio.gather(*(self._fetch(layer, moved) for layer in dict.fromkeys(layers)))

    async def _fetch(self, layer: str, moved: Moved) -> None:
        async with self._places:
            written = await self._node.begin_import()
            try:
                with step("fetch blob"):
                    await self._blobs.get(blob_name(layer), written, MAX_LAYER, moved.add)
                await self._node.commit_import(written, layer)
            finally:
                os.close(written)


def deepest(place: Workspace) -> int:
    """Layers of the deepest of its stacks."""
    return max(map(len, place.stacks))


def _same(place: Workspace, packed: wire.Packed) -> bool:
    """Whether a pack found what the last backup has."""
    stacks = ((packed.workspace, place.layers), (packed.root, place.root), (packed.usr, place.usr))
    return all((part.stack if part is not None else []) == list(stack or ()) for part, stack in stacks)


def disk_of(state: Projection) -> int:
    """Bytes of the disk of a sandbox that was born."""
    return INSTANCE_TYPES[require_alive(state).instance_type].disk


def _start_words(at: Address, state: Projection, hostname: str) -> wire.Start:
    place = state.workspace
    lasting = state.persist == "disk"
    layers, root, usr = ((), (), ()) if place.empty else (place.layers, place.root or (), place.usr or ())
    return wire.Start(
        at.sandbox,
        hostname,
        list(layers),
        list(root) if lasting else None,
        list(usr) if lasting else None,
        fresh=place.void or (place.backup_id is not None and not place.empty),
        made_on=made_on(state),
    )
