from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kennel.domain import names, room
from kennel.domain.event import Event, Source
from kennel.domain.membership import JOINED
from kennel.domain.room import RoomState, Shell, evolve
from kennel.domain.stream_path import check_path
from kennel.domain.turn import SAID
from kennel.wire.errors import KennelError

AT = "2026-01-01T00:00:00.000Z"
SIMPLE = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,60}[a-z0-9])?", fullmatch=True)
TRICKY = st.sampled_from(
    ["a", "a.2", "a-2", "A", "room.a", "sandbox-a", "h", "a" * 55, "a" * 56, "-a", "a-", "a ", "é", "e\u0301"]
)
IDS = st.one_of(
    SIMPLE,
    TRICKY,
    st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=128),
)


@given(IDS, IDS, st.integers(1, 10**6), st.integers(1, 10**6))
def test_no_two_rooms_share_a_path_in_any_generation(a: str, b: str, m: int, n: int) -> None:
    same = (a, m) == (b, n)
    assert (room.sandbox_path(a, m) == room.sandbox_path(b, n)) == same
    assert (room.stream_of(a) == room.stream_of(b)) == (a == b)


@given(IDS, st.integers(1, 10**9 - 1))
def test_every_path_is_a_name_and_every_stream_a_path(room_id: str, generation: int) -> None:
    assert room.check_room_id(room_id) == room_id
    names.name_of(room.sandbox_path(room_id, generation))
    check_path(room.stream_of(room_id))


@given(IDS, st.integers(2, 10**6))
def test_later_generations_are_out_of_a_creates_reach(room_id: str, generation: int) -> None:
    with pytest.raises(KennelError):
        names.claimable_name(room.sandbox_path(room_id, generation))


def test_the_seeds_names() -> None:
    assert room.sandbox_path("room-123", 1) == "/sandboxes/sandbox-room-123"
    assert room.sandbox_path("room-123", 3) == "/sandboxes/sandbox-room-123.3"
    assert room.stream_of("room-123") == "/rooms/room-123"
    assert room.sandbox_path("Room 123", 1).startswith("/sandboxes/room.")


@pytest.mark.parametrize("bad", ["", "a" * 129, "a\0", "\n", "\x7f", "\x85", "\ud800"])
def test_other_ids_are_refused(bad: str) -> None:
    with pytest.raises(KennelError) as caught:
        room.check_room_id(bad)
    assert caught.value.code == "VALIDATION_FAILED"
    assert list(caught.value.details) == ["roomId"]


def event(offset: int, type_: str, payload: dict[str, Any], *, platform: bool = True) -> Event:
    return Event(
        position=offset, project="p", path="/rooms/a", offset=offset, type=type_, payload=payload, metadata={},
        idempotency_key=None, source=Source(platform=platform), created_at=AT, hash="",
    )  # fmt: skip


def fold(*events: tuple[str, dict[str, Any]]) -> RoomState:
    state = RoomState()
    for offset, (type_, payload) in enumerate(events, 1):
        state = evolve(state, event(offset, type_, payload))
    return state


def test_a_rooms_life() -> None:
    assigned = (room.ASSIGNED, {"path": "/s/1", "generation": 1, "roomId": "a"})
    saved = (room.SHELL_SAVED, {"path": "/s/1", "cwd": "/tmp", "env": {"A": "1"}})
    asked = (room.CLEANUP_REQUESTED, {"roomId": "a"})
    again = (room.ASSIGNED, {"path": "/s/2", "generation": 2, "roomId": "a"})
    cleaned = (room.CLEANED, {"path": "/s/1", "roomId": "a"})
    told = [
        (s.offset, s.generation, s.path, s.cleanups, s.uncleaned, s.shell)
        for s in (
            fold(assigned, saved), fold(assigned, saved, asked), fold(assigned, asked, again, saved),
            fold(assigned, asked, again, cleaned),
        )
    ]  # fmt: skip
    assert told == [
        (2, 1, "/s/1", 0, ("/s/1",), Shell("/tmp", {"A": "1"})),
        (3, 1, None, 1, ("/s/1",), None),
        (4, 2, "/s/2", 1, ("/s/1", "/s/2"), None),
        (4, 2, "/s/2", 1, ("/s/2",), None),
    ]


def test_a_cleanup_leaves_nothing_of_talk_members_title_and_settings() -> None:
    opened = (room.OPENED, {"roomId": "a"})
    said = (SAID, {"turnId": "t", "role": "user", "text": "hi", "userId": "ana"})
    titled = (room.CONFIGURED, {"title": "T", "settings": {"maxRounds": 3}})
    joined = (JOINED, {"userId": "ana", "role": "observer"})
    full = fold(opened, said, titled, joined)
    assert (full.title, full.habits.max_rounds, full.talk.open, list(full.members)) == ("T", 3, ("t",), ["ana"])
    late = (SAID, {"turnId": "t", "role": "agent", "text": "late"})
    clean = fold(opened, said, titled, joined, (room.CLEANUP_REQUESTED, {"roomId": "a"}), late, joined)
    assert clean == RoomState(offset=7, cleanups=1, room_id="a")
    again = fold(opened, said, (room.CLEANUP_REQUESTED, {"roomId": "a"}), opened, late)
    assert (again.opened_at, again.talk.said) == (AT, ())


def test_settings_change_one_by_one_and_null_takes_one_away() -> None:
    opened = (room.OPENED, {"roomId": "a"})
    first = (room.CONFIGURED, {"title": "T", "settings": {"maxRounds": 3, "history": 5}})
    second = (room.CONFIGURED, {"settings": {"maxRounds": None}})
    third = (room.CONFIGURED, {"title": None})
    state = fold(opened, first, second)
    assert (state.title, state.habits) == ("T", room.Habits(history=5))
    assert fold(opened, first, second, third).title is None


def test_what_was_configured_after_a_shell_began_goes_before_its_variables() -> None:
    shell = Shell("/", {"A": "old", "B": "1"}, 7)
    assert shell.without(frozenset({"A", "C"})) == Shell("/", {"B": "1"}, 7)


def test_a_sandbox_that_others_destroyed_needs_no_cleanup() -> None:
    first = (room.ASSIGNED, {"path": "/s/1", "generation": 1, "roomId": "a"})
    next_one = (room.ASSIGNED, {"path": "/s/3", "generation": 3, "roomId": "a", "insteadOf": "/s/1"})
    assert fold(first, next_one).uncleaned == ("/s/3",)


def test_forged_events_only_move_the_offset() -> None:
    forged = event(1, room.ASSIGNED, {"path": "/s/evil", "generation": 9}, platform=False)
    assert evolve(RoomState(), forged) == RoomState(offset=1)


def test_what_of_a_shell_is_kept() -> None:
    env = {"A": "1", "_": "x", "PWD": "/", "SHLVL": "2", "BAD": "\udcff", "OLDPWD": "/x"}
    assert room.keepable("/tmp", env) == Shell("/tmp", {"A": "1", "OLDPWD": "/x"})
    assert room.keepable("/\udcff", {}) is None
    assert room.keepable("/", {"A": "x" * room.MAX_SAVED_ENV}) is None
