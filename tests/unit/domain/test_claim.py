"""The fold of claims."""

from __future__ import annotations

from kennel.domain.claim import Claims, evolve, payload_of, request
from kennel.domain.create_options import CreateOptions
from kennel.domain.event import Event, NewEvent, Source
from kennel.domain.principal import SYSTEM

A = "/sandboxes/a"


def event(type_, payload, *, offset=2, platform=True):
    return Event(
        position=offset, project="p", path="/sandboxes", offset=offset, type=type_, payload=payload, metadata={},
        idempotency_key=None, source=Source(platform=platform, key_id="k"), created_at="now", hash="",
    )  # fmt: skip


def asked(request_id="r1", sandbox="sb1", **more):
    return event("sandbox/create-requested", payload_of(A, CreateOptions(), "sha256:1", request_id, sandbox), **more)


def given_up(request_id="r1", **more):
    payload = {"path": A, "requestId": request_id, "code": "X", "reason": "y"}
    return event("sandbox/create-abandoned", payload, **more)


def fold(*events):
    claims = Claims()
    for one in events:
        claims = evolve(claims, one)
    return claims


def test_the_first_claim_holds():
    claims = fold(asked(), asked("r2", "sb2", offset=3))
    assert claims.taken[A].sandbox_id == "sb1"


def test_unstamped_events_claim_and_free_nothing():
    assert fold(asked(platform=False)).taken == {}
    assert fold(asked(), given_up(platform=False)).taken[A].request_id == "r1"


def test_only_the_holder_gives_up():
    assert fold(asked(), given_up("r2")).taken[A].request_id == "r1"
    claims = fold(asked(), given_up(), given_up())
    assert claims.taken == {}
    assert claims.abandonments == {A: 1}


def test_each_abandonment_changes_the_key():
    payload = payload_of(A, CreateOptions(), "sha256:1", "r3", "sb3")
    first = request(SYSTEM, Claims(), payload, 2)
    again = request(SYSTEM, fold(asked(), given_up()), payload, 4)
    assert isinstance(first, NewEvent)
    assert first.idempotency_key != again.idempotency_key
    assert (first.offset, again.offset) == (2, 4)
    assert first.source.platform


def test_options_come_back_as_they_were():
    options = CreateOptions(
        instance_type="lite", image="stock", env={"A": None}, sleep_after=60, keep_alive=True, persist="disk",
        labels={"x": "y"},
    )  # fmt: skip
    payload = payload_of(A, options, "sha256:1", "r1", "sb1")
    assert fold(event("sandbox/create-requested", payload)).taken[A].options == options
    assert "env" not in payload_of(A, CreateOptions(), "sha256:1", "r1", "sb1")
