"""Owns a project's GitHub connections: each is a secret at its place; the first is planted at every start.

Called by the API, and by the fleet when a sandbox starts. Invariant: a start never fails for want of a connection;
material goes the way of every secret and is in no answer.
"""

from __future__ import annotations

import builtins
import logging
from collections.abc import Collection, Mapping

from kennel.control.secrets import Secrets
from kennel.domain import connection
from kennel.domain.connection import ConnectionView
from kennel.domain.principal import Principal
from kennel.wire.errors import KennelError, error

log = logging.getLogger("kennel.connections")


class Connections:
    """`Connections(secrets)`."""

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets

    async def put(
        self,
        who: Principal,
        project: str,
        name: str,
        *,
        token: str | None = None,
        app_id: str | None = None,
        installation_id: str | None = None,
        private_key: str | None = None,
    ) -> ConnectionView:
        """Makes or replaces a connection; sandboxes find it at their next start. VALIDATION_FAILED."""
        path = connection.path_of(name)
        material, pin, refresh = connection.material_of(token, app_id, installation_id, private_key)
        await self._secrets.put(who, project, path, material, pin, refresh)
        return await self.get(project, name)

    async def get(self, project: str, name: str) -> ConnectionView:
        """One; NOT_FOUND."""
        try:
            found = connection.view_of(await self._secrets.get(project, connection.path_of(name)))
        except KennelError as failure:
            if failure.code != "SECRET_NOT_FOUND":
                raise
            found = None
        if found is None:
            raise error("NOT_FOUND", "there is no such connection")
        return found

    async def list(self, project: str) -> builtins.list[ConnectionView]:
        """All, by name: the first is the one that is planted."""
        views = [connection.view_of(secret) for secret in await self._secrets.list(project)]
        return sorted((view for view in views if view is not None), key=lambda view: view.name)

    async def remove(self, who: Principal, project: str, name: str) -> None:
        """Forgets a connection; NOT_FOUND."""
        await self.get(project, name)
        await self._secrets.remove(who, project, connection.path_of(name))

    async def planted(self, project: str, env: Mapping[str, str], unset: Collection[str] = ()) -> dict[str, str]:
        """The variables of a sandbox that starts, given its own and those that were taken away."""
        try:
            names = [view.name for view in await self.list(project)]
        except KennelError as failure:
            log.warning("%s starts a sandbox without its connections: %s", project, failure)
            names = []
        return connection.planted(names, env, unset)
