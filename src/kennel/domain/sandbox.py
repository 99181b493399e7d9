"""Owns a sandbox's life as its own stream tells it: the fold, and which requests its state allows.

Called by control's projections and lifecycle service. Invariant: only what Kennel stamped counts; the first `created`
wins, `destroyed` is terminal, and a `stopped` that comes late changes nothing.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from kennel.domain.event import Event, trusted
from kennel.wire.errors import KennelError, error

VERSION = 2
"""Rises with every change of the fold; checkpoints of another version are replayed from the start."""
PROCESSOR = "sandbox"

Status = Literal["created", "running", "stopped", "destroyed"]


class Birth(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """What `created` said, never to change: identity, size, image and walls."""

    sandbox_id: str
    instance_type: str
    image: str
    image_digest: str
    isolation: str
    persist: str
    created_at: str


class Projection(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A sandbox as of one offset of its stream; `status` is None until it was born. Wire shape of `/projection`.

    `requested` is what was asked for and is not done: whoever comes after a crash finishes it.
    """

    birth_certificate: Birth | None = None
    status: Status | None = None
    running: bool = False
    instance_type: str | None = None
    last_backup_id: str | None = None
    env: dict[str, str] = {}
    sleep_after: str | int | None = None
    keep_alive: bool = False
    labels: dict[str, str] = {}
    image: str | None = None
    image_digest: str | None = None
    isolation: str | None = None
    persist: str | None = None
    sandbox_id: str | None = None
    created_at: str | None = None
    stop_reason: str | None = None
    requested: Literal["sleep", "kill", "destroy"] | None = None


EMPTY = Projection()


def _asked(state: Projection, verb: Literal["sleep", "kill", "destroy"]) -> Projection:
    """An end that was asked for; only a destroy means anything to a sandbox that does not run."""
    if state.status == "destroyed" or (verb != "destroy" and not state.running):
        return state
    return state if state.requested == "destroy" else msgspec.structs.replace(state, requested=verb)


def _still(state: Projection) -> Literal["destroy"] | None:
    """What stays asked for when the sandbox starts or stops."""
    return "destroy" if state.requested == "destroy" else None


def _born(state: Projection, event: Event) -> Projection:
    if state.birth_certificate is not None:
        return state
    config = event.payload["config"]
    birth = Birth(
        sandbox_id=config["sandboxId"],
        instance_type=config["instanceType"],
        image=config["image"],
        image_digest=config["imageDigest"],
        isolation=config["isolation"],
        persist=config["persist"],
        created_at=event.created_at,
    )
    return msgspec.structs.replace(
        state, birth_certificate=birth, status=state.status or "created", **msgspec.structs.asdict(birth)
    )


def _configured(state: Projection, payload: dict[str, Any]) -> Projection:
    changes: dict[str, Any] = {}
    if env := payload.get("env"):
        merged = {**state.env, **env}
        changes["env"] = {k: v for k, v in merged.items() if v is not None}
    for word, field in (("sleepAfter", "sleep_after"), ("keepAlive", "keep_alive"), ("labels", "labels")):
        if word in payload:
            changes[field] = payload[word]
    return msgspec.structs.replace(state, **changes)


def evolve(state: Projection, event: Event) -> Projection:
    """The projection after one event; types that are audit only, and forged ones, leave it as it is."""
    if not trusted(event) or not event.type.startswith("sandbox/"):
        return state
    replace = msgspec.structs.replace
    match event.type:
        case "sandbox/created":
            return _born(state, event)
        case "sandbox/destroyed":
            return replace(state, status="destroyed", running=False, requested=None)
        case "sandbox/started" if state.status != "destroyed":
            return replace(state, status="running", running=True, stop_reason=None, requested=_still(state))
        case "sandbox/stopped" if state.status != "destroyed":
            reason = event.payload.get("reason")
            return replace(state, status="stopped", running=False, stop_reason=reason, requested=_still(state))
        case "sandbox/sleep-requested":
            return _asked(state, "sleep")
        case "sandbox/kill-requested":
            return _asked(state, "kill")
        case "sandbox/destroy-requested":
            return _asked(state, "destroy")
        case "sandbox/backup-created":
            return replace(state, last_backup_id=event.payload["backupId"])
        case "sandbox/workspace-expired":
            return replace(state, last_backup_id=None)
        case "sandbox/configured":
            return _configured(state, event.payload)
        case _:
            return state


def refusal(state: Projection) -> KennelError | None:
    """Why no verb may touch this sandbox: it was never finished, or it is gone for good; None when it lives."""
    if state.status == "destroyed":
        return error("SANDBOX_DESTROYED", "this sandbox was destroyed; its name is retired")
    if state.birth_certificate is None:
        return error("SANDBOX_CREATING", "this sandbox's creation has not finished")
    return None


def require_alive(state: Projection) -> Birth:
    """The birth certificate of a sandbox that lives; SANDBOX_DESTROYED or SANDBOX_CREATING otherwise."""
    refused = refusal(state)
    if refused is not None or state.birth_certificate is None:
        raise refused or error("SANDBOX_CREATING", "this sandbox's creation has not finished")
    return state.birth_certificate
