# Generated from sdk/_async by tools/make_sync.py; change it there.
"""Owns an installation's projects as clients see them: making and listing.

Called by programs through `itx.projects`. Invariant: `default` is there from the start.
"""

from __future__ import annotations

import builtins

from kennel.sdk._sync.transport import Transport
from kennel.sdk.answers import ProjectList, ProjectView
from kennel.sdk.names import new_request_id


class Projects:
    """The projects of an installation."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create(self, name: str, *, request_id: str | None = None) -> ProjectView:
        """Makes a project; PROJECT_EXISTS when the name is taken."""
        return self._transport.call(
            "POST", "/v1/projects", ProjectView, body={"name": name}, request_id=request_id or new_request_id()
        )

    def list(self) -> builtins.list[ProjectView]:
        """The projects that the key may see."""
        answer = self._transport.call("GET", "/v1/projects", ProjectList, repeat=True)
        return answer.projects
