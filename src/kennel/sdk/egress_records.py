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
    used_count: int = 0
    last_used_at: int | None = None
    last_used_by: str | None = None
    last_used_url: str | None = None


class SecretList(Shape):
    secrets: list[SecretView]


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
