# Generated from sdk/_async by tools/make_sync.py; change it there.
"""Owns the front door of the SDK: one object per server and project, from which every handle is reached.

Called by programs. Invariant: making it, and making handles from it, does no network I/O.
"""

from __future__ import annotations

import os
from types import TracebackType

from kennel.sdk._sync.egress import Approvals, Egress, Github, Secrets
from kennel.sdk._sync.images import Images
from kennel.sdk._sync.keys import Keys
from kennel.sdk._sync.projects import Projects
from kennel.sdk._sync.rooms import Rooms
from kennel.sdk._sync.sandboxes import Sandboxes
from kennel.sdk._sync.streams import Streams
from kennel.sdk._sync.transport import Transport
from kennel.sdk.discovery import discover

DEFAULT_TIMEOUT = 120.0


class Kennel:
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
        self._transport = Transport(address, timeout)
        self.url = address.url
        self.project = address.project
        self.sandboxes = Sandboxes(self._transport, address.project)
        self.streams = Streams(self._transport, address.project)
        self.secrets = Secrets(self._transport, address.project)
        self.egress = Egress(self._transport, address.project)
        self.approvals = Approvals(self._transport, address.project)
        self.github = Github(self._transport, address.project)
        self.rooms = Rooms(self._transport)
        self.images = Images(self._transport)
        self.projects = Projects(self._transport)
        self.keys = Keys(self._transport)

    def __repr__(self) -> str:
        return f"Kennel(project={self.project!r}, url={self.url!r})"

    def __enter__(self) -> Kennel:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Lets go of the connections; sandboxes are not touched."""
        self._transport.close()
