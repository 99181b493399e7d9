"""Owns how snapshots lie below each other on a page: rows, the newest first, with the lanes that join them.

Called by the snapshots' page. Invariant: a row comes above its parent; a line leads from each row to its parent and
nowhere else; at most MAX_LANES are drawn, whatever was rolled back to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kennel.domain.snapshot import POINT
from kennel.wire.results import SnapshotView

MAX_LANES = 10


@dataclass(frozen=True, slots=True)
class Row:
    """A snapshot, or the files as they are now (`view` None), and its lanes, each as the words of a CSS class."""

    view: SnapshotView | None
    lanes: tuple[str, ...]


def rows(snapshots: Sequence[SnapshotView], current: str | None) -> list[Row]:
    """The rows of these snapshots (the newest first) below the files as they are now, which lie on `current`.

    Points are shown where something hangs on them; the others have a list of their own.
    """
    parents = {each.parent for each in snapshots} | {current}
    shown = [each for each in snapshots if each.reason != POINT or each.forks or each.id in parents]
    known = {each.id for each in shown}
    lanes: list[str | None] = []
    found = [Row(None, _lanes(lanes, "", current if current in known else None))]
    for each in shown:
        found.append(Row(each, _lanes(lanes, each.id, each.parent if each.parent in known else None)))
    width = max(len(row.lanes) for row in found)
    return [Row(row.view, row.lanes + ("lane",) * (width - len(row.lanes))) for row in found]


def _lanes(lanes: list[str | None], own: str, parent: str | None) -> tuple[str, ...]:
    """Draws one row and leaves in `lanes` what each of them waits for below it."""
    mine = [number for number, waits in enumerate(lanes) if waits == own and own]
    at = mine[0] if mine else next((number for number, waits in enumerate(lanes) if waits is None), len(lanes))
    if at == len(lanes):
        lanes.append(None)
    above = [waits is not None for waits in lanes]
    for number in mine:
        lanes[number] = None
    lanes[at] = parent
    last = mine[-1] if mine else at
    drawn = []
    for number, comes in enumerate(above):
        words = {
            "up": comes,
            "down": lanes[number] is not None,
            "dot": number == at,
            "left": at < number <= last,
            "right": at <= number < last,
        }
        drawn.append(" ".join(["lane", *(word for word, holds in words.items() if holds)]))
    while lanes and lanes[-1] is None:
        lanes.pop()
    return tuple(drawn[:MAX_LANES])
