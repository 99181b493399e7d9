"""What a create may ask for, and the batch of events that is a birth."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kennel.domain import creation
from kennel.domain.claim import Claim
from kennel.domain.command import Outcome
from kennel.domain.create_options import CreateOptions
from kennel.domain.principal import SYSTEM
from kennel.domain.sandbox import EMPTY
from kennel.wire.errors import KennelError

CLAIM = Claim(
    project="default",
    path="/sandboxes/main",
    sandbox_id="sb1",
    request_id="r1",
    options=CreateOptions(env={"A": "1"}, sleep_after="5m", labels={"team": "x"}),
    image_digest="sha256:" + "0" * 64,
    claimed_at="2026-01-01T00:00:00Z",
    key_id="key_1",
    offset=2,
)


@pytest.mark.parametrize(
    ("change", "code", "field"),
    [
        ({"instance_type": "huge"}, "VALIDATION_FAILED", "instanceType"),
        ({"isolation": "vm"}, "VALIDATION_FAILED", "isolation"),
        ({"isolation": "gvisor"}, "ISOLATION_UNAVAILABLE", "asked"),
        ({"persist": "never"}, "VALIDATION_FAILED", "persist"),
        ({"sleep_after": "soon"}, "VALIDATION_FAILED", "sleepAfter"),
        ({"env": {"A=B": "1"}}, "VALIDATION_FAILED", "env"),
        ({"env": {"": "1"}}, "VALIDATION_FAILED", "env"),
        ({"env": {"A": "x\0y"}}, "VALIDATION_FAILED", "env"),
        ({"env": {"A": "x" * 70_000}}, "VALIDATION_FAILED", "env"),
        ({"labels": {"-": "x"}}, "VALIDATION_FAILED", "labels"),
        ({"labels": {f"k{n}": "" for n in range(65)}}, "VALIDATION_FAILED", "labels"),
        ({"labels": {"k": "v" * 256}}, "VALIDATION_FAILED", "labels"),
        ({"leave_out": {"all": True}}, "VALIDATION_FAILED", "leaveOut"),
        ({"leave_out": {"nodeModules": 1}}, "VALIDATION_FAILED", "leaveOut"),
        ({"leave_out": {"patterns": "*.o"}}, "VALIDATION_FAILED", "leaveOut"),
        ({"leave_out": {"patterns": ["a"] * 65}}, "VALIDATION_FAILED", "leaveOut"),
        ({"leave_out": {"patterns": ["\ud800"]}}, "VALIDATION_FAILED", "leaveOut"),
    ],
)
def test_refused(change: dict[str, Any], code: str, field: str) -> None:
    with pytest.raises(KennelError) as caught:
        creation.check(replace(CreateOptions(), **change))
    assert caught.value.code == code
    assert field in caught.value.details
    assert caught.value.admitted == "no"


def test_defaults_are_valid() -> None:
    creation.check(CreateOptions())
    creation.check(CreateOptions(env={"A": None, "B_2": ""}))


def test_a_birth_is_one_batch_whose_keys_know_nothing_of_the_environment() -> None:
    events = creation.birth(SYSTEM, CLAIM)
    assert [event.type for event in events] == ["sandbox/created", "sandbox/configured"]
    assert events[0].payload["config"]["instanceType"] == "basic"
    assert events[1].payload == {"env": {"A": "1"}, "sleepAfter": "5m", "labels": {"team": "x"}}
    other = creation.birth(SYSTEM, replace(CLAIM, options=replace(CLAIM.options, env={"A": "2"})))
    assert [event.idempotency_key for event in other] == [event.idempotency_key for event in events]
    bare = creation.birth(SYSTEM, replace(CLAIM, options=CreateOptions()))
    assert [event.type for event in bare] == ["sandbox/created"]


def test_an_unfinished_creation_is_shown_as_claimed() -> None:
    shown = creation.view(CLAIM, EMPTY)
    assert (shown.status, shown.running, shown.name, shown.labels) == ("creating", False, "main", {"team": "x"})


def test_finished_says_how_it_ended_and_nothing_of_what_was_printed() -> None:
    outcome = Outcome(b"secret", b"secret", 137, signal="SIGKILL", stdout_bytes=6, stderr_bytes=6, duration_ms=1.5)
    payload = creation.finished("e1", outcome)
    assert payload == {
        "execId": "e1",
        "exitCode": 137,
        "signal": "SIGKILL",
        "timedOut": False,
        "durationMs": 1.5,
        "stdoutBytes": 6,
        "stderrBytes": 6,
    }
