"""The fold of keys."""

from __future__ import annotations

import pytest

from kennel.domain import key
from kennel.domain.event import Event, Source
from kennel.domain.key import KeyRing, evolve
from kennel.wire.errors import InvalidRequest

MADE = {"keyId": "key_1", "project": "p", "scopes": ["read"], "name": "n", "sha256": key.digest("token")}


def event(type_, payload, *, platform=True):
    return Event(
        position=2, project="_kennel", path="/keys", offset=2, type=type_, payload=payload, metadata={},
        idempotency_key=None, source=Source(platform=platform), created_at="now", hash="",
    )  # fmt: skip


def test_a_made_key_is_in_force_until_it_is_revoked():
    ring = evolve(KeyRing(), event("key/created", MADE))
    assert ring.principals["key_1"].project == "p"
    ring = evolve(ring, event("key/revoked", {"keyId": "key_1"}))
    assert ring.principals == {}
    assert ring.views["key_1"].revoked_at == "now"
    assert evolve(ring, event("key/revoked", {"keyId": "key_9"})).views.keys() == {"key_1"}


def test_unstamped_events_open_and_end_nothing():
    assert evolve(KeyRing(), event("key/created", MADE, platform=False)).hashes == {}
    ring = evolve(KeyRing(), event("key/created", MADE))
    assert evolve(ring, event("key/revoked", {"keyId": "key_1"}, platform=False)).principals


@pytest.mark.parametrize("value", ["", "x", "A" * 64, "0" * 63, "0" * 65, "0" * 64 + "\n"])
def test_only_a_sha256_is_one(value):
    with pytest.raises(InvalidRequest):
        key.check_digest(value)
