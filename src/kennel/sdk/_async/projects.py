"""Owns an installation's projects as clients see them: making and listing.

Called by programs through `itx.projects`. Invariant: `default` is there from the start.
"""

from __future__ import annotations

import builtins

from kennel.sdk._async.transport import AsyncTransport
from kennel.sdk.answers import ProjectList, ProjectView
from kennel.sdk.names import new_request_id


class AsyncProjects:
    """The projects of an installation."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def create(self, name: str, *, request_id: str | None = None) -> ProjectView:
        """Makes a project; PROJECT_EXISTS when the name is taken."""
        return await self._transport.call(
            "POST", "/v1/projects", ProjectView, body={"name": name}, request_id=request_id or new_request_id()
        )

    async def list(self) -> builtins.list[ProjectView]:
        """The projects that the key may see."""
        answer = await self._transport.call("GET", "/v1/projects", ProjectList, repeat=True)
        return answer.projects
