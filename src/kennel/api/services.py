"""Owns what the API is given: the services it calls, as protocols, and the settings of its door.

Called by assemble (to fill it) and by every route (to call it). Invariant: a route reaches the system through nothing
but these protocols, so the whole API runs on scripted fakes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from fastapi import Request
from msgspec import UNSET, UnsetType
from starlette.requests import HTTPConnection

from kennel.control.backups import Backups
from kennel.control.egress import Egress
from kennel.control.git import Clone, Place
from kennel.control.live_state import Update
from kennel.control.projection import Snapshot
from kennel.control.room_feed import Passing
from kennel.control.rooms import RoomTalk, RoomView
from kennel.control.running import Running
from kennel.control.snapshots import Snapshots
from kennel.control.streams import OutsideEvent, Verification
from kennel.control.turns import Reply
from kennel.domain.command import Command, Outcome
from kennel.domain.console_session import Kept
from kennel.domain.create_options import CreateOptions
from kennel.domain.event import Event, Gap
from kennel.domain.file import ChangeReport, Entry, FileFacts, WatchOptions, WriteOptions
from kennel.domain.membership import Guest, LinkView, MemberView, Role
from kennel.domain.preview import Base
from kennel.domain.principal import Principal
from kennel.ports.files import Download, Listing, Pack, Unpack, Upload, Watch
from kennel.wire.errors import error
from kennel.wire.node import Counters
from kennel.wire.results import SandboxView


class Sandboxes(Protocol):
    """Lifecycle and commands; see control/sandboxes.py."""

    async def create(
        self, who: Principal, project: str, path: str, options: CreateOptions, request_id: str | None
    ) -> SandboxView: ...
    async def get(self, project: str, path: str) -> SandboxView: ...
    async def list(
        self,
        project: str,
        *,
        status: str | None = None,
        label: dict[str, str | None] | None = None,
        include_destroyed: bool = False,
        limit: int = 100,
        cursor: str | None = None,
    ) -> tuple[list[SandboxView], str | None]: ...
    async def update(
        self,
        who: Principal,
        project: str,
        path: str,
        *,
        sleep_after: str | int | UnsetType | None = UNSET,
        keep_alive: bool | UnsetType = UNSET,
        labels: dict[str, str] | UnsetType = UNSET,
        leave_out: dict[str, Any] | UnsetType = UNSET,
        points: bool | UnsetType = UNSET,
    ) -> SandboxView: ...
    async def set_env(self, who: Principal, project: str, path: str, env: dict[str, str | None]) -> SandboxView: ...
    async def start(self, who: Principal, project: str, path: str, *, empty: bool = False) -> SandboxView: ...
    async def sleep(self, who: Principal, project: str, path: str) -> SandboxView: ...
    async def restart(self, who: Principal, project: str, path: str) -> SandboxView: ...
    async def kill(self, who: Principal, project: str, path: str) -> SandboxView: ...
    async def renew(self, who: Principal, project: str, path: str) -> SandboxView: ...
    async def destroy(self, who: Principal, project: str, path: str) -> None: ...
    async def exec(self, who: Principal, project: str, path: str, command: Command) -> tuple[Outcome, bool]: ...
    async def open_session(
        self,
        who: Principal,
        project: str,
        path: str,
        session_id: str,
        *,
        cwd: str,
        env: dict[str, str],
        user: str | None,
        replace: bool = False,
    ) -> None: ...
    async def close_session(self, who: Principal, project: str, path: str, session_id: str) -> None: ...
    async def list_sessions(self, who: Principal, project: str, path: str) -> Sequence[str]: ...


class Keys(Protocol):
    """Bearer keys; see control/keys.py."""

    async def authenticate(self, token: str) -> Principal: ...
    async def holder(self, key_id: str) -> Principal: ...
    async def create(
        self, who: Principal, *, project: str | None, scopes: Sequence[str], name: str
    ) -> tuple[str, Any]: ...
    async def revoke(self, who: Principal, key_id: str) -> None: ...
    async def list(self, who: Principal, project: str | None) -> Sequence[Any]: ...


class Projects(Protocol):
    """Tenants; see control/projects.py."""

    async def create(self, who: Principal, name: str) -> Any: ...
    async def list(self, who: Principal) -> Sequence[Any]: ...
    async def require(self, name: str) -> None: ...


class RoomMembers(Protocol):
    """Who is in rooms; see control/members.py."""

    async def join(
        self,
        who: Principal,
        project: str,
        room_id: str,
        user_id: str,
        *,
        role: Role | None,
        newcomer: Role,
        may_change: bool,
        seconds: float | None,
    ) -> MemberView: ...
    async def list(self, project: str, room_id: str) -> Sequence[MemberView]: ...
    async def leave(self, who: Principal, project: str, room_id: str, user_id: str) -> None: ...


class RoomLinks(Protocol):
    """Rooms' join links; see control/links.py."""

    async def create(
        self,
        who: Principal,
        project: str,
        room_id: str,
        *,
        role: Role,
        name: str,
        user_id: str | None,
        seconds: float | None,
    ) -> tuple[str, LinkView]: ...
    async def authenticate(self, token: str) -> Guest: ...
    async def holder(self, link_id: str) -> Guest: ...
    async def list(self, project: str, room_id: str) -> Sequence[LinkView]: ...
    async def revoke(self, who: Principal, project: str, room_id: str, link_id: str | None) -> Sequence[str]: ...


class Rooms(Protocol):
    """Rooms: talk, commands, cleanup, looking; see control/rooms.py."""

    async def exec(
        self, who: Principal, project: str, room_id: str, cmd: str, user_id: str | None = None
    ) -> tuple[Outcome, bool]: ...
    async def say(self, who: Principal, project: str, room_id: str, text: str, user_id: str | None = None) -> Reply: ...
    async def cleanup(self, who: Principal, project: str, room_id: str) -> Sequence[str]: ...
    async def view(self, project: str, room_id: str) -> RoomTalk: ...
    async def list(
        self, project: str, *, limit: int = 100, cursor: str | None = None
    ) -> tuple[Sequence[RoomView], str | None]: ...
    async def configure(self, who: Principal, project: str, room_id: str, changes: dict[str, Any]) -> RoomView: ...
    async def head(self, project: str, room_id: str) -> int: ...
    def follow(
        self, who: Principal, project: str, room_id: str, *, after: int
    ) -> AsyncIterator[Event | Gap | Passing]: ...
    @property
    def members(self) -> RoomMembers: ...
    @property
    def links(self) -> RoomLinks: ...


class SessionBook(Protocol):
    """The console's sessions, by their cookies' hashes; see control/console_sessions.py."""

    async def open(self, who: Principal, sha256: str) -> None: ...
    async def find(self, sha256: str) -> Kept | None: ...
    async def close(self, who: Principal, sha256: str) -> None: ...


class Streams(Protocol):
    """Streams as callers outside use them; see control/streams.py."""

    async def append(
        self, who: Principal, project: str, path: str, events: Sequence[OutsideEvent]
    ) -> Sequence[Event]: ...
    async def read(
        self,
        project: str,
        path: str,
        *,
        after: int = 0,
        before: int | None = None,
        types: Sequence[str] | None = None,
        limit: int = 500,
    ) -> Sequence[Event]: ...
    def follow(
        self, project: str, path: str, *, after: int = 0, types: Sequence[str] | None = None
    ) -> AsyncIterator[Event | Gap]: ...
    async def wait_for_event(
        self, project: str, path: str, *, after: int = 0, types: Sequence[str] | None = None, timeout: float
    ) -> Event: ...
    async def head(self, project: str, path: str) -> int | None: ...
    async def paths(self, project: str, prefix: str = "/", *, after: str = "", limit: int = 500) -> Sequence[str]: ...
    async def verify(self, project: str, path: str) -> Verification: ...
    def export(self, project: str, path: str) -> AsyncIterator[bytes]: ...


class Observation(Protocol):
    """Projections as callers outside see them; see control/observation.py."""

    async def snapshot(self, project: str, path: str) -> Snapshot: ...
    async def wait_until_processed(self, project: str, path: str, offset: int, timeout: float) -> Snapshot: ...
    async def subscribe(self, project: str, path: str) -> AsyncIterator[Update]: ...


class Files(Protocol):
    """Files of sandboxes; see control/files.py."""

    async def stat(
        self, who: Principal, project: str, box: str, path: bytes, *, follow: bool = True, user: str | None = None
    ) -> FileFacts: ...
    def read(
        self,
        who: Principal,
        project: str,
        box: str,
        path: bytes,
        *,
        start: int = 0,
        count: int | None = None,
        user: str | None = None,
    ) -> AbstractAsyncContextManager[Download]: ...
    def write(
        self, who: Principal, project: str, box: str, path: bytes, options: WriteOptions
    ) -> AbstractAsyncContextManager[Upload]: ...
    def list(
        self, who: Principal, project: str, box: str, path: bytes, **options: Any
    ) -> AbstractAsyncContextManager[Listing]: ...
    async def glance(self, project: str, box: str, path: bytes, most: int) -> tuple[Sequence[Entry], bool] | None: ...
    async def change(
        self,
        who: Principal,
        project: str,
        box: str,
        verb: str,
        path: bytes,
        options: dict[str, Any],
        user: str | None = None,
    ) -> tuple[bytes, FileFacts | None]: ...
    def pack(
        self, who: Principal, project: str, box: str, path: bytes, *, gzip: bool = False, user: str | None = None
    ) -> AbstractAsyncContextManager[Pack]: ...
    def unpack(
        self, who: Principal, project: str, box: str, path: bytes, *, user: str | None = None
    ) -> AbstractAsyncContextManager[Unpack]: ...
    def watch(
        self, who: Principal, project: str, box: str, path: bytes, options: WatchOptions
    ) -> AbstractAsyncContextManager[Watch]: ...
    async def changes(
        self, who: Principal, project: str, box: str, path: bytes, options: WatchOptions, since: str | None
    ) -> ChangeReport: ...


class Git(Protocol):
    """Git in sandboxes; see control/git.py."""

    async def checkout(self, place: Place, asked: Clone) -> dict[str, Any]: ...
    async def status(self, place: Place, directory: str) -> dict[str, Any]: ...
    async def diff(self, place: Place, directory: str, *, staged: bool, ref: str | None) -> dict[str, Any]: ...
    async def commit(
        self, place: Place, directory: str, message: str, *, paths: Sequence[str] | None, everything: bool
    ) -> dict[str, Any]: ...
    async def push(
        self,
        place: Place,
        directory: str,
        *,
        remote: str,
        branch: str | None,
        username: str | None,
        password: str | None,
        timeout_ms: int,
    ) -> dict[str, Any]: ...
    async def branches(self, place: Place, directory: str) -> dict[str, Any]: ...
    async def switch(self, place: Place, directory: str, branch: str, *, create: bool) -> dict[str, Any]: ...


def _always() -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Services:
    """Everything a route may call. `images` lists the node's images; `healthy` is asked by `/health`.

    `usage` counts what one running sandbox uses, by its id, and `node_facts` is what node tells of itself; the console
    shows neither where they are None. Without `sessions` those of the console end with the process.
    """

    sandboxes: Sandboxes
    keys: Keys
    projects: Projects
    rooms: Rooms
    streams: Streams
    observation: Observation
    images: Callable[[], Awaitable[Sequence[Any]]]
    healthy: Callable[[], bool] = _always
    files: Files | None = None
    git: Git | None = None
    usage: Callable[[str], Awaitable[Counters]] | None = None
    node_facts: Callable[[], Awaitable[dict[str, Any]]] | None = None
    running: Running | None = None
    egress: Egress | None = None
    snapshots: Snapshots | None = None
    backups: Backups | None = None
    sessions: SessionBook | None = None


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """The door: `open` turns keys off (loopback only), `allowed_hosts` adds names to the loopback ones.

    `preview_base` is where previews are served; None where none are.
    """

    open: bool = False
    allowed_hosts: frozenset[str] = field(default_factory=frozenset)
    preview_base: Base | None = None


def services_of(request: HTTPConnection) -> Services:
    """The services of the application that serves this request."""
    services: Services = request.app.state.services
    return services


def files_of(request: Request) -> Files:
    """The service of files; NODE_UNAVAILABLE in an installation without sandboxes."""
    files = services_of(request).files
    if files is None:
        raise error("NODE_UNAVAILABLE", "sandboxes are not enabled here", admitted="no")
    return files


def running_of(request: HTTPConnection) -> Running:
    """What runs in sandboxes beyond one call; NODE_UNAVAILABLE in an installation without sandboxes."""
    running = services_of(request).running
    if running is None:
        raise error("NODE_UNAVAILABLE", "sandboxes are not enabled here", admitted="no")
    return running


def egress_of(request: HTTPConnection) -> Egress:
    """The way out: rules, secrets, approvals; NODE_UNAVAILABLE in an installation without sandboxes."""
    egress = services_of(request).egress
    if egress is None:
        raise error("NODE_UNAVAILABLE", "sandboxes are not enabled here", admitted="no")
    return egress


def snapshots_of(request: Request) -> Snapshots:
    """The service of snapshots; NODE_UNAVAILABLE in an installation without sandboxes."""
    snapshots = services_of(request).snapshots
    if snapshots is None:
        raise error("NODE_UNAVAILABLE", "sandboxes are not enabled here", admitted="no")
    return snapshots


def backups_of(request: Request) -> Backups:
    """The service of backups; NODE_UNAVAILABLE in an installation without sandboxes."""
    backups = services_of(request).backups
    if backups is None:
        raise error("NODE_UNAVAILABLE", "sandboxes are not enabled here", admitted="no")
    return backups


def git_of(request: Request) -> Git:
    """The service of git; NODE_UNAVAILABLE in an installation without sandboxes."""
    git = services_of(request).git
    if git is None:
        raise error("NODE_UNAVAILABLE", "sandboxes are not enabled here", admitted="no")
    return git
