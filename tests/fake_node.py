"""A machine in memory for tests of control: units that are built, run and go, and calls that can be held or refused.

Used by the tests of fleet, pool and reconciler. A guest here is a process of the test's own, so that its pidfd is real.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
from collections import Counter
from typing import Any

from kennel.control.workspaces import Woken
from kennel.wire.errors import KennelError, error
from kennel.wire.node import Counters, Start, Started, Unit


class NoProcesses:
    """Nothing runs, so nothing asks for its sandbox to stay awake."""

    async def awake(self) -> None:
        raise error("SANDBOX_LOST", "nothing runs here")


class FakeGuest:
    """A guest that greets and does nothing."""

    processes = NoProcesses()

    def __init__(self, connection: socket.socket) -> None:
        self.closed = False
        self._connection = connection

    def abort(self, reason: KennelError) -> None:
        self.closed = True

    async def close(self) -> None:
        self._connection.close()


class FakeNode:
    """Implements what control uses of ports.node."""

    def __init__(self) -> None:
        self.image = "sha256:1"
        self.units: dict[str, Unit] = {}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.calls: Counter[str] = Counter()
        self.refusals: dict[str, KennelError] = {}
        self.gates: dict[str, asyncio.Event] = {}
        self.reached: dict[str, asyncio.Event] = {}

    def hold(self, verb: str) -> tuple[asyncio.Event, asyncio.Event]:
        """From now on `verb` waits: the event that it sets when it is reached, and the one that lets it go on."""
        self.reached[verb], self.gates[verb] = asyncio.Event(), asyncio.Event()
        return self.reached[verb], self.gates[verb]

    async def _call(self, verb: str) -> None:
        self.calls[verb] += 1
        if verb in self.gates:
            self.reached[verb].set()
            await self.gates[verb].wait()
        if verb in self.refusals:
            raise self.refusals[verb]

    async def resolve_image(self, image: str) -> str:
        await self._call("resolve_image")
        return self.image

    async def build(self, sandbox: str, instance_type: str, image_digest: str, isolation: str) -> None:
        await self._call("build")
        self.units.setdefault(sandbox, Unit(sandbox, instance_type, image_digest, record=True))

    async def start(self, request: Start) -> Started:
        await self._call("start")
        unit = self.units.get(request.sandbox)
        if unit is None:
            raise error("SANDBOX_NOT_FOUND", "not here", admitted="no")
        ran, unit.running, unit.mounts = not unit.running, True, 3
        if ran:
            self.processes[request.sandbox] = subprocess.Popen(["sleep", "600"])
        return Started(ran, False, [], None, None)

    async def limit(self, sandbox: str, hostname: str | None = None) -> None:
        await self._call("limit")

    async def connect(self, sandbox: str) -> tuple[socket.socket, int]:
        await self._call("connect")
        if not self.units[sandbox].running:
            raise error("SANDBOX_LOST", "it does not run", admitted="no")
        ours, _ = socket.socketpair()
        return ours, os.pidfd_open(self.processes[sandbox].pid)

    async def stop(self, sandbox: str) -> None:
        await self._call("stop")
        self.end(sandbox)
        if sandbox in self.units:
            self.units[sandbox].mounts = 0

    async def unmount_bucket(self, sandbox: str, mount_path: str | None, *, force: bool) -> None:
        await self._call("unmount_bucket")

    async def remove(self, sandbox: str) -> None:
        await self._call("remove")
        self.end(sandbox)
        self.units.pop(sandbox, None)

    async def usage(self, sandbox: str) -> Counters:
        await self._call("usage")
        return Counters()

    async def census(self) -> list[Unit]:
        found = [Unit(*(getattr(unit, name) for name in Unit.__struct_fields__)) for unit in self.units.values()]
        await self._call("census")
        return found

    def end(self, sandbox: str) -> None:
        """The container's PID 1 dies; what it left is still there."""
        process = self.processes.pop(sandbox, None)
        if process is not None:
            process.kill()
            process.wait()
        if sandbox in self.units:
            self.units[sandbox].running = False

    def close(self) -> None:
        for sandbox in list(self.processes):
            self.end(sandbox)


class PlainFiles:
    """Sandboxes' files that are wherever their node has them."""

    def __init__(self, node: FakeNode) -> None:
        self._node = node

    async def start(self, at: Any, state: Any, who: Any, hostname: str) -> Woken:
        return Woken((await self._node.start(Start(at.sandbox, hostname))).ran)


async def open_guest(connection: socket.socket, seconds: float) -> FakeGuest:
    return FakeGuest(connection)
