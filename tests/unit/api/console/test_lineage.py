"""How snapshots are drawn below each other."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kennel.api.console.lineage import MAX_LANES, rows
from kennel.wire.results import SnapshotView


def snapshot(id_: str, parent: str | None, reason: str = "snapshot", **more: Any) -> SnapshotView:
    return SnapshotView(
        id=id_, name=None, reason=reason, created_at="2026-01-01T00:00:00Z", expires_at=None, size=0, left_out=0,
        depth=1, parent=parent, **more,
    )  # fmt: skip


def test_one_line_of_descent_has_one_lane() -> None:
    found = rows([snapshot("b", "a"), snapshot("a", None)], "b")
    assert [row.view and row.view.id for row in found] == [None, "b", "a"]
    assert [row.lanes for row in found] == [("lane down dot",), ("lane up down dot",), ("lane up dot",)]


def test_what_was_rolled_back_from_has_a_lane_of_its_own_that_joins_at_their_parent() -> None:
    found = rows([snapshot("c", "a"), snapshot("b", "a"), snapshot("a", None)], "c")
    assert [row.lanes for row in found] == [
        ("lane down dot", "lane"),
        ("lane up down dot", "lane"),
        ("lane up down", "lane down dot"),
        ("lane up dot right", "lane up left"),
    ]


def test_points_are_shown_where_something_hangs_on_them() -> None:
    points = [snapshot("p3", "a", "point"), snapshot("p2", "a", "point", forks=["/sandboxes/x"])]
    shown = [snapshot("b", "p1"), *points, snapshot("p1", "a", "point"), snapshot("a", None)]
    assert [row.view.id for row in rows(shown, "b") if row.view] == ["b", "p2", "p1", "a"]


def test_a_parent_that_is_not_listed_is_none() -> None:
    assert rows([snapshot("b", "gone")], "gone")[0].lanes == ("lane dot",)


@given(st.lists(st.integers(min_value=0, max_value=40), max_size=40), st.integers(min_value=0, max_value=40))
def test_lines_never_begin_or_end_in_the_air(picks: list[int], now: int) -> None:
    made: list[SnapshotView] = []
    for number, pick in enumerate(picks):
        parent = None if pick >= number else str(pick)
        made.insert(0, snapshot(str(number), parent))
    found = rows(made, str(now) if now < len(made) else None)
    wide = max(len(row.lanes) for row in found)
    assert wide <= MAX_LANES
    for above, below in zip(found, [*found[1:], None], strict=True):
        assert sum("dot" in lane for lane in above.lanes) <= 1
        for lane, beneath in zip(above.lanes, below.lanes if below else ("lane",) * wide, strict=True):
            assert ("down" in lane.split()) == ("up" in beneath.split())
