"""Owns the requests that wait for a person: gathered into batches, asked for once, answered by one decision.

Called by exchanges (wait) and the control channel (decide, resend). Invariant: a request waits no longer than its rule
says; when its caller goes the hold goes; a decision counts once, with one verdict per request, signed where the project
wants it.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import secrets
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from kennel.domain.denial import Refused
from kennel.domain.hold import KEPT_BODY, MAX_HELD, Batch, fault_of, signing_text
from kennel.domain.substitution import Survey
from kennel.gateway.journal import Journal
from kennel.wire.egress import Rule
from kennel.wire.errors import error
from kennel.wire.gateway import Decide, HeldRequest, HoldEnded, HoldRequested, HoldSettled, Notice

if TYPE_CHECKING:
    from kennel.gateway.exchange import Exchange


def held_request(exchange: Exchange, found: Survey, kept: bytes) -> HeldRequest:
    """What a person sees of a request."""
    incoming, part = exchange.incoming, kept[:KEPT_BODY]
    whole = incoming.complete and len(kept) <= KEPT_BODY
    return HeldRequest(
        method=incoming.method,
        url=exchange.record.url,
        headers=[(n.decode("latin-1"), v.decode("latin-1")) for n, v in incoming.headers],
        secret_paths=list(found.subjects),
        body=base64.b64encode(part).decode(),
        body_sha256=hashlib.sha256(kept).hexdigest() if whole else "",
        body_length=len(kept) if whole else incoming.length,
        body_truncated=not whole,
    )


class _Open:
    """A batch with the futures of its callers."""

    def __init__(self, batch: Batch, approvers: Callable[[], list[str]]) -> None:
        self.batch = batch
        self.approvers = approvers
        self.callers: list[asyncio.Future[bool]] = []
        self.expires_at = 0
        self.timer: asyncio.TimerHandle | None = None


class Holds:
    """All that waits in this gateway."""

    def __init__(self, journal: Journal, tell: Callable[[Notice], object]) -> None:
        self._journal, self._tell = journal, tell
        self._open: dict[str, _Open] = {}

    async def wait(self, exchange: Exchange, rule: Rule, request: HeldRequest) -> tuple[str, int]:
        """Returns (batch, index) when a person approved; Refused otherwise."""
        sandbox = exchange.place.sandbox
        if not self._journal.connected:
            raise Refused("audit_unavailable", "nobody can be asked: control is away", rule.rule_key)
        if sandbox.waiting >= MAX_HELD:
            raise Refused("approvals_full", f"{MAX_HELD} requests of this sandbox wait already", rule.rule_key)
        sandbox.waiting += 1
        try:
            row, index = self._join(exchange, rule, request)
            exchange.record.hold = row.batch.hold
            return await self._answered(row, index, rule)
        finally:
            sandbox.waiting -= 1

    async def _answered(self, row: _Open, index: int, rule: Rule) -> tuple[str, int]:
        caller = row.callers[index]
        try:
            approved = await caller
        except asyncio.CancelledError:
            if all(other.done() for other in row.callers):
                self._end(row, "withdrawn")
            raise
        if not approved:
            raise Refused("approval_rejected", f"a person rejected this request ({rule.rule_key})", rule.rule_key)
        return row.batch.hold, index

    def _join(self, exchange: Exchange, rule: Rule, request: HeldRequest) -> tuple[_Open, int]:
        loop, now = asyncio.get_running_loop(), time.monotonic()
        project, path = exchange.record.project, exchange.record.sandbox
        row = next(
            (r for r in self._open.values() if _same(r.batch, project, path, rule) and r.batch.open_for(now)), None
        )
        if row is None:
            sandbox = exchange.place.sandbox
            # Asked when it is decided: a key that was taken from the policy meanwhile signs nothing any more.
            batch = Batch(f"hold-{secrets.token_hex(8)}", project, path, rule, now)
            row = _Open(batch, lambda: sandbox.require()[1].policy.approvers)
            self._open[row.batch.hold] = row
        index = row.batch.add(request, now)
        row.callers.append(loop.create_future())
        if row.timer is not None:
            row.timer.cancel()
        row.timer = loop.call_later(max(0.0, row.batch.closes - now), self._ask, row)
        return row, index

    def _ask(self, row: _Open) -> None:
        """The window is over: one question for the whole batch."""
        patience = row.batch.rule.approval_timeout_ms
        row.batch.asked = True
        row.expires_at = time.time_ns() // 1_000_000 + patience
        row.timer = asyncio.get_running_loop().call_later(patience / 1000, self._expire, row)
        self._tell(_question(row))

    def _expire(self, row: _Open) -> None:
        key = row.batch.rule.rule_key
        refused = Refused("approval_expired", f"nobody decided within the time of rule {key}", key)
        self._finish(row, lambda caller, _: caller.set_exception(refused))
        self._end(row, "expired")

    def decide(self, decision: Decide) -> None:
        """Answers a batch; a KennelError says why the decision does not count."""
        row = self._open.get(decision.hold)
        if row is None or not row.batch.asked:
            raise error("NOT_FOUND", f"nothing waits under {decision.hold}")
        try:
            approvers = row.approvers()
        except Refused as gone:
            raise error("NOT_FOUND", f"nothing waits under {decision.hold}: {gone.detail}") from None
        why = fault_of(row.batch, decision, _signed(row.batch, approvers, decision), bool(approvers))
        if why is not None:
            raise error("VALIDATION_FAILED", why)
        self._forget(row)
        self._finish(row, lambda caller, index: caller.set_result(decision.verdicts[index]))

    def settled(self, project: str, hold: str, index: int, status: int, code: str) -> None:
        """How an approved request went."""
        self._tell(HoldSettled(hold, project, index, status, code))

    def resend(self) -> None:
        """Control came back: everything that waits is asked again."""
        for row in self._open.values():
            if row.batch.asked:
                self._tell(_question(row))

    def _finish(self, row: _Open, give: Callable[[asyncio.Future[bool], int], None]) -> None:
        for index, caller in enumerate(row.callers):
            if not caller.done():
                give(caller, index)

    def _end(self, row: _Open, how: str) -> None:
        if row.batch.hold in self._open:
            self._forget(row)
            if row.batch.asked:
                self._tell(HoldEnded(row.batch.hold, row.batch.project, "expired" if how == "expired" else "withdrawn"))

    def _forget(self, row: _Open) -> None:
        self._open.pop(row.batch.hold, None)
        if row.timer is not None:
            row.timer.cancel()


def _same(batch: Batch, project: str, path: str, rule: Rule) -> bool:
    same = (batch.project, batch.path, batch.rule.rule_key) == (project, path, rule.rule_key)
    return same and rule.debounce_ms is not None


def _question(row: _Open) -> HoldRequested:
    batch = row.batch
    return HoldRequested(
        batch.hold,
        batch.project,
        batch.path,
        batch.rule.rule_key,
        batch.rule.description,
        batch.requests,
        row.expires_at,
    )


def _signed(batch: Batch, approvers: list[str], decision: Decide) -> bool:
    """Whether one of the project's keys signed this decision (P-256, SHA-256, DER, base64)."""
    if decision.signature is None:
        return False
    text = signing_text(batch, decision.verdicts)
    for pem in approvers:
        try:
            key = load_pem_public_key(pem.encode())
            if isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, ec.SECP256R1):
                key.verify(base64.b64decode(decision.signature, validate=True), text, ec.ECDSA(SHA256()))
                return True
        except (InvalidSignature, ValueError):
            continue
    return False
