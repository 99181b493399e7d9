"""Owns a project's secrets on control's side: sealing what comes in, keeping it on the log, saying how it is used.

Called by the API and by egress (which hands them to the gateway). Invariant: material is sealed to the gateway's key
before anything is written, and is in no event, answer or message of this process otherwise; nothing here opens a box.
"""

from __future__ import annotations

import asyncio
import builtins
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import msgspec

from kennel.control.project_fold import ProjectFold
from kennel.domain.egress_state import SECRETS, USES, Kept, SecretView, Use, evolve_secrets, evolve_uses
from kennel.domain.event import fact
from kennel.domain.placeholder import check_secret_path
from kennel.domain.principal import SYSTEM, Principal
from kennel.domain.secret_pin import check_material, check_refresh, normal_pin
from kennel.ports.event_log import EventLog
from kennel.ports.gateway import GatewayLink
from kennel.wire.egress import Pin, Record, Refresh, SealedSecret
from kennel.wire.errors import KennelError, error
from kennel.wire.gateway import DropSecret, ProjectKey, PublicKey, PutSecret

Seal = Callable[[PublicKey, str, str, Pin, int, Any, Refresh | None], SealedSecret]
MAX_SECRETS = 1000


class Secrets:
    """`Secrets(log, gateway, seal)`."""

    def __init__(self, log: EventLog, gateway: GatewayLink, seal: Seal) -> None:
        self._log, self._gateway, self._seal = log, gateway, seal
        self._kept: ProjectFold[dict[str, Kept]] = ProjectFold(log, SECRETS, dict, evolve_secrets)
        self._uses: ProjectFold[dict[str, Use]] = ProjectFold(log, USES, dict, evolve_uses)
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def put(
        self, who: Principal, project: str, path: str, material: Any, pin: Pin, refresh: Refresh | None = None
    ) -> SecretView:
        """Stores or replaces a secret; VALIDATION_FAILED, QUOTA_EXCEEDED, GATEWAY_UNAVAILABLE (nobody to seal for)."""
        _check_path(path)
        check_material(material)
        pin = normal_pin(pin)
        if refresh is not None:
            check_refresh(refresh, material, pin)
        async with self._locks[project]:
            kept = await self._kept.of(project)
            if path not in kept and len(kept) >= MAX_SECRETS:
                raise error("QUOTA_EXCEEDED", f"a project has at most {MAX_SECRETS} secrets")
            key = msgspec.convert(await self._gateway.call(ProjectKey(project)), PublicKey)
            # A box is bound to the offset of its event, so that an old one cannot be put back.
            offset = (await self._log.head(project, SECRETS) or 1) + 1
            sealed = self._seal(key, project, path, pin, offset, material, refresh)
            payload = {"path": path, "pin": msgspec.to_builtins(pin), "kid": sealed.kid, "box": sealed.box}
            if refresh is not None:
                payload["refresh"] = msgspec.to_builtins(refresh)
            await self._kept.append(project, fact(who, "secret/stored", payload, offset=offset))
        self._gateway.tell(PutSecret(project, (await self._kept.of(project))[path].sealed))
        return await self.get(project, path)

    async def remove(self, who: Principal, project: str, path: str) -> None:
        """Forgets a secret; SECRET_NOT_FOUND."""
        async with self._locks[project]:
            await self._require(project, path)
            await self._kept.append(project, fact(who, "secret/removed", {"path": path}))
        self._gateway.tell(DropSecret(project, path))

    async def rotated(self, project: str, fresh: SealedSecret) -> None:
        """New material that the gateway got; stored if the secret is still the one it was got for.

        The gateway keeps what it got until it hears what is in force, so this answers in every case.
        """
        async with self._locks[project]:
            row = (await self._kept.of(project)).get(fresh.path)
            if row is not None and row.sealed.offset == fresh.offset and row.sealed.box != fresh.box:
                payload = {"path": fresh.path, "storedAt": fresh.offset, "kid": fresh.kid, "box": fresh.box}
                await self._kept.append(project, fact(SYSTEM, "secret/rotated", payload))
                row = (await self._kept.of(project)).get(fresh.path)
        self._gateway.tell(DropSecret(project, fresh.path) if row is None else PutSecret(project, row.sealed))

    async def get(self, project: str, path: str) -> SecretView:
        """Where a secret may go and how it is used; SECRET_NOT_FOUND."""
        view = (await self._require(project, path)).view
        return _with_use(view, (await self._uses.of(project)).get(path))

    async def list(self, project: str) -> list[SecretView]:
        """Every secret of the project, by path."""
        uses = await self._uses.of(project)
        return [_with_use(row.view, uses.get(path)) for path, row in sorted((await self._kept.of(project)).items())]

    async def hand_over(self, project: str) -> None:
        """Tells the gateway every secret of the project."""
        for row in (await self._kept.of(project)).values():
            self._gateway.tell(PutSecret(project, row.sealed))

    async def count(self, who: Principal, project: str, key: str, records: builtins.list[Record]) -> None:
        """Notes the uses in a batch of audit records, one event a secret; `key` names the batch."""
        for path in sorted({r.secret_path for r in records if r.secret_path is not None}):
            used = [r for r in records if r.secret_path == path and r.kind == "decision" and r.verdict != "deny"]
            if used and path.startswith("/secrets/"):
                last = used[-1]
                payload = {"path": path, "count": len(used), "at": last.at, "sandbox": last.sandbox, "url": last.url}
                await self._log.append(project, USES, [fact(who, "secret/used", payload, key=f"{key}:{path[-100:]}")])

    async def _require(self, project: str, path: str) -> Kept:
        _check_path(path)
        row = (await self._kept.of(project)).get(path)
        if row is None:
            raise error("SECRET_NOT_FOUND", "there is no such secret")
        return row


def _check_path(path: str) -> None:
    why = check_secret_path(path)
    if why is not None:
        raise _invalid(why)


def _invalid(why: str) -> KennelError:
    return error("VALIDATION_FAILED", f"not a secret's path: {why}", details={"path": [why]})


def _with_use(view: SecretView, use: Use | None) -> SecretView:
    if use is None:
        return view
    return msgspec.structs.replace(
        view, used_count=use.count, last_used_at=use.at, last_used_by=use.sandbox, last_used_url=use.url
    )
