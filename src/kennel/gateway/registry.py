"""Owns who is who: sandboxes by their listeners (node's word), their projects (control's word), policies and secrets.

Called by the control channel (changes) and by everything that judges. Invariant: a sandbox without a project, or a
project without a policy, gets nothing through; what changes holds from the next request on and cuts what lost leave.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from kennel.domain.denial import Refused
from kennel.domain.policy import CompiledPolicy
from kennel.gateway.bucket import Bucket, Meter
from kennel.gateway.names import Names
from kennel.wire.egress import SealedSecret

if TYPE_CHECKING:
    from kennel.gateway.previews import Cuttable
    from kennel.gateway.stock import Stock

log = logging.getLogger("kennel.gateway")


class Live(Protocol):
    """Something with an open connection of a sandbox: it is cut, or asked to look whether it may stay."""

    def cut(self, why: str) -> None: ...
    def review(self) -> None: ...
    def overdue(self, now: float) -> None: ...


class Door(Protocol):
    """Listeners of one sandbox that are being served."""

    def close(self) -> None: ...


@dataclass(slots=True)
class Tally:
    """What a project did with one host since the gateway started."""

    requests: int = 0
    denied: int = 0
    bytes_out: int = 0
    bytes_in: int = 0


MAX_TALLIES = 4096
_WHOLE_BODIES = 4
"""Bodies of one sandbox that are kept whole at once (32 MiB each at most); further ones wait."""


@dataclass(slots=True, eq=False)
class Project:
    """A tenant as the gateway knows it."""

    name: str
    policy: CompiledPolicy | None = None
    secrets: dict[str, SealedSecret] = field(default_factory=dict)
    tallies: dict[str, Tally] = field(default_factory=dict)

    def tally(self, host: str) -> Tally:
        """The counters of a host; past MAX_TALLIES hosts all others share one."""
        found = self.tallies.get(host)
        if found is None:
            key = host if len(self.tallies) < MAX_TALLIES else "*"
            found = self.tallies.setdefault(key, Tally())
        return found


@dataclass(slots=True, eq=False)
class Sandbox:
    """One sandbox: its listeners' door, its names, its live connections, and whose it is.

    `attachment` tells its namespace from earlier ones of the same id; `visits` are connections of previews' visitors.
    """

    id: str
    names: Names
    path: str = ""
    project: Project | None = None
    door: Door | None = None
    live: set[Live] = field(default_factory=set)
    waiting: int = 0
    gone: bool = False
    bulk: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_WHOLE_BODIES))
    requests: Bucket | None = None
    attachment: int = 0
    visits: set[Cuttable] = field(default_factory=set)
    stock: Stock | None = None
    bytes: Meter | None = None

    def charge(self, size: int) -> float:
        """Seconds to rest after so many bytes either way; 0 where the installation sets no rate."""
        return self.bytes.charge(size, time.monotonic()) if self.bytes is not None else 0.0

    def require(self) -> tuple[Project, CompiledPolicy]:
        """The project and its policy; Refused when one is missing."""
        project = self.project
        if project is None:
            raise Refused("not_bound", "this sandbox belongs to no project yet")
        if project.policy is None:
            raise Refused("no_policy", "no policy is known for this project")
        return project, project.policy


Opener = Callable[[Sandbox, list[socket.socket]], Door]


class Registry:
    """All sandboxes and projects of this gateway."""

    def __init__(self, opener: Opener, max_names: int, bytes_per_second: float = 0.0) -> None:
        self._opener = opener
        self._rate = bytes_per_second
        self._max_names = max_names
        self.sandboxes: dict[str, Sandbox] = {}
        self.projects: dict[str, Project] = {}
        self._bindings: dict[str, tuple[str, str]] = {}
        self._attached = 0

    def attach(self, id_: str, listeners: list[socket.socket]) -> None:
        """Serves a sandbox's listeners; earlier ones of the same id and all their connections are closed."""
        self.detach(id_)
        self._attached += 1
        sandbox = Sandbox(id_, Names(self._max_names), attachment=self._attached)
        if self._rate:
            sandbox.bytes = Meter(self._rate, time.monotonic())
        self.sandboxes[id_] = sandbox
        if id_ in self._bindings:
            self._apply(sandbox, *self._bindings[id_])
        sandbox.door = self._opener(sandbox, listeners)

    def detach(self, id_: str) -> None:
        """Closes every socket that a sandbox's namespace is held by."""
        sandbox = self.sandboxes.pop(id_, None)
        if sandbox is None:
            return
        sandbox.gone = True
        if sandbox.door is not None:
            sandbox.door.close()
        if sandbox.stock is not None:
            sandbox.stock.close()
        _cut(sandbox, "the sandbox is gone")

    def bind(self, id_: str, project: str, path: str) -> None:
        """Says whose sandbox this is; another owner than before cuts what is open."""
        self._bindings[id_] = (project, path)
        sandbox = self.sandboxes.get(id_)
        if sandbox is not None and (sandbox.project is None or (sandbox.project.name, sandbox.path) != (project, path)):
            _cut(sandbox, "the sandbox changed hands")
            self._apply(sandbox, project, path)

    def unbind(self, id_: str) -> None:
        """Takes a sandbox from its project."""
        self._bindings.pop(id_, None)
        sandbox = self.sandboxes.get(id_)
        if sandbox is not None:
            sandbox.project, sandbox.path = None, ""
            _cut(sandbox, "the sandbox belongs to nobody")

    def _apply(self, sandbox: Sandbox, project: str, path: str) -> None:
        sandbox.project, sandbox.path = self.project(project), path

    def project(self, name: str) -> Project:
        """The project of this name; it need not have a policy yet."""
        return self.projects.setdefault(name, Project(name))

    def set_policy(self, name: str, policy: CompiledPolicy) -> None:
        """Puts a policy in force and lets every open connection of the project look whether it may stay."""
        project = self.project(name)
        project.policy = policy
        for sandbox in self.sandboxes.values():
            if sandbox.project is project:
                for live in list(sandbox.live):
                    live.review()

    def drop_project(self, name: str) -> None:
        """Forgets policy and secrets; what is open is cut."""
        project = self.projects.get(name)
        if project is None:
            return
        project.policy = None
        project.secrets.clear()
        for sandbox in self.sandboxes.values():
            if sandbox.project is project:
                _cut(sandbox, "the project is gone")

    def close(self) -> None:
        for id_ in list(self.sandboxes):
            self.detach(id_)


def _cut(sandbox: Sandbox, why: str) -> None:
    for one in (*sandbox.live, *sandbox.visits):
        one.cut(why)
