"""Owns the commands about layers: pack, point, drop, merge, compare, export, hand out, take in, list, remove.

Called by server, on threads of their own: each may take minutes. Invariant: what control says (digests, tokens, paths)
is checked here; a descriptor that came with a command is closed by the server, whatever happens.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from typing import Any

from kennel.domain import exclusion
from kennel.domain.layer import digest
from kennel.domain.stack import HARD_DEPTH
from kennel.node.freezer import Freezer
from kennel.node.pack import LeftOut
from kennel.node.packer import Progress
from kennel.node.record import Record
from kennel.node.rootfs import Places
from kennel.node.unit import Units
from kennel.wire import node as wire
from kennel.wire.errors import error

Answer = tuple[Any, list[int]]

MAX_NAMES = 64
MAX_MARK = 64


def pack(units: Units, request: wire.Pack, given: Sequence[int]) -> Answer:
    names = [name for name in request.names if name and "/" not in name and "\0" not in name and len(name) < 256]
    if len(names) != len(request.names) or len(names) > MAX_NAMES:
        raise error("VALIDATION_FAILED", f"at most {MAX_NAMES} names, each of one element", admitted="no")
    left_out = LeftOut(_paths(given), names)

    def work(places: Places, record: Record, freezer: Freezer | None, look: Progress) -> wire.Packed | None:
        return units.uppers.pack(places, record, left_out, freezer, look)

    return units.pack(request.sandbox, work, live=request.live), []


def point(units: Units, request: wire.Point, _: Sequence[int]) -> Answer:
    if len(request.seen) > MAX_MARK:
        raise error("VALIDATION_FAILED", "not a mark of a point", admitted="no")

    def work(places: Places, record: Record, freezer: Freezer | None, look: Progress) -> wire.Pointed:
        if freezer is None:
            raise error("RESOURCE_BUSY", "the sandbox does not run", admitted="no")
        return units.uppers.point(places, record, request.seen, freezer, look)

    return units.pack(request.sandbox, work, live=True), []


def _paths(given: Sequence[int]) -> list[bytes]:
    """The list in a file that came along; read at once, so that a later change to it changes nothing."""
    if not given:
        return []
    listed = _file(given, "the list of paths")
    listing, position = bytearray(), 0
    while len(listing) <= exclusion.MAX_BYTES and (piece := os.pread(listed, 1 << 20, position)):
        listing += piece
        position += len(piece)
    return exclusion.parse(bytes(listing))


def _file(given: Sequence[int], what: str) -> int:
    """The descriptor that came along; a pipe or a device could keep whoever reads it for ever."""
    if not given or not stat.S_ISREG(os.fstat(given[0]).st_mode):
        raise error("VALIDATION_FAILED", f"{what} comes as a file", admitted="no")
    return given[0]


def drop_disk(units: Units, request: wire.DropDisk, _: Sequence[int]) -> Answer:
    units.drop_disk(request.sandbox)
    return None, []


def checked(layers: Sequence[str]) -> list[str]:
    """A stack that control named."""
    if len(layers) > HARD_DEPTH:
        raise error("VALIDATION_FAILED", f"a stack has at most {HARD_DEPTH} layers", admitted="no")
    return [digest(layer) for layer in layers]


def compact(units: Units, request: wire.Compact, _: Sequence[int]) -> Answer:
    asked = checked(request.layers)
    units.uppers.require(asked)
    made = units.uppers.packing.compact(asked, bottom=request.bottom)
    return wire.Made(made.digest, made.size, made.unpacked, made.entries), []


def compare(units: Units, request: wire.Compare, _: Sequence[int]) -> Answer:
    old, new = checked(request.old), checked(request.new)
    found = units.compare(old, new, request.sandbox)
    return wire.Compared(found.added, found.changed, found.removed), [found.listing]


def export(units: Units, request: wire.Export, given: Sequence[int]) -> Answer:
    if not given:
        raise error("VALIDATION_FAILED", "an export needs a descriptor to write to", admitted="no")
    asked = checked(request.layers)
    units.uppers.require(asked)
    return units.uppers.packing.export(given[0], asked), []


def open_layer(units: Units, request: wire.OpenLayer, _: Sequence[int]) -> Answer:
    return None, [units.uppers.layers.open(digest(request.layer))]


def begin_import(units: Units, _: wire.BeginImport, __: Sequence[int]) -> Answer:
    return None, [units.uppers.layers.begin_import()]


def commit_import(units: Units, request: wire.CommitImport, given: Sequence[int]) -> Answer:
    units.uppers.layers.commit_import(_file(given, "a layer"), digest(request.layer))
    return None, []


def list_layers(units: Units, _: wire.ListLayers, __: Sequence[int]) -> Answer:
    return wire.LayersHere(units.uppers.layers.list(), sorted(units.held_layers())), []


def remove_layer(units: Units, request: wire.RemoveLayer, _: Sequence[int]) -> Answer:
    name = digest(request.layer)
    if name in units.held_layers():
        raise error("RESOURCE_BUSY", f"an upper lies on layer {name}", admitted="no")
    units.uppers.layers.remove(name)
    return None, []


VERBS: dict[type, Callable[[Units, Any, Sequence[int]], Answer]] = {
    wire.Pack: pack,
    wire.Point: point,
    wire.DropDisk: drop_disk,
    wire.Compact: compact,
    wire.Compare: compare,
    wire.Export: export,
    wire.OpenLayer: open_layer,
    wire.BeginImport: begin_import,
    wire.CommitImport: commit_import,
    wire.ListLayers: list_layers,
    wire.RemoveLayer: remove_layer,
}
