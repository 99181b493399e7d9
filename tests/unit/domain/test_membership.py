"""Members and links as their streams tell them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from kennel.domain import membership
from kennel.domain.event import Event, Source
from kennel.domain.membership import JOINED, LEFT, LINK_CREATED, LINK_REVOKED, LinkRing, Member
from kennel.wire.errors import KennelError

AT = "2026-01-01T00:00:00.000Z"


def event(type_: str, payload: dict[str, Any], *, platform: bool = True) -> Event:
    return Event(
        position=1, project="p", path="/x", offset=1, type=type_, payload=payload, metadata={},
        idempotency_key=None, source=Source(platform=platform), created_at=AT, hash="",
    )  # fmt: skip


def link(number: int, **more: Any) -> dict[str, Any]:
    return {
        "linkId": f"link_{number}", "project": "p", "roomId": "r", "epoch": 0, "role": "driver", "name": "",
        "sha256": f"{number:064x}", **more,
    }  # fmt: skip


def test_joining_changing_a_role_and_leaving() -> None:
    members = membership.evolve({}, event(JOINED, {"userId": "ana", "role": "driver"}))
    members = membership.evolve(members, event(JOINED, {"userId": "ana", "role": "observer"}))
    assert members == {"ana": Member("observer", AT)}
    assert membership.evolve(members, event(LEFT, {"userId": "ana"})) == {}
    assert membership.evolve(members, event(LEFT, {"userId": "bob"})) == members


def test_an_observer_may_not_run() -> None:
    members = {"ana": Member("observer", AT), "bob": Member("driver", AT)}
    membership.require_driver(members, "bob")
    membership.require_driver(members, "nobody")
    membership.require_driver(members, None)
    with pytest.raises(KennelError, match="FORBIDDEN"):
        membership.require_driver(members, "ana")


def test_a_links_holder_has_no_scope_of_a_key() -> None:
    ring = membership.evolve_links(LinkRing(), event(LINK_CREATED, link(1, userId="ana", expiresAt=AT)))
    guest = ring.guests[f"{1:064x}"]
    assert (guest.room_id, guest.role, guest.user_id, guest.admin) == ("r", "driver", "ana", False)
    scopes = ("read", "exec", "files", "lifecycle", "secrets", "policy", "admin")
    assert not any(guest.may(scope, "p") for scope in scopes)


def test_a_revoked_link_is_gone_and_forged_ones_never_were() -> None:
    ring = LinkRing()
    for number in (1, 2):
        membership.evolve_links(ring, event(LINK_CREATED, link(number)))
    membership.evolve_links(ring, event(LINK_CREATED, link(3), platform=False))
    membership.evolve_links(ring, event(LINK_REVOKED, {"linkId": "link_1"}))
    membership.evolve_links(ring, event(LINK_REVOKED, {"linkId": "link_1"}))
    assert list(ring.views) == ["link_2"]
    membership.evolve_links(ring, event(LINK_REVOKED, {"linkId": "link_2"}))
    assert (ring.guests, ring.views, ring.hashes, ring.rooms) == ({}, {}, {}, {})


def test_time_runs_out() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    assert membership.expired(AT, at)
    assert not membership.expired("2026-01-01T00:00:00.001Z", at)
    assert not membership.expired(None, at)
