"""Owns the shapes of secrets, approvals and dry runs as clients read them.

Called by both halves of the SDK. Invariant: as in answers.py; no shape here has room for a secret's material.
"""

from __future__ import annotations

from typing import Any

from kennel.sdk.answers import Shape


class SecretPin(Shape):
    """Where a secret may go."""

    origins: list[str]
    methods: list[str] | None = None
    path_prefix: str | None = None
    headers: list[str] | None = None


class SecretView(Shape):
    """A secret: where it may go and how it is used; `last_used_at` is Unix milliseconds."""

    path: str
    pin: SecretPin
    created_at: str
    updated_at: str
    refresh: str | None = None
    rotated_at: str | None = None
    used_count: int = 0
    last_used_at: int | None = None
    last_used_by: str | None = None
    last_used_url: str | None = None


class SecretList(Shape):
    secrets: list[SecretView]


class ConnectionView(Shape):
    """A GitHub connection: `kind` is `token` or `app`; its material is the secret it names."""

    name: str
    kind: str
    secret: str
    created_at: str
    updated_at: str
    rotated_at: str | None = None
    used_count: int = 0
    last_used_at: int | None = None


class ConnectionList(Shape):
    connections: list[ConnectionView]


class ApprovalView(Shape):
    """Requests that wait, or waited, for one decision: `status` is open, approved, rejected, mixed, expired or
    withdrawn."""

    id: str
    status: str
    sandbox: str
    rule_key: str
    description: str
    requests: list[dict[str, Any]]
    expires_at: int
    asked_at: str
    verdicts: list[bool] | None = None
    decided_by: str | None = None
    reason: str | None = None
    outcomes: dict[str, str] = {}


class ApprovalList(Shape):
    approvals: list[ApprovalView]


class Finding(Shape):
    """What a request would meet."""

    verdict: str
    code: str = ""
    detail: str = ""
    rule_key: str | None = None
    secret_path: str | None = None
    lane: str = "plain"


class Replayed(Shape):
    """A recorded request that a policy would decide otherwise: `was` and `would` are verdicts, `at` in Unix ms."""

    offset: int
    at: int
    sandbox: str
    method: str
    url: str
    was: str
    would: str
    code: str = ""
    rule_key: str | None = None


class Replay(Shape):
    """What a policy would have done to recorded requests; `changed` holds the newest 500 that differ."""

    considered: int
    allow: int
    deny: int
    hold: int
    differing: int
    changed: list[Replayed]


class HostCounters(Shape):
    """A host's share of a project's traffic since the gateway started."""

    host: str
    requests: int
    denied: int
    bytes_out: int
    bytes_in: int


class HostList(Shape):
    hosts: list[HostCounters]
