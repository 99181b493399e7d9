"""Owns a project's way out as control sees it: rules, whose sandbox is whose, the audit, and telling the gateway all.

Called by fleet (bind, unbind), the API (rules, dry runs) and the gateway's connection (arrival, notices). Invariant: a
gateway that came back knows the rules and secrets of every project before it knows that project's sandboxes; an audit
record is acknowledged after it is on the log, and lands there once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from kennel.control.approvals import Approvals
from kennel.control.connections import Connections
from kennel.control.previews import Previews
from kennel.control.project_fold import ProjectFold
from kennel.control.secrets import Seal, Secrets
from kennel.domain.approver import check_approvers
from kennel.domain.egress_state import LOG, RULES, Configured, evolve_rules
from kennel.domain.event import fact
from kennel.domain.policy import parse_policy
from kennel.domain.principal import SYSTEM, Principal
from kennel.domain.replay import Replay, considers, replay
from kennel.domain.stream_path import INSTALLATION
from kennel.ports.event_log import EventLog
from kennel.ports.gateway import GatewayLink
from kennel.wire import gateway as wire
from kennel.wire.egress import Record
from kennel.wire.errors import KennelError

_AT_ONCE = 200
"""Audit records in one append."""
_AGAIN = 0.5
_PAGE = 500

log = logging.getLogger("kennel.egress")


class Egress:
    """`Egress(log, gateway, seal, default, projects)`; `default` is the verdict where a project has said nothing."""

    def __init__(
        self,
        log: EventLog,
        gateway: GatewayLink,
        seal: Seal,
        default: str,
        projects: Callable[[], Awaitable[Sequence[str]]],
    ) -> None:
        self._log, self._gateway, self._default, self._projects = log, gateway, default, projects
        self.secrets = Secrets(log, gateway, seal)
        self.approvals = Approvals(log, gateway)
        self.connections = Connections(self.secrets)
        self._rules: ProjectFold[Configured] = ProjectFold(log, RULES, Configured, evolve_rules)
        self._bound: dict[str, tuple[str, str]] = {}
        self._told: set[str] = set()
        self._instance = ""
        self.previews: Previews | None = None

    def start(self) -> None:
        self._gateway.start(self._arrived, self._hear)

    async def close(self) -> None:
        await self._gateway.close()

    async def rules(self, project: str) -> dict[str, Any]:
        """The policy in force, with its version (the offset of its event; 0 for the installation's default)."""
        state = await self._rules.of(project)
        return {"rules": [], "default": self._default, **state.policy, "version": state.version}

    async def set_rules(self, who: Principal, project: str, policy: dict[str, Any]) -> dict[str, Any]:
        """Replaces the policy; in force for the next request on. VALIDATION_FAILED says which rule is wrong."""
        known = {key: value for key, value in policy.items() if key != "version"}
        check_approvers(parse_policy(known).policy.approvers)
        await self._rules.append(project, fact(who, "egress/rules-configured", {"rules": [], **known}))
        if project in self._told:
            self._gateway.tell(wire.SetPolicy(project, await self.rules(project)))
        return await self.rules(project)

    async def trial(
        self, project: str, path: str, method: str, url: str, headers: Sequence[tuple[str, str]]
    ) -> wire.Finding:
        """What a request of this sandbox would meet; nothing leaves. GATEWAY_UNAVAILABLE, VALIDATION_FAILED."""
        await self._introduce(project)
        found = await self._gateway.call(wire.Try(project, path, method, url, list(headers)))
        return msgspec.convert(found, wire.Finding)

    async def replay(self, project: str, policy: dict[str, Any], last: int) -> Replay:
        """What this policy would have done to the last recorded requests; VALIDATION_FAILED says what is wrong."""
        compiled = parse_policy({key: value for key, value in policy.items() if key != "version"})
        rows: list[tuple[int, Record]] = []
        before = (await self._log.head(project, LOG) or 0) + 1
        while before > 1 and len(rows) < last:
            page = await self._log.read(project, LOG, after=max(0, before - 1 - _PAGE), before=before, limit=_PAGE)
            if not page:
                break
            before = page[0].offset
            for event in reversed(page):
                if event.type == "egress/recorded" and considers(record := msgspec.convert(event.payload, Record)):
                    rows.append((event.offset, record))
        return await asyncio.to_thread(replay, compiled, rows[:last])

    async def hosts(self, project: str) -> list[dict[str, Any]]:
        """Requests and bytes per host since the gateway started, the busiest first; GATEWAY_UNAVAILABLE."""
        counted = await self._gateway.call(wire.Counters(project))
        rows = [{"host": host, **numbers} for host, numbers in counted.items()]
        return sorted(rows, key=lambda row: (-row["requests"], row["host"]))

    async def bind(self, sandbox: str, project: str, path: str) -> None:
        """Says whose sandbox this is; while the gateway is away it is remembered."""
        self._bound[sandbox] = (project, path)
        if not self._gateway.here:
            return
        try:
            await self._introduce(project)
            await self._gateway.call(wire.Bind(sandbox, project, path))
        except KennelError as failure:
            log.warning("%s%s has no network yet: %s", project, path, failure)

    def unbind(self, sandbox: str) -> None:
        """The sandbox rests, or is gone."""
        if self._bound.pop(sandbox, None) is not None:
            self._gateway.tell(wire.Unbind(sandbox))

    async def _introduce(self, project: str) -> None:
        """Tells this gateway a project's rules and secrets, once."""
        if project not in self._told and self._gateway.here:
            policy = await self.rules(project)
            self._told.add(project)
            self._gateway.tell(wire.SetPolicy(project, policy))
            await self.secrets.hand_over(project)

    async def _arrived(self, facts: wire.Facts) -> None:
        self._told.clear()
        for sandbox, (project, path) in list(self._bound.items()):
            await self._introduce(project)
            self._gateway.tell(wire.Bind(sandbox, project, path))
        if self.previews is not None:
            self.previews.arrived(facts.instance)
        if facts.instance != self._instance:
            self._instance = facts.instance
            await self.approvals.withdraw_others(facts.instance, await self._projects())

    async def _hear(self, notice: wire.Notice) -> None:
        if isinstance(notice, wire.Records):
            await self._record(notice)
        elif isinstance(notice, wire.HoldRequested):
            await self.approvals.ask(notice, self._instance)
        elif isinstance(notice, wire.HoldEnded):
            await self.approvals.end(notice)
        elif isinstance(notice, wire.HoldSettled):
            await self.approvals.settle(notice)
        elif isinstance(notice, wire.Knock | wire.Traffic):
            if self.previews is not None:
                self.previews.hear(notice)
        else:
            await self.secrets.rotated(notice.project, notice.secret)

    async def _record(self, batch: wire.Records) -> None:
        """Commits a batch, each record once whatever is sent again, and acknowledges it."""
        while True:
            try:
                await self._commit(batch)
                break
            except KennelError as failure:
                if failure.code != "LOG_UNAVAILABLE":
                    # Waiting for ever would stop all traffic for the sake of a record that can never be taken.
                    log.error("audit records from %d on were refused: %s", batch.first, failure)
                    break
                log.warning("audit records wait: %s", failure)
                await asyncio.sleep(_AGAIN)
        self._gateway.tell(wire.Acknowledge(batch.first + len(batch.records) - 1))

    async def _commit(self, batch: wire.Records) -> None:
        rows: dict[str, list[tuple[int, Record]]] = {}
        for sequence, record in enumerate(batch.records, batch.first):
            rows.setdefault(record.project or INSTALLATION, []).append((sequence, record))
        for project, found in rows.items():
            for start in range(0, len(found), _AT_ONCE):
                await self._append(project, batch.ledger, found[start : start + _AT_ONCE])
            key = f"use:{batch.ledger}:{found[0][0]}:{found[-1][0]}"
            await self.secrets.count(SYSTEM, project, key, [record for _, record in found])

    async def _append(self, project: str, ledger: str, rows: list[tuple[int, Record]]) -> None:
        events = [
            fact(SYSTEM, "egress/recorded", msgspec.to_builtins(record), key=f"audit:{ledger}:{sequence}")
            for sequence, record in rows
        ]
        await self._log.append(project, LOG, events)
