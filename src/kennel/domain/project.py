"""Owns what a project is on the log, and the fold of all of them.

Called by control/projects.py. Invariant: a project's name is given once and for ever.
"""

from __future__ import annotations

import msgspec

from kennel.domain.event import Event, trusted

STREAM = "/projects"
CREATED = "project/created"


class ProjectView(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A project; `created_at` is ISO 8601 in UTC."""

    name: str
    created_at: str


def evolve(projects: dict[str, ProjectView], event: Event) -> dict[str, ProjectView]:
    """The projects by name after one event; what Kennel has not stamped changes nothing. Works in place."""
    if trusted(event) and event.type == CREATED:
        name = event.payload["name"]
        projects.setdefault(name, ProjectView(name=name, created_at=event.created_at))
    return projects
