"""The fold of a sandbox's life."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kennel.domain.event import Event, Source
from kennel.domain.event_types import EVENT_TYPES
from kennel.domain.sandbox import EMPTY, Projection, evolve, made_on, refusal, require_alive
from kennel.wire.errors import KennelError

CONFIG = {
    "instanceType": "basic", "image": "host", "imageDigest": "sha256:1", "isolation": "container",
    "persist": "workspace", "sandboxId": "sb1",
}  # fmt: skip


def event(type_: str, payload=None, *, offset=2, platform=True) -> Event:
    return Event(
        position=offset, project="p", path="/sandboxes/a", offset=offset, type=type_, payload=payload or {},
        metadata={}, idempotency_key=None, source=Source(platform=platform, key_id="k"),
        created_at=f"2026-01-01T00:00:{offset:02}Z", hash="",
    )  # fmt: skip


def life(*events, start=EMPTY, platform=True) -> Projection:
    state = start
    for offset, (type_, payload) in zip(itertools.count(2), events, strict=False):
        state = evolve(state, event("sandbox/" + type_, payload, offset=offset, platform=platform))
    return state


BORN = ("created", {"config": CONFIG})


def test_a_whole_life():
    state = life(BORN, ("configured", {"env": {"A": "1", "B": "2"}}))
    assert (state.status, state.running, state.instance_type, state.sandbox_id) == ("created", False, "basic", "sb1")
    assert state.birth_certificate is not None
    assert state.birth_certificate.created_at == state.created_at == "2026-01-01T00:00:02Z"
    state = life(("start-requested", {}), ("started", {}), ("workspace-restored", {"backupId": "b0"}), start=state)
    assert (state.status, state.running, state.last_backup_id) == ("running", True, None)
    state = life(
        ("sleep-requested", {}), ("backup-created", {"backupId": "b1"}), ("stopped", {"reason": "idle"}), start=state
    )
    assert (state.status, state.running, state.last_backup_id, state.stop_reason) == ("stopped", False, "b1", "idle")
    state = life(("started", {}), start=state)
    assert state.stop_reason is None
    state = life(("destroy-requested", {}), ("stopped", {}), ("destroyed", {}), start=state)
    assert (state.status, state.running) == ("destroyed", False)


def test_the_first_created_wins():
    again = {**CONFIG, "instanceType": "standard-4", "sandboxId": "sb2"}
    state = life(BORN, ("started", {}), ("created", {"config": again}))
    assert (state.instance_type, state.sandbox_id, state.status) == ("basic", "sb1", "running")


def test_destroyed_is_terminal_and_late_completions_are_harmless():
    dead = life(BORN, ("started", {}), ("destroyed", {}))
    for late in [("stopped", {"reason": "lost"}), ("started", {}), BORN]:
        assert life(late, start=dead) == dead
    assert life(("backup-created", {"backupId": "b"}), start=dead).status == "destroyed"


def test_the_environment_merges_by_key_and_null_unsets():
    state = life(BORN, ("configured", {"env": {"A": "1", "B": "2"}}), ("configured", {"env": {"A": None, "C": ""}}))
    assert state.env == {"B": "2", "C": ""}
    assert life(("configured", {"env": {"nope": None}}), start=state).env == state.env


def test_null_takes_away_what_would_be_planted_until_it_is_set_again():
    state = life(BORN, ("configured", {"env": {"GH_TOKEN": None, "OTHER": None}}))
    assert (state.env, state.unset) == ({}, ("GH_TOKEN",))
    assert life(("configured", {"env": {"A": "1"}}), start=state).unset == ("GH_TOKEN",)
    state = life(("configured", {"env": {"GH_TOKEN": "mine"}}), start=state)
    assert (state.env, state.unset) == ({"GH_TOKEN": "mine"}, ())


def test_habits_and_labels_replace():
    state = life(BORN, ("configured", {"sleepAfter": "5m", "keepAlive": True, "labels": {"a": "1"}}))
    assert (state.sleep_after, state.keep_alive, state.labels) == ("5m", True, {"a": "1"})
    state = life(("configured", {"sleepAfter": None, "labels": {"b": "2"}}), start=state)
    assert (state.sleep_after, state.keep_alive, state.labels) == (None, True, {"b": "2"})


def test_an_expired_workspace_has_no_backup():
    assert (
        life(BORN, ("backup-created", {"backupId": "b"}), ("workspace-expired", {"backupId": "b"})).last_backup_id
        is None
    )


def test_files_age_from_their_last_use_on():
    fork = life(BORN, ("backup-created", {"backupId": "b", "layers": [], "reason": "fork"}))
    assert fork.workspace.used_at == fork.workspace.saved_at == "2026-01-01T00:00:03Z"
    slept = life(("started", {}), ("backup-created", {"backupId": "c"}), ("stopped", {}), start=fork)
    assert slept.workspace.used_at == "2026-01-01T00:00:04Z"
    # One that expired in its sleep and is taken back to what somebody named is used by that.
    expired = evolve(slept, event("sandbox/workspace-expired", {"backupId": "c"}, offset=50))
    back = evolve(expired, event("sandbox/rolled-back", {"backupId": "b", "layers": []}, offset=51))
    assert back.workspace.used_at == "2026-01-01T00:00:51Z"
    saved = evolve(slept, event("sandbox/backup-created", {"backupId": "d", "layers": []}, offset=52))
    assert saved.workspace.used_at == "2026-01-01T00:00:52Z"
    assert life(BORN).workspace.used_at is None


PAYLOADS = {
    "created": {"config": CONFIG}, "configured": {"env": {"X": "1"}}, "backup-created": {"backupId": "forged"},
    "stopped": {"reason": "killed"}, "workspace-expired": {"backupId": "b"},
}  # fmt: skip


@pytest.mark.parametrize("type_", [t for t in EVENT_TYPES if t.startswith("sandbox/")])
def test_an_unstamped_event_of_any_type_changes_nothing(type_):
    for state in (EMPTY, life(BORN), life(BORN, ("started", {})), life(BORN, ("destroyed", {}))):
        forged = event(type_, PAYLOADS.get(type_.removeprefix("sandbox/"), {}), platform=False)
        assert evolve(state, forged) == state


def test_other_peoples_events_change_nothing():
    state = life(BORN)
    for type_ in ("stream/created", "room/cleaned", "note/made", "sandboxes/created"):
        assert evolve(state, event(type_, {"config": CONFIG})) == state


def test_refusals():
    def code(state):
        fault = refusal(state)
        return fault and fault.code

    assert code(EMPTY) == "SANDBOX_CREATING"
    assert code(life(BORN)) is None
    assert code(life(BORN, ("destroyed", {}))) == "SANDBOX_DESTROYED"
    assert require_alive(life(BORN)).sandbox_id == "sb1"
    with pytest.raises(KennelError):
        require_alive(EMPTY)


STEPS = st.sampled_from(
    [BORN, ("started", {}), ("stopped", {}), ("destroyed", {}), ("backup-created", {"backupId": "b"}),
     ("configured", {"env": {"A": "1"}}), ("configured", {"env": {"A": None}}),
     ("kill-requested", {}), ("exec-started", {})]
)  # fmt: skip


@given(st.lists(STEPS, max_size=20))
def test_invariants_of_any_history(steps):
    state, destroyed = EMPTY, False
    for type_, payload in steps:
        state = evolve(state, event("sandbox/" + type_, payload))
        destroyed |= type_ == "destroyed"
        assert (state.status == "destroyed") == destroyed
        assert state.running == (state.status == "running")
    again = msgspec.json.decode(msgspec.json.encode(state), type=Projection)
    assert again == state


KEEPS = ("created", {"config": {**CONFIG, "persist": "disk"}})
BACKED = ("backup-created", {"backupId": "b", "layers": [], "root": ["1" * 64], "imageDigest": "sha256:2"})


@pytest.mark.parametrize(
    ("events", "digest"),
    [
        ([BORN, ("started", {})], None),
        ([KEEPS], None),
        ([KEEPS, ("started", {})], "sha256:1"),
        ([KEEPS, ("started", {"imageDigest": "sha256:2"})], "sha256:2"),
        ([KEEPS, ("started", {"imageDigest": "sha256:2"}), ("stopped", {}), ("started", {})], "sha256:2"),
        ([KEEPS, BACKED], "sha256:2"),
        ([KEEPS, ("backup-created", {"backupId": "b", "layers": [], "root": []})], "sha256:1"),
        ([KEEPS, BACKED, ("compacted", {"layers": [], "root": []})], "sha256:2"),
        ([KEEPS, BACKED, ("rolled-back", {**BACKED[1], "imageDigest": "sha256:3"})], "sha256:3"),
    ],
)
def test_which_image_the_changes_outside_the_workspace_were_made_on(events, digest):
    assert made_on(life(*events)) == digest
