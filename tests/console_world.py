"""The console over scripted services, and a browser of few words: it keeps cookies and reads form tokens.

Used by tests/unit/api/console.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import httpx2

from fake_backups import FakeBackups
from fake_files import FakeFiles
from fake_snapshots import FakeSnapshots
from kennel.api.app import create_app
from kennel.api.services import ApiSettings, Services
from kennel.control.rooms import RoomTalk
from kennel.control.streams import Verification
from kennel.domain.command import Command, Outcome
from kennel.domain.egress_state import ApprovalView, SecretView
from kennel.domain.event import Event, Source
from kennel.domain.key import KeyView
from kennel.domain.membership import Guest
from kennel.domain.policy import parse_policy
from kennel.domain.principal import Principal
from kennel.domain.project import ProjectView
from kennel.wire.egress import Pin
from kennel.wire.errors import error
from kennel.wire.gateway import Finding
from kennel.wire.node import Counters
from kennel.wire.results import SandboxView
from running_fakes import FakeRunning

KEYS = {
    "admin": Principal("key_admin", None, frozenset({"admin"})),
    "reader": Principal("key_reader", "default", frozenset({"read"})),
    "runner": Principal("key_runner", "default", frozenset({"read", "exec"})),
    "stranger": Principal("key_other", "other", frozenset({"read", "exec", "lifecycle", "admin"})),
}
NAME = "main"
BORN = "2026-01-01T00:00:00.000Z"


def view(name: str = NAME, **changes: Any) -> SandboxView:
    fields: dict[str, Any] = {
        "path": f"/sandboxes/{name}", "name": name, "project": "default", "status": "running", "running": True,
        "instance_type": "basic", "image": "host", "image_digest": "sha256:00", "isolation": "container",
        "created_at": BORN, "sandbox_id": f"sb-{name}",
    }  # fmt: skip
    return SandboxView(**{**fields, **changes})


def event(offset: int, kind: str = "sandbox/started", payload: Mapping[str, Any] | None = None, **more: Any) -> Event:
    fields: dict[str, Any] = {
        "position": offset, "project": "default", "path": f"/sandboxes/{NAME}", "offset": offset, "type": kind,
        "payload": dict(payload or {}), "metadata": {}, "idempotency_key": None, "source": Source(platform=True),
        "created_at": BORN, "hash": "00" * 32,
    }  # fmt: skip
    return Event(**{**fields, **more})


class Scripted:
    """Every service in one: notes calls, answers from its fields."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.views = [view()]
        self.streams: dict[str, list[Event]] = {f"/sandboxes/{NAME}": [event(1), event(2)]}
        self.outcome = Outcome(b"out\n", b"", 0, stdout_bytes=4)
        self.counters = Counters(cpu_seconds=1.0, memory=1024, pids=2, disk_used=10, disk_size=100)
        self.revoked: set[str] = set()
        self.failure: Exception | None = None

    def called(self, verb: str) -> list[tuple[Any, ...]]:
        return [call[1:] for call in self.calls if call[0] == verb]

    def _note(self, *call: Any) -> None:
        self.calls.append(call)
        if self.failure is not None:
            raise self.failure

    # keys
    async def authenticate(self, token: str) -> Principal:
        if token not in KEYS or KEYS[token].key_id in self.revoked:
            raise error("UNAUTHORIZED", "unknown")
        return KEYS[token]

    async def holder(self, key_id: str) -> Principal:
        for who in KEYS.values():
            if who.key_id == key_id and key_id not in self.revoked:
                return who
        raise error("UNAUTHORIZED", "unknown")


class Sandboxes(Scripted):
    async def get(self, project: str, path: str) -> SandboxView:
        self._note("get", project, path)
        for one in self.views:
            if one.path == path:
                return one
        raise error("SANDBOX_NOT_FOUND", "there is no such sandbox")

    async def list(self, project: str, **filters: Any) -> tuple[Sequence[SandboxView], str | None]:
        self._note("list", project, filters)
        return self.views, None

    async def create(self, who: Principal, project: str, path: str, options: Any, request: str) -> SandboxView:
        self._note("create", project, path, options, request)
        return view(path.rpartition("/")[2], status="created", running=False)

    async def set_env(self, who: Principal, project: str, path: str, env: dict[str, str | None]) -> SandboxView:
        self._note("set_env", env)
        return view(env={k: v for k, v in env.items() if v is not None})

    async def update(self, who: Principal, project: str, path: str, **changes: Any) -> SandboxView:
        self._note("update", changes)
        return view()

    async def destroy(self, who: Principal, project: str, path: str) -> None:
        self._note("destroy", project, path)

    async def exec(self, who: Principal, project: str, path: str, command: Command) -> tuple[Outcome, bool]:
        self._note("exec", project, path, command)
        return self.outcome, False

    def __getattr__(self, verb: str) -> Any:
        if verb not in ("start", "sleep", "restart", "renew", "kill"):
            raise AttributeError(verb)

        async def turn(who: Principal, project: str, path: str) -> SandboxView:
            self._note(verb, project, path)
            return view(status="stopped" if verb in ("sleep", "kill") else "running", running=verb == "start")

        return turn


class Keyring(Scripted):
    async def create(self, who: Principal, *, project: str | None, scopes: Sequence[str], name: str) -> Any:
        self._note("create", project, tuple(scopes), name)
        return "kn_the-token", KeyView(id="key_new", name=name, project=project, scopes=list(scopes), created_at=BORN)

    async def revoke(self, who: Principal, key_id: str) -> None:
        self._note("revoke", key_id)
        self.revoked.add(key_id)

    async def list(self, who: Principal, project: str | None) -> Sequence[KeyView]:
        return [KeyView(id="key_1", name="<i>ci</i>", project=project, scopes=["read"], created_at=BORN)]


class Projects:
    def __init__(self) -> None:
        self.names = ["default", "other"]

    async def create(self, who: Principal, name: str) -> ProjectView:
        self.names.append(name)
        return ProjectView(name=name, created_at=BORN)

    async def list(self, who: Principal) -> Sequence[ProjectView]:
        return [ProjectView(name=name, created_at=BORN) for name in self.names]

    async def require(self, name: str) -> None:
        if name not in self.names:
            raise error("PROJECT_NOT_FOUND", "no such project")


class Streams(Scripted):
    async def head(self, project: str, path: str) -> int | None:
        return len(self.streams[path]) if path in self.streams else None

    async def read(
        self, project: str, path: str, *, after: int = 0, before: int | None = None, types: Any = None, limit: int = 500
    ) -> Sequence[Event]:
        if path not in self.streams:
            raise error("STREAM_NOT_FOUND", "there is no such stream")
        fits = [e for e in self.streams[path] if after < e.offset < (before or 10**9)]
        return [e for e in fits if types is None or e.type in types][:limit]

    async def follow(self, project: str, path: str, *, after: int = 0, types: Any = None) -> Any:
        for one in await self.read(project, path, after=after):
            yield one

    async def paths(self, project: str, prefix: str = "/", *, after: str = "", limit: int = 500) -> Sequence[str]:
        return [path for path in sorted(self.streams) if path.startswith(prefix) and path > after][:limit]

    async def verify(self, project: str, path: str) -> Verification:
        return Verification(path=path, events=len(await self.read(project, path)), holds=True, faults=[])


class People:
    """A room's members and links: nobody's, but for what a test puts there."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self.asked: list[tuple[Any, ...]] = []
        self.guests: dict[str, Guest] = {}

    async def list(self, project: str, room_id: str) -> Sequence[Any]:
        return self.rows

    async def join(self, who: Principal, project: str, room_id: str, user_id: str, **words: Any) -> Any:
        self.asked.append(("join", room_id, user_id, words["role"]))

    async def leave(self, who: Principal, project: str, room_id: str, user_id: str) -> None:
        self.asked.append(("leave", room_id, user_id))

    async def create(self, who: Principal, project: str, room_id: str, **words: Any) -> Any:
        self.asked.append(("create", room_id, words))
        return "kl_the-token", None

    async def authenticate(self, token: str) -> Guest:
        return await self.holder(token.removeprefix("kl_"))

    async def holder(self, link_id: str) -> Guest:
        if link_id not in self.guests:
            raise error("UNAUTHORIZED", "no such link")
        return self.guests[link_id]

    async def revoke(self, who: Principal, project: str, room_id: str, link_id: str | None) -> Sequence[str]:
        self.asked.append(("revoke", room_id, link_id))
        return []


class Approvals:
    """What waits, as a test puts it there."""

    def __init__(self) -> None:
        self.rows: list[ApprovalView] = []
        self.decided: list[tuple[Any, ...]] = []

    async def list(self, project: str, *, status: str | None = None) -> list[ApprovalView]:
        return [row for row in self.rows if status in (None, row.status)]

    async def get(self, project: str, hold: str) -> ApprovalView:
        return next(row for row in self.rows if row.id == hold)

    async def decide(self, who: Principal, project: str, hold: str, verdicts: Any, *, reason: str = "") -> None:
        self.decided.append((hold, verdicts, reason))


class Secrets:
    """Secrets' views, and what was put."""

    def __init__(self) -> None:
        self.rows: list[SecretView] = []
        self.put_ones: list[tuple[Any, ...]] = []
        self.failure: Exception | None = None

    async def list(self, project: str) -> list[SecretView]:
        return self.rows

    async def put(self, who: Principal, project: str, path: str, material: Any, pin: Pin) -> SecretView:
        if self.failure is not None:
            raise self.failure
        self.put_ones.append((path, material, pin))
        return SecretView(path=path, pin=pin, created_at=BORN, updated_at=BORN)

    async def remove(self, who: Principal, project: str, path: str) -> None:
        self.put_ones.append((path, None, None))


class Egress:
    """The way out: rules are kept as they come, after the real check."""

    def __init__(self) -> None:
        self.secrets, self.approvals = Secrets(), Approvals()
        self.policy: dict[str, Any] = {}
        self.version = 0
        self.finding = Finding("allow")

    async def rules(self, project: str) -> dict[str, Any]:
        return {"rules": [], "default": "allow", **self.policy, "version": self.version}

    async def set_rules(self, who: Principal, project: str, policy: dict[str, Any]) -> dict[str, Any]:
        parse_policy({key: value for key, value in policy.items() if key != "version"})
        self.policy, self.version = policy, self.version + 1
        return policy

    async def trial(self, project: str, path: str, method: str, url: str, headers: Any) -> Finding:
        return self.finding


class Rooms(Scripted):
    def __init__(self) -> None:
        super().__init__()
        self.members, self.links = People(), People()
        self.passing: list[Any] = []
        self.views: dict[str, RoomTalk] = {}

    async def view(self, project: str, room_id: str) -> RoomTalk:
        if room_id not in self.views:
            raise error("NOT_FOUND", "no such room")
        return self.views[room_id]

    async def say(self, who: Principal, project: str, room_id: str, text: str, user_id: str | None = None) -> None:
        self._note("say", room_id, text, user_id)

    async def follow(self, who: Principal, project: str, room_id: str, *, after: int) -> Any:
        for one in self.passing:
            yield one

    async def exec(
        self, who: Principal, project: str, room_id: str, cmd: str, user_id: str | None = None
    ) -> tuple[Outcome, bool]:
        self._note("exec", project, room_id, cmd)
        return self.outcome, False

    async def cleanup(self, who: Principal, project: str, room_id: str) -> Sequence[str]:
        self._note("cleanup", project, room_id)
        return []


class World:
    """The application, its services, and browsers."""

    def __init__(
        self,
        settings: ApiSettings | None = None,
        *,
        counted: bool = True,
        running: FakeRunning | None = None,
        files: FakeFiles | None = None,
    ) -> None:
        self.running, self.snapshots, self.backups, self.files = running, None, None, files
        if running is not None:
            self.snapshots, self.backups = FakeSnapshots(self._view), FakeBackups()
        self.sandboxes, self.keys, self.projects = Sandboxes(), Keyring(), Projects()
        self.streams, self.rooms, self.egress = Streams(), Rooms(), Egress()
        self.facts: dict[str, Any] = {"runtime": "runc", "runtimes": []}
        self.node_away: Exception | None = None

        async def images() -> Sequence[dict[str, str]]:
            return [{"name": "host", "digest": "sha256:00"}, {"name": "stock", "digest": "sha256:01"}]

        async def usage(_: str) -> Counters:
            return self.sandboxes.counters

        async def facts() -> dict[str, Any]:
            if self.node_away is not None:
                raise self.node_away
            return self.facts

        services = Services(
            sandboxes=self.sandboxes, keys=self.keys, projects=self.projects, rooms=self.rooms,  # type: ignore[arg-type]
            streams=self.streams, observation=None, images=images, egress=self.egress,  # type: ignore[arg-type]
            usage=usage if counted else None, node_facts=facts if counted else None,
            running=self.running, files=self.files,  # type: ignore[arg-type]
            snapshots=self.snapshots, backups=self.backups,  # type: ignore[arg-type]
        )  # fmt: skip
        self.app = create_app(services, settings or ApiSettings())

    def _view(self, path: str) -> SandboxView:
        return view(path.rpartition("/")[2])

    def browser(self) -> Browser:
        return Browser(self.app)


class Browser:
    """Follows nothing by itself; `submit` takes the token from a page of the session."""

    def __init__(self, app: Any) -> None:
        self.http = httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app=app, raise_app_exceptions=False), base_url="http://localhost:8787"
        )

    async def get(self, path: str, **headers: str) -> httpx2.Response:
        return await self.http.get(path, headers=headers)

    async def login(self, key: str = "admin") -> Browser:
        answer = await self.http.post("/console/login", data={"key": key})
        assert answer.status_code == 303, answer.text
        return self

    async def token(self) -> str:
        page = await self.get("/console/p/default/sandboxes")
        if page.status_code != 200:
            page = await self.get("/console/p/other/sandboxes")
        found = re.search(r'name="token" value="([^"]+)"', page.text)
        assert found is not None
        return found[1]

    async def submit(self, path: str, data: dict[str, Any] | None = None, **headers: str) -> httpx2.Response:
        return await self.http.post(path, data={"token": await self.token(), **(data or {})}, headers=headers)
