"""Owns what a project's egress streams come to: the rules in force, the secrets that are kept, what waits for a person.

Called by control's egress services. Invariant: only events that Kennel stamped count; a secret's material appears
nowhere but sealed; the first decision of an approval is the one that counts.
"""

from __future__ import annotations

from typing import Any

import msgspec

from kennel.domain.event import Event, trusted
from kennel.wire.egress import Pin, Refresh, SealedSecret

RULES, LOG, APPROVALS = "/egress/rules", "/egress/log", "/egress/approvals"
SECRETS, USES = "/secrets", "/secrets/uses"
KEPT_APPROVALS = 1000
"""Answered ones that stay listed; all are on the stream."""


class SecretView(msgspec.Struct, rename="camel", kw_only=True):
    """A secret as its owner sees it: where it may go and how it is used, never what it is."""

    path: str
    pin: Pin
    created_at: str
    updated_at: str
    refresh: str | None = None
    rotated_at: str | None = None
    used_count: int = 0
    last_used_at: int | None = None
    last_used_by: str | None = None
    last_used_url: str | None = None


class Use(msgspec.Struct):
    """How often a secret was sent, and the last time."""

    count: int = 0
    at: int = 0
    sandbox: str = ""
    url: str = ""


class Kept(msgspec.Struct):
    """A secret: its sealed form beside its view."""

    sealed: SealedSecret
    view: SecretView


class ApprovalView(msgspec.Struct, rename="camel", kw_only=True):
    """Requests that wait, or waited, for one decision; times are Unix milliseconds."""

    id: str
    status: str
    sandbox: str
    rule_key: str
    description: str
    requests: list[dict[str, Any]]
    expires_at: int
    instance: str
    asked_at: str
    verdicts: list[bool] | None = None
    decided_by: str | None = None
    reason: str | None = None
    outcomes: dict[int, str] = {}


class Configured(msgspec.Struct):
    """A project's policy as its last event has it; `version` is that event's offset, 0 before the first."""

    policy: dict[str, Any] = {}
    version: int = 0


def evolve_rules(state: Configured, event: Event) -> Configured:
    if trusted(event) and event.type == "egress/rules-configured":
        return Configured(dict(event.payload), event.offset)
    return state


def evolve_secrets(state: dict[str, Kept], event: Event) -> dict[str, Kept]:
    if not trusted(event):
        return state
    path = str(event.payload.get("path"))
    if event.type == "secret/stored":
        pin = msgspec.convert(event.payload["pin"], Pin)
        earlier = state.get(path)
        created = earlier.view.created_at if earlier else event.created_at
        refresh = msgspec.convert(event.payload["refresh"], Refresh) if "refresh" in event.payload else None
        kind = refresh.strategy if refresh is not None else None
        view = SecretView(path=path, pin=pin, created_at=created, updated_at=event.created_at, refresh=kind)
        sealed = SealedSecret(path, pin, event.offset, event.payload["kid"], event.payload["box"], refresh)
        state[path] = Kept(sealed, view)
    elif event.type == "secret/rotated":
        row = state.get(path)
        if row is not None and row.sealed.offset == event.payload["storedAt"]:
            sealed = msgspec.structs.replace(row.sealed, kid=event.payload["kid"], box=event.payload["box"])
            state[path] = Kept(sealed, msgspec.structs.replace(row.view, rotated_at=event.created_at))
    elif event.type == "secret/removed":
        state.pop(path, None)
    return state


def evolve_uses(state: dict[str, Use], event: Event) -> dict[str, Use]:
    if trusted(event) and event.type == "secret/used":
        use = state.setdefault(event.payload["path"], Use())
        use.count += event.payload["count"]
        use.at, use.sandbox, use.url = event.payload["at"], event.payload["sandbox"], event.payload["url"]
    return state


def evolve_approvals(state: dict[str, ApprovalView], event: Event) -> dict[str, ApprovalView]:
    if not trusted(event) or "hold" not in event.payload:
        return state
    said = event.payload
    if event.type == "egress/approval-requested":
        state[said["hold"]] = ApprovalView(
            id=said["hold"],
            status="open",
            sandbox=said["sandbox"],
            rule_key=said["ruleKey"],
            description=said["description"],
            requests=said["requests"],
            expires_at=said["expiresAt"],
            instance=said["instance"],
            asked_at=event.created_at,
        )
        _forget_old(state)
    elif (row := state.get(said["hold"])) is not None:
        _answer(row, event)
    return state


def _answer(row: ApprovalView, event: Event) -> None:
    said = event.payload
    if event.type == "egress/approval-decided" and row.status == "open":
        row.status = "approved" if all(said["verdicts"]) else "rejected" if not any(said["verdicts"]) else "mixed"
        row.verdicts, row.decided_by, row.reason = said["verdicts"], said["decidedBy"], said.get("reason")
    elif event.type == "egress/approval-ended" and row.status == "open":
        row.status = said["how"]
    elif event.type == "egress/approval-settled":
        row.outcomes[said["index"]] = said.get("error") or str(said.get("status", 0))


def _forget_old(state: dict[str, ApprovalView]) -> None:
    if len(state) > KEPT_APPROVALS:
        closed = [name for name, row in state.items() if row.status != "open"]
        for name in closed[: len(state) - KEPT_APPROVALS]:
            del state[name]
