"""Owns projects as a service, on the installation's `/projects` stream; `default` exists from the start.

Called by the API's routes and by keys. Invariant: to a key of another project a project that exists looks exactly like
one that does not.
"""

from __future__ import annotations

import uuid

from kennel.control.stream_fold import StreamFold
from kennel.domain import project
from kennel.domain.event import fact
from kennel.domain.principal import DEFAULT_PROJECT, SYSTEM, Principal
from kennel.domain.project import ProjectView
from kennel.domain.stream_path import INSTALLATION, check_project_name
from kennel.ports.event_log import EventLog
from kennel.wire.errors import KennelError, error

WAIT = 10.0
"""Seconds to wait for the own fold after an append; the log delivers before it answers, so this never runs out."""


class Projects:
    """`Projects(log)`; reads its stream on first use."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._fold: StreamFold[dict[str, ProjectView]] = StreamFold(
            log, INSTALLATION, project.STREAM, {}, project.evolve
        )

    async def _known(self) -> dict[str, ProjectView]:
        await self._fold.ready()
        if DEFAULT_PROJECT not in self._fold.state:
            await self._add(SYSTEM, DEFAULT_PROJECT, "installation")
        return self._fold.state

    async def _add(self, who: Principal, name: str, request: str) -> None:
        payload = {"name": name, "requestId": request}
        [event] = await self._log.append(
            INSTALLATION, project.STREAM, [fact(who, project.CREATED, payload, key=f"project:{name}")]
        )
        await self._fold.wait_until(event.offset, WAIT)

    async def create(self, who: Principal, name: str) -> ProjectView:
        """A new project; FORBIDDEN unless the caller is an admin of the installation, PROJECT_EXISTS when taken."""
        check_project_name(name)
        if not who.admin:
            raise error("FORBIDDEN", "only an admin key of the installation may create projects")
        known = await self._known()
        if name not in known:
            try:
                await self._add(who, name, uuid.uuid4().hex)
                return known[name]
            except KennelError as e:
                if e.code != "IDEMPOTENCY_CONFLICT":
                    raise
        raise error("PROJECT_EXISTS", f"project '{name}' already exists")

    async def list(self, who: Principal) -> list[ProjectView]:
        """Every project the caller may see, oldest first: all for a key of the installation, else its own."""
        known = await self._known()
        return [view for view in known.values() if who.project in (None, view.name)]

    async def require(self, name: str, who: Principal | None = None) -> None:
        """PROJECT_NOT_FOUND when there is no such project, or when `who` is given and belongs to another one."""
        if who is None or who.project in (None, name):
            known = await self._known()
            if name not in known:
                await self._fold.refresh()
            if name in known:
                return
        raise error("PROJECT_NOT_FOUND", "there is no such project")
