"""Scripted services behind the real application, reached in process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import fastapi.dependencies.models
import httpx2
import msgspec
import pytest

from fake_backups import FakeBackups
from fake_files import FakeFiles, FakeGit
from fake_snapshots import FakeSnapshots
from kennel.api.app import create_app
from kennel.api.services import ApiSettings, Services
from kennel.control.live_state import Update
from kennel.control.projection import Snapshot
from kennel.control.room_feed import Passing
from kennel.control.rooms import RoomTalk, RoomView
from kennel.control.streams import OutsideEvent, Verification
from kennel.control.turns import Reply
from kennel.domain.chain import Fault
from kennel.domain.command import Command, Outcome
from kennel.domain.create_options import CreateOptions
from kennel.domain.event import Event, Gap, Source
from kennel.domain.membership import GUEST_SCOPES, Guest, LinkView, MemberView, Role
from kennel.domain.principal import Principal
from kennel.domain.room import Habits
from kennel.domain.sandbox import Projection
from kennel.domain.turn import Message
from kennel.wire.errors import error
from kennel.wire.node import Counters
from kennel.wire.results import SandboxView
from running_fakes import FakeRunning

ADMIN, READER, RUNNER, OTHER = "admin", "reader", "runner", "other"
PRINCIPALS = {
    ADMIN: Principal("k-admin", None, frozenset({"admin"})),
    READER: Principal("k-reader", "default", frozenset({"read"})),
    RUNNER: Principal("k-runner", "default", frozenset({"exec"})),
    OTHER: Principal("k-other", "other", frozenset({"read", "exec", "lifecycle", "admin"})),
}


def view(path: str = "/sandboxes/main", **changes: Any) -> SandboxView:
    """A plausible sandbox."""
    fields: dict[str, Any] = {
        "path": path, "name": path.rpartition("/")[2], "project": "default", "status": "created", "running": False,
        "instance_type": "basic", "image": "host", "image_digest": "sha256:00", "isolation": "container",
        "created_at": "2026-01-01T00:00:00.000Z", "sandbox_id": "sbx1",
    }  # fmt: skip
    return SandboxView(**{**fields, **changes})


@dataclass
class FakeSandboxes:
    """Records every call; `run` decides what a command comes to."""

    calls: list[tuple[str, tuple[Any, ...]]] = field(default_factory=list)
    run: Callable[[Command], Awaitable[Outcome]] | None = None
    failure: Exception | None = None
    sessions: list[str] = field(default_factory=list)

    def _note(self, name: str, *args: Any) -> None:
        self.calls.append((name, args))
        if self.failure is not None:
            raise self.failure

    async def create(
        self, who: Principal, project: str, path: str, options: CreateOptions, request_id: str | None
    ) -> SandboxView:
        self._note("create", project, path, options, request_id)
        return view(path)

    async def get(self, project: str, path: str) -> SandboxView:
        self._note("get", project, path)
        return view(path)

    async def list(self, project: str, **filters: Any) -> tuple[Sequence[SandboxView], str | None]:
        self._note("list", project, filters)
        return [view()], None

    async def update(self, who: Principal, project: str, path: str, **changes: Any) -> SandboxView:
        self._note("update", project, path, changes)
        return view(path)

    async def set_env(self, who: Principal, project: str, path: str, env: dict[str, str | None]) -> SandboxView:
        self._note("set_env", project, path, env)
        return view(path)

    async def _turn(self, name: str, project: str, path: str) -> SandboxView:
        self._note(name, project, path)
        return view(path)

    async def start(self, who: Principal, project: str, path: str, *, empty: bool = False) -> SandboxView:
        return await self._turn("start", project, path)

    async def sleep(self, who: Principal, project: str, path: str) -> SandboxView:
        return await self._turn("sleep", project, path)

    async def restart(self, who: Principal, project: str, path: str) -> SandboxView:
        return await self._turn("restart", project, path)

    async def kill(self, who: Principal, project: str, path: str) -> SandboxView:
        return await self._turn("kill", project, path)

    async def renew(self, who: Principal, project: str, path: str) -> SandboxView:
        return await self._turn("renew", project, path)

    async def destroy(self, who: Principal, project: str, path: str) -> None:
        self._note("destroy", project, path)

    async def exec(self, who: Principal, project: str, path: str, command: Command) -> tuple[Outcome, bool]:
        self._note("exec", project, path, command)
        if self.run is not None:
            return await self.run(command), False
        return Outcome(stdout=b"out\n", stderr=b"", exit_code=0, stdout_bytes=4), False

    async def open_session(self, who: Principal, project: str, path: str, session_id: str, **options: Any) -> None:
        self._note("open_session", project, path, session_id, options)

    async def close_session(self, who: Principal, project: str, path: str, session_id: str) -> None:
        self._note("close_session", project, path, session_id)

    async def list_sessions(self, who: Principal, project: str, path: str) -> Sequence[str]:
        self._note("list_sessions", project, path)
        return self.sessions


class FakeKeys:
    """The four keys above."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    async def authenticate(self, token: str) -> Principal:
        if token not in PRINCIPALS:
            raise error("UNAUTHORIZED", "this key is unknown or revoked")
        return PRINCIPALS[token]

    async def create(
        self, who: Principal, *, project: str | None, scopes: Sequence[str], name: str
    ) -> tuple[str, dict[str, Any]]:
        self.calls.append(("create", project, tuple(scopes), name))
        return "secret-token", {"id": "k1", "project": project}

    async def revoke(self, who: Principal, key_id: str) -> None:
        self.calls.append(("revoke", key_id))
        if key_id != "k1":
            raise error("KEY_NOT_FOUND", "no such key")

    async def list(self, who: Principal, project: str | None) -> Sequence[dict[str, Any]]:
        self.calls.append(("list", project))
        return [{"id": "k1", "project": project}]


class FakeProjects:
    """`default` and `other` exist."""

    async def create(self, who: Principal, name: str) -> dict[str, str]:
        return {"name": name}

    async def list(self, who: Principal) -> Sequence[dict[str, str]]:
        return [{"name": "default"}, {"name": "other"}]

    async def require(self, name: str) -> None:
        if name not in ("default", "other"):
            raise error("PROJECT_NOT_FOUND", f"no project {name}")


class FakeMembers:
    """Remembers who joined."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    async def join(
        self, who: Principal, project: str, room_id: str, user_id: str, *, role: Role | None, newcomer: Role,
        may_change: bool, seconds: float | None,
    ) -> MemberView:  # fmt: skip
        self.calls.append(("join", project, room_id, user_id, role, newcomer, may_change, seconds))
        return MemberView(user_id=user_id, role=role or newcomer, joined_at="2026-01-01T00:00:00.000Z", present=True)

    async def list(self, project: str, room_id: str) -> Sequence[MemberView]:
        return [MemberView(user_id="ana", role="driver", joined_at="2026-01-01T00:00:00.000Z")]

    async def leave(self, who: Principal, project: str, room_id: str, user_id: str) -> None:
        self.calls.append(("leave", project, room_id, user_id))


class FakeLinks:
    """Two links to the room `a/b` of `default`: `kl_driver` (ana's) and `kl_observer` (whose holder may say a name)."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    async def create(
        self, who: Principal, project: str, room_id: str, *, role: Role, name: str, user_id: str | None,
        seconds: float | None,
    ) -> tuple[str, LinkView]:  # fmt: skip
        self.calls.append(("create", project, room_id, role, name, user_id, seconds))
        return "kl_new", LinkView(id="link_1", name=name, role=role, created_at="2026-01-01T00:00:00.000Z")

    async def authenticate(self, token: str) -> Guest:
        if token == "kl_driver":
            return Guest("link_1", "default", GUEST_SCOPES, room_id="a/b", role="driver", user_id="ana")
        if token == "kl_observer":
            return Guest("link_2", "default", GUEST_SCOPES, room_id="a/b", role="observer")
        raise error("UNAUTHORIZED", "this link is unknown")

    async def list(self, project: str, room_id: str) -> Sequence[LinkView]:
        return []

    async def revoke(self, who: Principal, project: str, room_id: str, link_id: str | None) -> Sequence[str]:
        self.calls.append(("revoke", project, room_id, link_id))
        return ["link_1"]


VIEW = RoomView(
    room_id="r", title=None, settings=Habits(), opened_at="2026-01-01T00:00:00.000Z",
    active_at="2026-01-01T00:00:00.000Z", sandbox=None, members=0, said=2, waiting=0,
)  # fmt: skip
TALK = [Message(role="user", text="hi", ts=1, user_id="ana"), Message(role="agent", text="hello", ts=2)]


@dataclass
class FakeRooms:
    """Answers with `outcome`, or fails with `failure`; `complaints` are a cleanup's."""

    calls: list[tuple[Any, ...]] = field(default_factory=list)
    failure: Exception | None = None
    complaints: list[str] = field(default_factory=list)
    outcome: Outcome = field(default_factory=lambda: Outcome(stdout=b"hi\n", stderr=b"", exit_code=0))
    members: FakeMembers = field(default_factory=FakeMembers)
    links: FakeLinks = field(default_factory=FakeLinks)

    def _note(self, *call: Any) -> None:
        self.calls.append(call)
        if self.failure is not None:
            raise self.failure

    async def exec(
        self, who: Principal, project: str, room_id: str, cmd: str, user_id: str | None = None
    ) -> tuple[Outcome, bool]:
        self._note("exec", project, room_id, cmd, user_id)
        return self.outcome, False

    async def say(self, who: Principal, project: str, room_id: str, text: str, user_id: str | None = None) -> Reply:
        self._note("say", project, room_id, text, user_id)
        return Reply("hello", TALK)

    async def cleanup(self, who: Principal, project: str, room_id: str) -> Sequence[str]:
        self.calls.append(("cleanup", project, room_id))
        return self.complaints

    async def view(self, project: str, room_id: str) -> RoomTalk:
        self._note("view", project, room_id)
        return RoomTalk(**{name: getattr(VIEW, name) for name in VIEW.__struct_fields__}, messages=TALK)

    async def list(
        self, project: str, *, limit: int = 100, cursor: str | None = None
    ) -> tuple[Sequence[RoomView], str | None]:
        self.calls.append(("list", project, limit, cursor))
        return [VIEW], "/rooms/r"

    async def configure(self, who: Principal, project: str, room_id: str, changes: dict[str, Any]) -> RoomView:
        self.calls.append(("configure", project, room_id, changes))
        return VIEW

    async def head(self, project: str, room_id: str) -> int:
        if room_id == "unknown":
            raise error("STREAM_NOT_FOUND", "nothing has happened in this room yet")
        return 2

    async def follow(
        self, who: Principal, project: str, room_id: str, *, after: int
    ) -> AsyncIterator[Event | Gap | Passing]:
        for offset in range(after + 1, 3):
            yield FakeStreams.event(offset)
        yield Passing("delta", {"turnId": "t", "at": 0, "text": "hel"})
        yield Gap(after=2)


class FakeStreams:
    """One stream, `/known`, with two events; following it ends with a gap unless `quiet`."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.quiet = False
        self.closed = asyncio.Event()

    async def head(self, project: str, path: str) -> int | None:
        return 2 if (project, path) == ("default", "/known") else None

    @staticmethod
    def event(offset: int) -> Event:
        return Event(
            position=offset, project="default", path="/known", offset=offset, type="note", payload={"n": offset},
            metadata={}, idempotency_key=None, source=Source(), created_at="2026-01-01T00:00:00.000Z", hash="00",
        )  # fmt: skip

    async def append(self, who: Principal, project: str, path: str, events: Sequence[OutsideEvent]) -> Sequence[Event]:
        self.calls.append(("append", project, path, list(events)))
        return [self.event(n + 1) for n in range(len(events))]

    async def read(self, project: str, path: str, *, after: int = 0, **more: Any) -> Sequence[Event]:
        self.calls.append(("read", project, path, after, more))
        if path != "/known":
            raise error("STREAM_NOT_FOUND", "there is no such stream")
        return [self.event(n) for n in (1, 2) if n > after]

    async def follow(
        self, project: str, path: str, *, after: int = 0, types: Sequence[str] | None = None
    ) -> AsyncIterator[Event | Gap]:
        try:
            for event in await self.read(project, path, after=after):
                yield event
            if self.quiet:
                await asyncio.Event().wait()
            yield Gap(after=2)
        finally:
            self.closed.set()

    async def wait_for_event(
        self, project: str, path: str, *, after: int = 0, types: Sequence[str] | None = None, timeout: float
    ) -> Event:
        self.calls.append(("wait", project, path, after, types, timeout))
        for event in await self.read(project, path, after=after):
            return event
        raise error("WAIT_TIMEOUT", "no such event came")

    async def paths(self, project: str, prefix: str = "/", *, after: str = "", limit: int = 500) -> Sequence[str]:
        self.calls.append(("paths", project, prefix, after, limit))
        return [path for path in ("/", "/known", "/known/below") if path.startswith(prefix) and path > after][:limit]

    async def verify(self, project: str, path: str) -> Verification:
        await self.read(project, path)
        fault = Fault(project, path, 2, "the event does not match its hash")
        return Verification(path=path, events=2, holds=False, faults=[fault])

    async def export(self, project: str, path: str) -> AsyncIterator[bytes]:
        for event in await self.read(project, path):
            yield msgspec.json.encode(event) + b"\n"


@dataclass
class FakeObservation:
    """Knows the sandbox `main` at offset 3; a subscription ends with a gap unless `quiet`."""

    calls: list[tuple[Any, ...]] = field(default_factory=list)
    quiet: bool = False
    closed: asyncio.Event = field(default_factory=asyncio.Event)

    def _look(self, *call: Any) -> None:
        self.calls.append(call)
        if call[2] != "/sandboxes/main":
            raise error("SANDBOX_NOT_FOUND", "there is no such sandbox")

    async def snapshot(self, project: str, path: str) -> Snapshot:
        self._look("snapshot", project, path)
        return Snapshot(3, Projection(status="running", running=True))

    async def wait_until_processed(self, project: str, path: str, offset: int, timeout: float) -> Snapshot:
        self._look("wait", project, path, offset, timeout)
        if offset > 3:
            raise error("WAIT_TIMEOUT", "that offset was not reached")
        return Snapshot(3, Projection(status="running", running=True))

    async def subscribe(self, project: str, path: str) -> AsyncIterator[Update]:
        self._look("subscribe", project, path)
        return self._updates()

    async def _updates(self) -> AsyncIterator[Update]:
        try:
            yield Update("snapshot", 3, state={"running": True})
            yield Update("diff", 4, previous=3, operations=[{"op": "replace", "path": "/running", "value": False}])
            if self.quiet:
                await asyncio.Event().wait()
            yield Update("gap", 4)
        finally:
            self.closed.set()


@dataclass
class World:
    """The application, its fakes, and a client with the admin key."""

    sandboxes: FakeSandboxes
    keys: FakeKeys
    rooms: FakeRooms
    streams: FakeStreams
    observation: FakeObservation
    app: Any
    healthy: bool = True
    files: FakeFiles = field(default_factory=FakeFiles)
    git: FakeGit = field(default_factory=FakeGit)
    snapshots: FakeSnapshots = field(default_factory=lambda: FakeSnapshots(view))

    def client(self, token: str | None = "admin", **headers: str) -> httpx2.AsyncClient:
        auth = {} if token is None else {"authorization": f"Bearer {token}"}
        return httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app=self.app, raise_app_exceptions=False),
            base_url="http://localhost:8787",
            headers={**auth, **headers},
        )


@pytest.fixture(autouse=True, scope="module")
def _forgotten_applications() -> Iterator[None]:
    """FastAPI remembers 4,096 functions it looked at, and by them whole applications: 2 GB of them at the end, and
    collections of garbage that took 9 s each."""
    yield
    for remembered in vars(fastapi.dependencies.models).values():
        if hasattr(remembered, "cache_clear"):
            remembered.cache_clear()


def make_world(settings: ApiSettings | None = None) -> World:
    """A fresh application over fresh fakes."""
    sandboxes, keys, rooms, streams = FakeSandboxes(), FakeKeys(), FakeRooms(), FakeStreams()
    observation = FakeObservation()

    async def images() -> Sequence[dict[str, str]]:
        return [{"name": "host", "digest": "sha256:00"}]

    async def usage(_: str) -> Counters:
        return Counters(1.5, 1000, 7, 0, 3000, 4000)

    world = World(sandboxes, keys, rooms, streams, observation, None)
    services = Services(
        sandboxes=sandboxes, keys=keys, projects=FakeProjects(), rooms=rooms, streams=streams,
        observation=observation, images=images, usage=usage, healthy=lambda: world.healthy,
        files=world.files, git=world.git, snapshots=world.snapshots, running=FakeRunning(),  # type: ignore[arg-type]
        backups=FakeBackups(),  # type: ignore[arg-type]
    )  # fmt: skip
    world.app = create_app(services, settings or ApiSettings())
    return world


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def world() -> World:
    return make_world()


@pytest.fixture
def new_world() -> Callable[..., World]:
    return make_world
