"""Owns a sandbox's life as its own stream tells it: the fold, and which requests its state allows.

Called by control's projections and lifecycle service. Invariant: only what Kennel stamped counts; the first `created`
wins, `destroyed` is terminal, and a `stopped` that comes late changes nothing.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from kennel.domain import connection
from kennel.domain.event import Event, trusted
from kennel.wire.errors import KennelError, error

VERSION = 5
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


class Workspace(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Where the files are: the last backup and its layers, the topmost first.

    `moves` counts how often that changed. `void`: what is on the disk is not wanted any more. `empty`: it was started
    empty beside a backup that stands, which only a snapshot that somebody asks for replaces. `made_on`: the digest of
    the image that `root` and `usr` were made on, where it is known. `saved_at`, `rested_at`: when the last backup was
    made, and when the sandbox last stopped or was rolled back, ISO 8601.
    """

    backup_id: str | None = None
    layers: tuple[str, ...] = ()
    root: tuple[str, ...] | None = None
    usr: tuple[str, ...] | None = None
    made_on: str | None = None
    moves: int = 0
    void: bool = False
    empty: bool = False
    saved_at: str | None = None
    rested_at: str | None = None

    @property
    def stacks(self) -> tuple[tuple[str, ...], ...]:
        """All of its stacks, the workspace's first."""
        return (self.layers, *(stack for stack in (self.root, self.usr) if stack is not None))

    @property
    def used_at(self) -> str | None:
        """From when on files that sleep age: the last stop, roll back or backup, a fork's own beginning included."""
        return max((when for when in (self.saved_at, self.rested_at) if when is not None), default=None)


class Projection(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A sandbox as of one offset of its stream; `status` is None until it was born. Wire shape of `/projection`.

    `requested` is what was asked for and is not done: whoever comes after a crash finishes it. `unset` names the
    variables that a start would plant and that null took away.
    """

    birth_certificate: Birth | None = None
    status: Status | None = None
    running: bool = False
    instance_type: str | None = None
    last_backup_id: str | None = None
    env: dict[str, str] = {}
    unset: tuple[str, ...] = ()
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
    workspace: Workspace = Workspace()
    leave_out: dict[str, Any] = {}
    points: bool = False


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
        last = {**dict.fromkeys(state.unset), **env}
        changes["unset"] = tuple(name for name in connection.PLANTED if name in last and last[name] is None)
    for word, field in (
        ("sleepAfter", "sleep_after"),
        ("keepAlive", "keep_alive"),
        ("labels", "labels"),
        ("leaveOut", "leave_out"),
        ("points", "points"),
    ):
        if word in payload:
            changes[field] = payload[word]
    return msgspec.structs.replace(state, **changes)


def _tuple(layers: list[str] | None) -> tuple[str, ...] | None:
    return None if layers is None else tuple(layers)


def _moved(state: Projection, event: Event) -> Projection:
    """The projection after an event that says where the files are."""
    payload, now = event.payload, state.workspace
    changes: dict[str, Any] = {"moves": now.moves + 1}
    if "layers" in payload:
        changes |= {"layers": tuple(payload["layers"])}
        changes |= {"root": _tuple(payload.get("root")), "usr": _tuple(payload.get("usr"))}
    if event.type != "sandbox/compacted":
        changes |= {"backup_id": payload["backupId"], "empty": False, "made_on": payload.get("imageDigest")}
    if event.type == "sandbox/backup-created":
        changes["saved_at"] = event.created_at
    if event.type == "sandbox/rolled-back":
        changes |= {"void": True, "rested_at": event.created_at}
    if event.type == "sandbox/workspace-expired":
        changes |= {"backup_id": None, "layers": (), "root": None, "usr": None, "void": True}
    workspace = msgspec.structs.replace(now, **changes)
    return msgspec.structs.replace(state, workspace=workspace, last_backup_id=workspace.backup_id)


def _placed(state: Projection, **changes: Any) -> Projection:
    return msgspec.structs.replace(state, workspace=msgspec.structs.replace(state.workspace, **changes))


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
            state = _placed(state, void=False, made_on=event.payload.get("imageDigest", state.workspace.made_on))
            return replace(state, status="running", running=True, stop_reason=None, requested=_still(state))
        case "sandbox/stopped" if state.status != "destroyed":
            reason, state = event.payload.get("reason"), _placed(state, rested_at=event.created_at)
            return replace(state, status="stopped", running=False, stop_reason=reason, requested=_still(state))
        case "sandbox/sleep-requested":
            return _asked(state, "sleep")
        case "sandbox/kill-requested":
            return _asked(state, "kill")
        case "sandbox/destroy-requested":
            return _asked(state, "destroy")
        case "sandbox/start-requested" if event.payload.get("empty"):
            return _placed(state, void=True, empty=True)
        case "sandbox/backup-created" | "sandbox/rolled-back" | "sandbox/compacted" | "sandbox/workspace-expired":
            return _moved(state, event)
        case "sandbox/configured":
            return _configured(state, event.payload)
        case _:
            return state


def made_on(state: Projection) -> str | None:
    """The digest of the image that what lasts outside `/workspace` was made on; None while there is nothing of it."""
    if state.persist != "disk" or (state.status == "created" and state.workspace.root is None):
        return None
    return state.workspace.made_on or state.image_digest


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
