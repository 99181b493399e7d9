"""Owns a scripted stand-in for what runs in sandboxes, for tests of the API alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fake_interpreter import FakeInterpreter
from kennel.control.exposed import Preview
from kennel.control.followed import StreamEvent
from kennel.domain.bucket import Bucket, Credentials
from kennel.domain.process import LogPiece, ProcessExit, ProcessFacts, TerminalFacts
from kennel.wire.errors import error
from kennel.wire.results import MountView


def process(**changes: Any) -> ProcessFacts:
    """A plausible process."""
    fields: dict[str, Any] = {
        "id": "p1", "command": "sleep 1", "cwd": "/workspace", "state": "exited", "pid": 7, "began": 1_700_000_000_000,
        "over": 1_700_000_001_000, "exit": ProcessExit(0, None), "error": None, "keep_awake": False, "first": 0,
        "last": 4, "runtime": "00ff",
    }  # fmt: skip
    return ProcessFacts(**{**fields, **changes})


class FakeCommands:
    """Every command prints one line and ends well; none is known afterwards."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    async def open(self, who: Any, project: str, path: str, command: Any, **options: Any) -> FakeCommands:
        self.asked.append((project, path, command, options))
        return self

    async def read(self, after: int = 0) -> AsyncIterator[StreamEvent]:
        yield StreamEvent(1, "start", body={"execId": "0" * 16})
        yield StreamEvent(2, "stdout", b"h\xc3\xa9\n\xff")
        yield StreamEvent(3, "exit", body={"exitCode": 0})

    def find(self, project: str, path: str, exec_id: str) -> FakeCommands:
        raise error("COMMAND_NOT_FOUND", "no such command")


class FakeLog:
    """`out`, a gap, half a character, its other half."""

    def __init__(self) -> None:
        self.facts = process()

    async def __aiter__(self) -> AsyncIterator[LogPiece]:
        yield LogPiece(0, "stdout", b"out")
        yield LogPiece(5, None, missed=2)
        yield LogPiece(5, "stdout", b"\xc3")
        yield LogPiece(6, "stderr", b"e")
        yield LogPiece(7, "stdout", b"\xa9")


class FakeProcesses:
    """Knows `p1`."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    async def start(self, who: Any, project: str, path: str, command: Any, **options: Any) -> ProcessFacts:
        self.asked.append(("start", command, options))
        return process(state="running", exit=None, over=None)

    async def list(self, project: str, path: str) -> list[ProcessFacts]:
        return [process()]

    async def _one(self, *words: Any, **options: Any) -> ProcessFacts:
        self.asked.append((*words, options))
        if words[2] != "p1":
            raise error("PROCESS_NOT_FOUND", "there is no such process", admitted="no")
        return process()

    get = kill = signal = _one

    async def kill_all(self, project: str, path: str, *, grace_ms: int | None) -> int:
        return 2

    async def feed(self, project: str, path: str, process_id: str, data: bytes, **options: Any) -> int:
        await self._one(project, path, process_id, data, **options)
        return len(data)

    @asynccontextmanager
    async def log(self, who: Any, project: str, path: str, process_id: str, since: int, **options: Any) -> Any:
        await self._one(project, path, process_id, since, **options)
        yield FakeLog()

    async def wait(self, who: Any, project: str, path: str, process_id: str, words: Any, **options: Any) -> Any:
        await self._one(project, path, process_id, words, **options)
        return {"port": 1, "status": None}

    async def wait_for_port(self, who: Any, project: str, path: str, words: Any, *, timeout: float) -> Any:
        return {"port": words["port"], "status": None}


class FakeScreen:
    """Shows one line and goes on; keys are kept."""

    at, missed, drives = 0, 0, False

    def __init__(self, shown: TerminalFacts) -> None:
        self.facts, self.keys, self.shown = shown, b"", asyncio.Event()

    async def __aiter__(self) -> AsyncIterator[bytes | dict[str, Any]]:
        yield b"shown"
        self.shown.set()
        await asyncio.Event().wait()

    async def write(self, data: bytes) -> None:
        self.keys += data


class FakeTerminals:
    """Knows `t1`; `watched` are the screens of onlookers."""

    def __init__(self) -> None:
        self.watched: list[FakeScreen] = []

    @asynccontextmanager
    async def watch(self, project: str, path: str, terminal_id: str, **words: Any) -> AsyncIterator[FakeScreen]:
        if terminal_id != "t1":
            raise error("TERMINAL_NOT_FOUND", "there is no such terminal", admitted="no")
        self.watched.append(FakeScreen(self.facts))
        yield self.watched[-1]

    facts = TerminalFacts("t1", "bash", "/workspace", "running", 9, None, 80, 24, 0, 0, 1, "00ff")

    async def list(self, project: str, path: str) -> list[TerminalFacts]:
        return [self.facts]

    async def close(self, project: str, path: str, terminal_id: str) -> TerminalFacts:
        if terminal_id != "t1":
            raise error("TERMINAL_NOT_FOUND", "there is no such terminal")
        return self.facts


class FakePorts:
    """3000 is exposed."""

    preview = Preview(3000, "a" * 16, None, False, "2026-01-02T03:04:05.678Z")

    async def expose(self, who: Any, project: str, path: str, port: int, *, name: str | None, wake: bool) -> Preview:
        return Preview(port, "b" * 16, name, wake, self.preview.created_at)

    async def list(self, project: str, path: str) -> list[Preview]:
        return [self.preview]

    async def get(self, project: str, path: str, port: int) -> Preview:
        if port != 3000:
            raise error("PORT_NOT_EXPOSED", "not exposed")
        return self.preview

    async def revoke(self, who: Any, project: str, path: str, port: int) -> None: ...


class FakeBuckets:
    """One bucket is mounted."""

    view = MountView(
        bucket="b", mount_path="/workspace/b", endpoint="https://s3.example.com", prefix=None, read_only=True,
        mounted_at="2026-01-02T03:04:05.678Z", alive=True,
    )  # fmt: skip

    async def mount(self, who: Any, project: str, path: str, asked: Bucket, given: Credentials | None) -> MountView:
        return self.view

    async def unmount(self, who: Any, project: str, path: str, mount_path: str, *, force: bool) -> None: ...

    async def list(self, project: str, path: str) -> list[MountView]:
        return [self.view]


class FakeRunning:
    """All of it."""

    def __init__(self) -> None:
        self.commands = FakeCommands()
        self.processes = FakeProcesses()
        self.terminals = FakeTerminals()
        self.ports = FakePorts()
        self.buckets = FakeBuckets()
        self.interpreter = FakeInterpreter()
