"""Owns API keys as a service: making, recognising, listing and revoking them, all on the installation's `/keys` stream.

Called by the API's gate (authenticate) and the key routes. Invariant: recognising a key does no I/O and compares in
constant time; a caller sees and gives away no more than it may do itself, and a foreign key is as unknown as none.
"""

from __future__ import annotations

import hmac
import secrets
import uuid
from collections.abc import Sequence

from kennel.control.projects import Projects
from kennel.control.stream_fold import StreamFold
from kennel.domain import key
from kennel.domain.event import fact
from kennel.domain.key import KeyRing, KeyView
from kennel.domain.principal import SCOPES, SYSTEM, Principal
from kennel.domain.stream_path import INSTALLATION
from kennel.ports.event_log import EventLog
from kennel.wire.errors import KennelError, error

WAIT = 10.0
"""Seconds to wait for the own fold after an append; the log delivers before it answers, so this never runs out."""


class Keys:
    """`Keys(log, projects)`; reads its stream on first use."""

    def __init__(self, log: EventLog, projects: Projects) -> None:
        self._log, self._projects = log, projects
        self._fold: StreamFold[KeyRing] = StreamFold(log, INSTALLATION, key.STREAM, KeyRing(), key.evolve)

    async def authenticate(self, token: str) -> Principal:
        """Who holds this token; UNAUTHORIZED when it is unknown, revoked, or not a token at all."""
        if not self._fold.live:
            await self._fold.ready()
        ring = self._fold.state
        sha256 = key.digest(token[: key.MAX_TOKEN + 1])
        stored, key_id = ring.hashes.get(sha256, ("", ""))
        found = ring.principals.get(key_id)
        if not hmac.compare_digest(stored, sha256) or found is None or len(token) > key.MAX_TOKEN:
            raise error("UNAUTHORIZED", "the key is missing, unknown or revoked")
        return found

    async def holder(self, key_id: str) -> Principal:
        """Who holds the key of this id; UNAUTHORIZED once it was revoked. For sessions that began with its token."""
        if not self._fold.live:
            await self._fold.ready()
        found = self._fold.state.principals.get(key_id)
        if found is None:
            raise error("UNAUTHORIZED", "the key is missing, unknown or revoked")
        return found

    async def create(
        self, who: Principal, *, project: str | None, scopes: Sequence[str], name: str
    ) -> tuple[str, KeyView]:
        """A new key's token, shown this once, and its view.

        `project` None makes a key of the whole installation, which only such an admin may. FORBIDDEN for scopes the
        caller lacks; PROJECT_NOT_FOUND for a project that is foreign or missing, told apart by nothing.
        """
        wanted, name = key.check_scopes(scopes), key.check_name(name)
        if project is not None:
            await self._projects.require(project, who)
        self._may_give(who, project, wanted)
        token = key.PREFIX + secrets.token_urlsafe(32)
        return token, await self._add(who, f"key_{uuid.uuid4().hex[:20]}", project, wanted, name, key.digest(token))

    @staticmethod
    def _may_give(who: Principal, project: str | None, scopes: Sequence[str]) -> None:
        if who.admin:
            return
        if project is None or not who.may("admin", project):
            raise error("FORBIDDEN", "only an admin key may make keys here")
        lacking = [s for s in scopes if not who.may(s, project)]
        if lacking:
            raise error("FORBIDDEN", f"this key cannot give away scopes it lacks: {', '.join(lacking)}")

    async def _add(
        self, who: Principal, key_id: str, project: str | None, scopes: Sequence[str], name: str, sha256: str
    ) -> KeyView:
        payload = {"keyId": key_id, "project": project, "scopes": list(scopes), "name": name, "sha256": sha256}
        await self._fold.ready()
        [event] = await self._log.append(
            INSTALLATION, key.STREAM, [fact(who, key.CREATED, payload, key=f"key:{sha256}")]
        )
        await self._fold.wait_until(event.offset, WAIT)
        return self._fold.state.views[key_id]

    async def revoke(self, who: Principal, key_id: str) -> None:
        """Ends a key for good, at once; KEY_NOT_FOUND when the caller may not see it. Repeating it changes nothing."""
        await self._fold.ready()
        view = self._fold.state.views.get(key_id)
        if view is None or not self._visible(who, view):
            raise error("KEY_NOT_FOUND", "there is no such key")
        if not self._manages(who, view.project):
            raise error("FORBIDDEN", "only an admin key may revoke keys")
        if view.revoked_at is None:
            [event] = await self._log.append(
                INSTALLATION, key.STREAM, [fact(who, key.REVOKED, {"keyId": key_id}, key=f"revoked:{key_id}")]
            )
            await self._fold.wait_until(event.offset, WAIT)

    async def list(self, who: Principal, project: str | None) -> list[KeyView]:
        """Keys of `project`, or with None all that the caller may see; revoked ones included, oldest first."""
        if project is not None:
            await self._projects.require(project, who)
        if not self._manages(who, project if project is not None else who.project):
            raise error("FORBIDDEN", "only an admin key may list keys")
        await self._fold.ready()
        seen = [v for v in self._fold.state.views.values() if self._visible(who, v)]
        return [v for v in seen if project is None or v.project == project]

    @staticmethod
    def _visible(who: Principal, view: KeyView) -> bool:
        return who.project is None or view.project == who.project

    @staticmethod
    def _manages(who: Principal, project: str | None) -> bool:
        return who.admin or (project is not None and who.may("admin", project))

    async def ensure_admin(self, token_sha256: str) -> None:
        """Makes the token with this hex SHA-256 an admin key of the installation, once; a revoked one stays revoked."""
        sha256 = key.check_digest(token_sha256)
        await self._fold.ready()
        if sha256 in self._fold.state.hashes:
            return
        try:
            await self._add(SYSTEM, f"key_{sha256[:20]}", None, SCOPES, "installation admin", sha256)
        except KennelError as e:
            if e.code != "IDEMPOTENCY_CONFLICT":
                raise
