"""Owns what waits for a person: questions of the gateway onto the log, decisions from people to the gateway.

Called by the API and by egress (which hears the gateway). Invariant: a decision is the gateway's to accept, since it
checks signatures and lets the requests go; what it accepted is on the log before the caller hears so.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Sequence

import msgspec

from kennel.control.project_fold import ProjectFold
from kennel.domain.egress_state import APPROVALS, ApprovalView, evolve_approvals
from kennel.domain.event import fact
from kennel.domain.principal import SYSTEM, Principal
from kennel.ports.event_log import EventLog
from kennel.ports.gateway import GatewayLink
from kennel.wire.errors import KennelError, error
from kennel.wire.gateway import Decide, HoldEnded, HoldRequested, HoldSettled

_MOST = 128 * 1024
"""Bytes of a question's requests on the log; beyond it bodies are left out, then headers."""


class Approvals:
    """`Approvals(log, gateway)`."""

    def __init__(self, log: EventLog, gateway: GatewayLink) -> None:
        self._gateway = gateway
        self._deciding: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._fold: ProjectFold[dict[str, ApprovalView]] = ProjectFold(log, APPROVALS, dict, evolve_approvals)

    async def list(self, project: str, *, status: str | None = None) -> list[ApprovalView]:
        """Newest first."""
        rows = [_current(row) for row in (await self._fold.of(project)).values()]
        return [row for row in reversed(rows) if status in (None, row.status)]

    async def get(self, project: str, hold: str) -> ApprovalView:
        """One; NOT_FOUND."""
        row = (await self._fold.of(project)).get(hold)
        if row is None:
            raise error("NOT_FOUND", "there is no such approval")
        return _current(row)

    async def decide(
        self,
        who: Principal,
        project: str,
        hold: str,
        verdicts: Sequence[bool] | bool,
        *,
        reason: str = "",
        key_id: str | None = None,
        signature: str | None = None,
    ) -> ApprovalView:
        """Answers a batch, each request or all alike; RESOURCE_BUSY when it is answered or over, VALIDATION_FAILED."""
        # One at a time: a second answer must find the first on the log, not a question that nobody asks any more.
        async with self._deciding[project]:
            return await self._decide(who, project, hold, verdicts, reason, key_id, signature)

    async def _decide(
        self,
        who: Principal,
        project: str,
        hold: str,
        verdicts: Sequence[bool] | bool,
        reason: str,
        key_id: str | None,
        signature: str | None,
    ) -> ApprovalView:
        row = await self.get(project, hold)
        if row.status != "open":
            raise error("RESOURCE_BUSY", f"this approval is {row.status}", admitted="no")
        each = [verdicts] * len(row.requests) if isinstance(verdicts, bool) else list(verdicts)
        try:
            await self._gateway.call(Decide(hold, each, who.key_id or "", reason, key_id, signature))
        except KennelError as refused:
            if refused.code == "NOT_FOUND":
                await self.end(HoldEnded(hold, project, "withdrawn"))
                raise error("RESOURCE_BUSY", "nobody waits for this any more", admitted="no") from None
            raise
        payload = {"hold": hold, "verdicts": each, "decidedBy": who.key_id or "", "reason": reason}
        await self._fold.append(project, fact(who, "egress/approval-decided", payload))
        return await self.get(project, hold)

    async def ask(self, question: HoldRequested, instance: str) -> None:
        """A question of the gateway; asked again after a reconnection, it is the same one."""
        payload = {
            "hold": question.hold, "sandbox": question.path, "ruleKey": question.rule_key,
            "description": question.rule_description, "requests": _bounded(question), "expiresAt": question.expires_at,
            "instance": instance,
        }  # fmt: skip
        event = fact(SYSTEM, "egress/approval-requested", payload, key=f"hold:{question.hold}")
        await self._fold.append(question.project, event)

    async def end(self, notice: HoldEnded) -> None:
        """A question that nobody answered."""
        payload = {"hold": notice.hold, "how": notice.how}
        await self._fold.append(notice.project, fact(SYSTEM, "egress/approval-ended", payload))

    async def settle(self, notice: HoldSettled) -> None:
        """How an approved request went."""
        payload: dict[str, object] = {"hold": notice.hold, "index": notice.index, "status": notice.status}
        if notice.error:
            payload["error"] = notice.error
        await self._fold.append(notice.project, fact(SYSTEM, "egress/approval-settled", payload))

    async def withdraw_others(self, instance: str, projects: Sequence[str]) -> None:
        """Ends what an earlier gateway asked: its callers are gone with it."""
        for project in projects:
            for row in list((await self._fold.of(project)).values()):
                if row.status == "open" and row.instance != instance:
                    await self.end(HoldEnded(row.id, project, "withdrawn"))


def _current(row: ApprovalView) -> ApprovalView:
    if row.status == "open" and row.expires_at < time.time() * 1000:
        return msgspec.structs.replace(row, status="expired")
    return row


def _bounded(question: HoldRequested) -> list[dict[str, object]]:
    requests: list[dict[str, object]] = [msgspec.to_builtins(request) for request in question.requests]
    for field, nothing in (("body", ""), ("headers", [])):
        if len(msgspec.json.encode(requests)) <= _MOST:
            break
        for request in requests:
            request[field] = nothing
    if len(msgspec.json.encode(requests)) > _MOST:
        for request in requests:
            request["url"] = str(request["url"])[:1024]
    return requests
