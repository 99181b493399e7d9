"""Owns the front door of the SDK: one object per server and project, from which every handle is reached.

Called by programs. Invariant: making it, and making handles from it, does no network I/O.
"""

from __future__ import annotations

import os
from types import TracebackType

from kennel.sdk._async.egress import AsyncApprovals, AsyncEgress, AsyncGithub, AsyncSecrets
from kennel.sdk._async.images import AsyncImages
from kennel.sdk._async.keys import AsyncKeys
from kennel.sdk._async.projects import AsyncProjects
from kennel.sdk._async.rooms import AsyncRooms
from kennel.sdk._async.sandboxes import AsyncSandboxes
from kennel.sdk._async.streams import AsyncStreams
from kennel.sdk._async.transport import AsyncTransport
from kennel.sdk.discovery import discover

DEFAULT_TIMEOUT = 120.0


class AsyncKennel:
    """A project on a Kennel server.

    `url`, `api_key` and `project` default to KENNEL_URL, KENNEL_API_KEY and KENNEL_PROJECT, then to the installation in
    `data` (KENNEL_DATA, else the usual place) and its project `default`. `timeout` is the seconds any one answer may
    take; `exec` adds its own. Use it in a `with` block, or call `close`, to let its connections go.
    """

    def __init__(
        self,
        project: str | None = None,
        *,
        url: str | None = None,
        api_key: str | None = None,
        data: str | os.PathLike[str] | None = None,
        timeout: float = DEFAULT_TIMEOUT,
    ) -> None:
        address = discover(url=url, api_key=api_key, project=project, data=data)
        self._transport = AsyncTransport(address, timeout)
        self.url = address.url
        self.project = address.project
        self.sandboxes = AsyncSandboxes(self._transport, address.project)
        self.streams = AsyncStreams(self._transport, address.project)
        self.secrets = AsyncSecrets(self._transport, address.project)
        self.egress = AsyncEgress(self._transport, address.project)
        self.approvals = AsyncApprovals(self._transport, address.project)
        self.github = AsyncGithub(self._transport, address.project)
        self.rooms = AsyncRooms(self._transport)
        self.images = AsyncImages(self._transport)
        self.projects = AsyncProjects(self._transport)
        self.keys = AsyncKeys(self._transport)

    def __repr__(self) -> str:
        return f"AsyncKennel(project={self.project!r}, url={self.url!r})"

    async def __aenter__(self) -> AsyncKennel:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Lets go of the connections; sandboxes are not touched."""
        await self._transport.close()
