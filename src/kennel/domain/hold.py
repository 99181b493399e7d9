"""Owns the gathering of requests that wait for one decision, and what a decision has to be.

Called by the gateway. Invariant: one decision answers a whole batch, with one verdict per request; what a signature
covers is written in one way only; a batch whose time is over is rejected.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from kennel.wire.egress import Rule
from kennel.wire.gateway import Decide, HeldRequest

MAX_HELD = 16
"""Requests of one sandbox that may wait."""
MAX_BATCH = 50
KEPT_BODY = 64 * 1024


@dataclass(slots=True)
class Batch:
    """Requests of one sandbox that met one rule within its window. Times are seconds of a monotonic clock."""

    hold: str
    project: str
    path: str
    rule: Rule
    opened: float
    requests: list[HeldRequest] = field(default_factory=list)
    closes: float = 0.0
    asked: bool = False

    def add(self, request: HeldRequest, now: float) -> int:
        """Takes a request in and gives its index; every arrival extends the window, to three times at most."""
        window = (self.rule.debounce_ms or 0) / 1000
        self.requests.append(request)
        self.closes = min(now + window, self.opened + 3 * window)
        return len(self.requests) - 1

    def open_for(self, now: float) -> bool:
        """Whether another request may still join."""
        return not self.asked and now <= self.closes and len(self.requests) < MAX_BATCH


def subjects(batch: Batch) -> list[dict[str, object]]:
    """What each request of a batch is about, as a person decides and signs it."""
    return [
        {"method": r.method, "url": r.url, "secretPaths": r.secret_paths, "bodySha256": r.body_sha256}
        for r in batch.requests
    ]


def signing_text(batch: Batch, verdicts: list[bool]) -> bytes:
    """What an approving decision's signature covers: canonical JSON (sorted keys, no spaces, ASCII)."""
    covered = {"hold": batch.hold, "project": batch.project, "requests": subjects(batch), "verdicts": verdicts}
    return json.dumps(covered, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def fault_of(batch: Batch, decision: Decide, signed: bool, approvers: bool) -> str | None:
    """Why a decision does not answer this batch, or None. All-reject never needs a signature."""
    if len(decision.verdicts) != len(batch.requests):
        return f"{len(batch.requests)} verdicts are needed, {len(decision.verdicts)} were given"
    if approvers and any(decision.verdicts) and not signed:
        return "an approval in this project needs the signature of an enrolled key"
    return None
