"""Owns claims on sandbox names: what the catalogue's events say, and the fold of them.

Called by control/catalogue.py. Invariant: a name has at most one claim; only an abandonment of that very claim frees
it, and every abandonment changes the key under which the name can be claimed next.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kennel.domain.append import digest_of
from kennel.domain.create_options import CreateOptions
from kennel.domain.event import Event, NewEvent, fact, trusted
from kennel.domain.principal import Principal

STREAM = "/sandboxes"
REQUESTED, ABANDONED = "sandbox/create-requested", "sandbox/create-abandoned"


@dataclass(frozen=True, slots=True)
class Claim:
    """One name, taken: by which request, for which sandbox, with which options.

    `fresh` is True only in the answer to the append that made it; `offset` is where it lies in the catalogue.
    """

    project: str
    path: str
    sandbox_id: str
    request_id: str
    options: CreateOptions
    image_digest: str
    claimed_at: str
    key_id: str | None
    offset: int
    fresh: bool = False


@dataclass(slots=True)
class Claims:
    """A project's names: the claims in force by path, and how often each name was given up."""

    taken: dict[str, Claim] = field(default_factory=dict)
    abandonments: dict[str, int] = field(default_factory=dict)


def payload_of(
    path: str, options: CreateOptions, image_digest: str, request_id: str, sandbox_id: str
) -> dict[str, Any]:
    """The claim's payload; what was not asked for is left out."""
    payload: dict[str, Any] = {
        "path": path,
        "instanceType": options.instance_type,
        "image": options.image,
        "imageDigest": image_digest,
        "isolation": options.isolation,
        "persist": options.persist,
        "labels": options.labels,
        "requestId": request_id,
        "sandboxId": sandbox_id,
    }
    if options.sleep_after is not None:
        payload["sleepAfter"] = options.sleep_after
    if options.keep_alive:
        payload["keepAlive"] = True
    if options.env:
        payload["env"] = options.env
    if options.leave_out:
        payload["leaveOut"] = options.leave_out
    if options.points:
        payload["points"] = True
    if options.origin is not None:
        payload["origin"] = options.origin
    return payload


def request(who: Principal, claims: Claims, payload: dict[str, Any], offset: int) -> NewEvent:
    """The event that claims `payload`'s name at `offset`, under the key of this many abandonments."""
    path = payload["path"]
    key = f"claim:{claims.abandonments.get(path, 0)}:{digest_of(path)}"
    return fact(who, REQUESTED, payload, key=key, offset=offset)


def claim_of(event: Event, *, fresh: bool = False) -> Claim:
    """The claim that a trusted `create-requested` makes."""
    p = event.payload
    options = CreateOptions(
        instance_type=p["instanceType"],
        image=p["image"],
        isolation=p["isolation"],
        env=p.get("env", {}),
        sleep_after=p.get("sleepAfter"),
        keep_alive=p.get("keepAlive", False),
        persist=p["persist"],
        labels=p["labels"],
        leave_out=p.get("leaveOut", {}),
        points=p.get("points", False),
        origin=p.get("origin"),
    )
    return Claim(
        project=event.project,
        path=p["path"],
        sandbox_id=p["sandboxId"],
        request_id=p["requestId"],
        options=options,
        image_digest=p["imageDigest"],
        claimed_at=event.created_at,
        key_id=event.source.key_id,
        offset=event.offset,
        fresh=fresh,
    )


def evolve(claims: Claims, event: Event) -> Claims:
    """The claims after one event of the catalogue; what Kennel has not stamped changes nothing. Works in place."""
    if not trusted(event):
        return claims
    if event.type == REQUESTED:
        claims.taken.setdefault(event.payload["path"], claim_of(event))
    elif event.type == ABANDONED:
        path = event.payload["path"]
        held = claims.taken.get(path)
        if held is not None and held.request_id == event.payload["requestId"]:
            del claims.taken[path]
            claims.abandonments[path] = claims.abandonments.get(path, 0) + 1
    return claims
