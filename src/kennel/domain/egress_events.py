"""Owns what each `secret/*` and `egress/*` event says: its payload's shape, field by field.

Read by `event_types`. Invariant: payloads are stored for ever, so fields are only ever added, as optional ones; a
secret's material appears sealed, in `secret/stored` alone.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from kennel.domain.sandbox_events import Count, Payload, Short
from kennel.wire.egress import Pin, Refresh


class SecretStored(Payload):
    path: Short
    pin: Pin
    kid: Short
    box: str
    refresh: Refresh | UnsetType = UNSET


class SecretRotated(Payload):
    path: Short
    stored_at: Count
    kid: Short
    box: str


class SecretRemoved(Payload):
    path: Short


class SecretUsed(Payload):
    path: Short
    count: Count
    at: int
    sandbox: Short
    url: str


class RulesConfigured(Payload):
    rules: list[dict[str, Any]]
    default: Literal["allow", "deny"] | UnsetType = UNSET
    audit_only: bool | UnsetType = UNSET
    approvers: list[str] | UnsetType = UNSET


class ApprovalRequested(Payload):
    hold: Short
    sandbox: Short
    rule_key: Short
    description: str
    requests: list[dict[str, Any]]
    expires_at: int
    instance: Short


class ApprovalDecided(Payload):
    hold: Short
    verdicts: list[bool]
    decided_by: Short
    reason: str = ""


class ApprovalEnded(Payload):
    hold: Short
    how: Literal["expired", "withdrawn"]


class ApprovalSettled(Payload):
    hold: Short
    index: Count
    status: int
    error: str | UnsetType = UNSET


class Trimmed(Payload):
    through: Count
    digest: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
