"""Points over a scripted machine: one look serves a crowd, a failure fails no command, old files go."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kennel.control import points as module
from kennel.control.fleet import Pet
from kennel.control.points import Points
from kennel.domain.event import Event, NewEvent, Source
from kennel.domain.snapshot import KEPT, KEPT_POINTS, fold, point_before
from kennel.wire.errors import error
from kennel.wire.node import Made, Packed, Part, Pointed

pytestmark = pytest.mark.anyio


def digest(number: int) -> str:
    return f"{number:064x}"


class Machine:
    """A node on which every look finds one change more, until it is told to stand still."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.removed: list[str] = []
        self.changes, self.names, self.still = 0, 1, False
        self.failure: Exception | None = None

    async def point(self, sandbox: str, seen: str) -> Pointed:
        await asyncio.sleep(0.01)
        if self.failure is not None:
            raise self.failure
        self.seen.append(seen)
        if self.still and seen:
            return Pointed(seen, self.names)
        self.changes += 0 if self.still else 1
        made = Made(digest(self.changes), 4096, 1, 1)
        return Pointed(f"m{self.changes}", self.names, Packed(Part([made.digest, digest(0)], made)))

    async def remove_layer(self, layer: str) -> None:
        self.removed.append(layer)


class World:
    """A service of points, its machine, and what it told."""

    def __init__(self) -> None:
        self.node, self.told, self.stored = Machine(), [], {f"layers/{digest(0)}"}
        self.pet, self.live = Pet("p", "/sandboxes/a", "sb1", set()), object()
        fleet: Any = type("Fleet", (), {"node": self.node})()
        self.points = Points(fleet, self, self, self.book)  # type: ignore[arg-type]

    told: list[NewEvent]

    async def note(self, project: str, path: str, event: NewEvent) -> None:
        self.told.append(event)

    async def exists(self, name: str) -> bool:
        return name in self.stored

    async def book(self, project: str, path: str) -> dict[str, Any]:
        return {}

    async def before(self) -> None:
        await self.points.before(self.pet, self.live)  # type: ignore[arg-type]


async def test_a_hundred_commands_at_once_cost_two_looks() -> None:
    world = World()
    await asyncio.gather(*(world.before() for _ in range(100)))
    assert len(world.node.seen) == 2
    assert len(world.told) == 2


async def test_nothing_changed_is_no_event_and_another_run_begins_anew() -> None:
    world = World()
    await world.before()
    world.node.still = True
    await world.before()
    assert world.node.seen == ["", "m1"]
    assert len(world.told) == 1
    world.live = object()
    await world.before()
    assert world.node.seen[-1] == ""
    assert len(world.told) == 2


@pytest.mark.parametrize("failure", [error("PACK_TOO_LARGE", "vast"), TimeoutError()])
async def test_one_that_fails_raises_nothing_and_is_not_tried_again_at_once(failure: Exception) -> None:
    world = World()
    world.node.failure = failure
    await world.before()
    world.node.failure = None
    await world.before()
    assert (world.node.seen, world.told) == ([], [])


async def test_a_node_that_went_away_is_asked_again_by_the_next_command() -> None:
    world = World()
    world.node.failure = error("NODE_UNAVAILABLE", "node went away")
    await world.before()
    world.node.failure = None
    await world.before()
    assert (world.node.seen, len(world.told)) == ([""], 1)


async def test_many_names_are_looked_at_less_often() -> None:
    world = World()
    world.node.names = module.MANY_NAMES + 1
    for _ in range(5):
        await world.before()
    assert len(world.told) == 1


async def test_the_files_of_old_points_go_unless_somebody_uploaded_them() -> None:
    world = World()
    world.stored.add(f"layers/{digest(2)}")
    for _ in range(KEPT_POINTS + 3):
        await world.before()
    await world.points.close()
    assert world.node.removed == [digest(1), digest(3)]


def _event(offset: int, type_: str, payload: dict[str, Any]) -> Event:
    return Event(
        offset=offset, type=type_, payload=payload, metadata={}, idempotency_key=None, project="p",
        path="/sandboxes/a", created_at="2026-01-01T00:00:00+00:00", source=Source(platform=True), position=offset,
        hash="",
    )  # fmt: skip


def test_points_push_out_points_and_nothing_else() -> None:
    backup = {"layers": [digest(0)], "reason": "idle"}
    events = [_event(n, "sandbox/backup-created", {"backupId": f"bk{n}", **backup}) for n in range(1, KEPT + 2)]
    events += [_event(n, "sandbox/point-taken", {"backupId": f"pt{n}", "layers": [digest(n)]}) for n in range(100, 130)]
    found = fold(events)
    assert len([id_ for id_ in found if id_.startswith("bk")]) == KEPT
    assert list(found)[-KEPT_POINTS:] == [f"pt{n}" for n in range(130 - KEPT_POINTS, 130)]
    assert point_before(found.values(), 120).id == "pt119"  # type: ignore[union-attr]
    assert point_before(found.values(), 130 - KEPT_POINTS) is None
    assert point_before(found.values(), 50) is None


def test_points_go_when_the_workspace_expires() -> None:
    events = [_event(1, "sandbox/point-taken", {"backupId": "pt1", "layers": [digest(1)]})]
    assert fold([*events, _event(2, "sandbox/workspace-expired", {"backupId": "bk1"})]) == {}


def test_a_parent_is_the_nearest_listed_one_that_the_files_came_from() -> None:
    def made(offset: int, kind: str, id_: str, **more: Any) -> Event:
        return _event(offset, f"sandbox/{kind}", {"backupId": id_, "layers": ["x"], **more})

    told = [
        made(1, "backup-created", "a", reason="snapshot"),
        made(2, "point-taken", "p"),
        made(3, "backup-created", "b", reason="requested"),
        made(4, "backup-created", "c", reason="snapshot"),
        made(5, "rolled-back", "p"),
        made(6, "backup-created", "d", reason="snapshot"),
    ]
    parents = {id_: each.parent for id_, each in fold(told).items()}
    assert parents == {"a": None, "p": "a", "b": "a", "c": "b", "d": "p"}
    told.append(made(7, "snapshot-deleted", "b"))
    assert fold(told)["c"].parent == "a"
    told.append(_event(8, "sandbox/workspace-expired", {}))
    assert {id_: each.parent for id_, each in fold(told).items()} == {"a": None, "c": "a", "d": "a"}
    told.append(made(9, "backup-created", "e", reason="snapshot"))
    assert fold(told)["e"].parent is None
