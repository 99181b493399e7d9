"""Owns the rules of stacks: what to merge, which layers nobody needs, when a pointer may move, what a stack weighs.

Called by control (compaction, collection, snapshots) and node. Invariant: no rule here ever names a layer for deletion
that a reference, a live mount or a young age speaks for; a merge never changes how deep the rest of a stack is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from kennel.domain.layer import LayerInfo
from kennel.wire.errors import error

MAX_DEPTH = 8
"""Layers of a stack after compaction; a missing name costs 5 µs at depth 1 and 32 at 32."""

HARD_DEPTH = 64
"""Layers of a stack that can still be mounted: packing is refused beyond, until a compaction ran."""

_FANOUT = 4
"""A layer is merged with its upper neighbours once they weigh a quarter of it: each byte is rewritten a few times."""


class Pointer(msgspec.Struct, rename="camel", frozen=True):
    """What a sandbox's workspace is now: a snapshot's id, its layers (the topmost first), and whose epoch moved it."""

    epoch: int
    snapshot: str | None
    layers: tuple[str, ...] = ()


class Merge(msgspec.Struct, frozen=True):
    """The layers `first` up to, not including, `last` of a stack become one."""

    first: int
    last: int
    bottom: bool


def moved(current: Pointer, expected: Pointer, epoch: int, snapshot: str, layers: Sequence[str]) -> Pointer:
    """The pointer after a move: only from the epoch and id that the mover saw, never to an older epoch.

    POINTER_CONFLICT otherwise; the same move asked again is answered with the pointer it made.
    """
    wanted = Pointer(epoch, snapshot, tuple(layers))
    if current == wanted:
        return current
    if (current.epoch, current.snapshot) != (expected.epoch, expected.snapshot):
        raise error("POINTER_CONFLICT", "another snapshot was taken meanwhile", admitted="no")
    if epoch < current.epoch:
        raise error("POINTER_CONFLICT", f"epoch {epoch} is over; now it is {current.epoch}", admitted="no")
    return wanted


def pushed(layers: Sequence[str], made: LayerInfo) -> tuple[str, ...]:
    """The stack with a new layer on top; an equal top layer is not put there twice."""
    if layers and layers[0] == made.digest:
        return tuple(layers)
    return (made.digest, *layers)


def merge_due(sizes: Sequence[int], most: int = MAX_DEPTH) -> Merge | None:
    """Which neighbours of a stack (image sizes in bytes, the topmost first) to merge now; None when it is shallow.

    The run with the least bytes to write for each layer that it saves, among those that bring the stack to `most`.
    A layer below joins when what lies above it in the run weighs a quarter of it: it would be merged soon anyway.
    """
    excess = len(sizes) - most
    if excess <= 0:
        return None
    width = excess + 1
    first = min(range(len(sizes) - width + 1), key=lambda at: (sum(sizes[at : at + width]), at))
    last = first + width
    while last < len(sizes) and sum(sizes[first:last]) * _FANOUT >= sizes[last]:
        last += 1
    return Merge(first, last, last == len(sizes))


def merge_planned(sizes: Sequence[int], disk: int, most: int = MAX_DEPTH) -> Merge | None:
    """As `merge_due`; and a stack that takes over half of a disk of `disk` bytes becomes one layer.

    What its upper layers hide counts against the quota. New layers have to weigh an eighth of the disk for it: at most
    eight bytes are written for each that was new.
    """
    if len(sizes) > 1 and sum(sizes) * 2 > disk and sum(sizes[:-1]) * 8 >= disk:
        return Merge(0, len(sizes), True)
    return merge_due(sizes, most)


def merged(layers: Sequence[str], merge: Merge, made: str) -> tuple[str, ...]:
    """The stack after a merge."""
    return (*layers[: merge.first], made, *layers[merge.last :])


def replaced(current: Sequence[str], before: Sequence[str], merge: Merge, made: str) -> tuple[str, ...] | None:
    """A stack that may have grown since the merge was planned, with it; None when the merged layers are not in it."""
    grown = len(current) - len(before)
    if grown < 0 or tuple(current[grown:]) != tuple(before):
        return None
    return (*current[:grown], *merged(before, merge, made))


def unpacked(layers: Sequence[str], known: Mapping[str, LayerInfo]) -> int:
    """Bytes that a stack counts against a quota: what its files say they hold, layer by layer."""
    return sum(known[layer].unpacked for layer in layers)


class Suspect(msgspec.Struct, frozen=True):
    """A layer that a first look found unneeded, and when (seconds)."""

    digest: str
    since: float


def referenced(stacks: Iterable[Sequence[str]], mounted: Collection[str] = ()) -> frozenset[str]:
    """Every layer that a sandbox's pointer, an upper, a snapshot, a fork in progress or a mount needs."""
    return frozenset(layer for stack in stacks for layer in stack) | frozenset(mounted)


def collect(
    ages: Mapping[str, float],
    needed: Collection[str],
    suspects: Iterable[Suspect],
    now: float,
    grace: float,
) -> tuple[list[str], list[Suspect]]:
    """Which layers to delete now, and the suspects to look at again.

    `ages`: seconds since each stored layer was last written or asked for. A layer goes only if two looks, at least
    `grace` apart, found it unneeded, and it is older than `grace` at the second: an upload whose pointer has not moved
    yet is young.
    """
    since = {suspect.digest: suspect.since for suspect in suspects}
    gone: list[str] = []
    kept: list[Suspect] = []
    for layer, age in sorted(ages.items()):
        if layer in needed:
            continue
        first = since.get(layer, now)
        if now - first >= grace and age >= grace and layer in since:
            gone.append(layer)
        else:
            kept.append(Suspect(layer, first))
    return gone, kept
