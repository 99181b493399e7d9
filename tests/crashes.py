"""Owns killing a service of a real installation at one of its own steps, and comparing log and machine afterwards.

Used by the crash matrix. Invariant: a case says where it died, and that what came of it is what the design promises.
"""

from __future__ import annotations

import json
import os
import select
import socket
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from installation import Installation
from kennel import Kennel, KennelError

PATIENCE = 30.0
"""Seconds within which log and machine must agree after a crash, and any call must have ended."""
LONG = 0.01
"""Seconds from which on a step also gets a crash in its middle."""
_LOOKS = ("node census", "node hello", "node usage", "node list-images", "node resolve-image", "node list-layers")
"""Steps that change nothing and are taken by loops too, so that they are no boundaries of a verb."""


class Restless(Installation):
    """An installation whose services note their steps and are started again at once."""

    def up(self, *words: str) -> None:
        environment = {**os.environ, **{f"KENNEL_{name.upper()}": value for name, value in self.settings.items()}}
        command = [sys.executable, "-P", str(Path(__file__).with_name("restless_up.py"))]
        log = open(self.data / "up.log", "ab")  # noqa: SIM115  the child's
        self.process = subprocess.Popen(
            [*self.prefix, *command, "--data", str(self.data), "--port", "0", "--json", *words],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, env=environment,
        )  # fmt: skip
        log.close()
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], 30)
        line = self.process.stdout.readline() if ready else b""
        assert line, [path.read_text()[-400:] for path in (self.data / "up.log", *self.data.glob("logs/*.log"))]
        self.url = json.loads(line)["url"]
        self.key = (self.data / "admin.key").read_text().strip()

    def down(self) -> None:
        super().down()
        self.process.wait(30)
        if self.process.stdout is not None:
            self.process.stdout.close()

    def folder(self, service: str) -> Path:
        """Where a service notes its steps: its own data folder."""
        return self.data if service == "node" else self.data / service

    def steps(self, service: str, since: int = 0) -> list[tuple[float, str]]:
        """The points that a service passed after byte `since` of its notes: when, and which."""
        text = (self.folder(service) / "steps").read_bytes()[since:].decode()
        rows = [line.split(" ", 1) for line in text.splitlines()]
        return [(float(when), point) for when, point in rows]

    def mark(self, service: str) -> int:
        try:
            return (self.folder(service) / "steps").stat().st_size
        except FileNotFoundError:
            return 0

    def census(self) -> dict[str, dict[str, Any]]:
        """What node sees on the machine."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as link:
            link.settimeout(PATIENCE)
            link.connect(str(self.data / "run/node.sock"))
            link.send(json.dumps({"id": 1, "request": {"type": "census"}}).encode())
            reply = json.loads(link.recv(1 << 20))
        return {unit["sandbox"]: unit for unit in reply["ok"]}

    def unfinished(self) -> list[str]:
        """The sandboxes whose end was asked for and is not on the log."""
        asked, done = (f"sum(type = 'sandbox/{word}')" for word in ("destroy-requested", "destroyed"))
        query = f"select path from events group by path having {asked} > 0 and {done} = 0"
        with sqlite3.connect(f"file:{self.data}/control/kennel.db?mode=ro", uri=True) as database:
            return [path for (path,) in database.execute(query)]


@dataclass(frozen=True, slots=True)
class Boundary:
    """One place to die: the n-th passing of a point by a service during a verb."""

    service: str
    point: str
    count: int
    milliseconds: float = 0.0

    def __str__(self) -> str:
        return f"{self.service}: {self.point}#{self.count}" + (f" +{self.milliseconds:g}ms" * bool(self.milliseconds))

    def arm(self, installation: Restless) -> None:
        folder = installation.folder(self.service)
        fresh = folder / ".crash-at.new"
        fresh.write_text(f"{self.count} {self.milliseconds} {self.point}")
        fresh.chmod(0o644)
        os.replace(fresh, folder / "crash-at")

    def disarm(self, installation: Restless) -> bool:
        """Whether it had not been reached."""
        try:
            (installation.folder(self.service) / "crash-at").unlink()
        except FileNotFoundError:
            return False
        return True


def boundaries(service: str, steps: list[tuple[float, str]]) -> list[Boundary]:
    """Every place between two steps, and the middle of each long one.

    `after A` and the `before B` that follows it at once are one place: nothing that lasts happened between them.
    """
    found: list[Boundary] = []
    seen: Counter[str] = Counter()
    begun: dict[str, float] = {}
    for number, (when, point) in enumerate(steps):
        kind, name = point.split(" ", 1)
        if name in _LOOKS:
            continue
        seen[point] += 1
        following = steps[number + 1][1] if number + 1 < len(steps) else ""
        if kind == "before":
            begun[name] = when
        elif when - begun.get(name, when) > LONG and not name.startswith("append"):
            middle = (when - begun[name]) * 500
            found.append(Boundary(service, f"during {name}", seen[point], round(middle, 1)))
        if not (kind == "after" and following.startswith("before ")):
            found.append(Boundary(service, point, seen[point]))
    return found


def disagreement(installation: Restless, itx: Kennel) -> str | None:
    """What log and machine say differently about the sandboxes that live, or None."""
    try:
        rows = {row.sandbox_id: row for row in itx.sandboxes.list()}
        units = installation.census()
    except (KennelError, OSError) as failure:
        return f"no answer: {failure}"
    for path in installation.unfinished():
        return f"the end of {path} was asked for, and it has not come"
    for sandbox in units.keys() - rows.keys():
        return f"{sandbox} is on the machine and not on the log: {units[sandbox]}"
    for sandbox, row in rows.items():
        unit = units.get(sandbox)
        if row.status == "creating":
            return f"{row.path} is still being created"
        if unit is None or not unit["record"]:
            return f"{row.path} is not on the machine"
        if row.running != unit["running"]:
            return f"{row.path}: log {row.status}, machine {unit}"
        traces = [what for what in ("container", "mounts", "loop", "cgroup", "netns") if unit[what]]
        if not row.running and traces:
            return f"{row.path} sleeps, and left {traces}"
    return None


def wait_for_agreement(installation: Restless, itx: Kennel) -> None:
    deadline = time.monotonic() + PATIENCE
    while (why := disagreement(installation, itx)) is not None:
        assert time.monotonic() < deadline, f"log and machine do not agree: {why}"
        time.sleep(0.03)


def check_life(events: list[dict[str, Any]]) -> None:
    """A sandbox's stream tells one possible life."""
    told = [event["type"].removeprefix("sandbox/") for event in events]
    assert [event["offset"] for event in events] == list(range(1, len(events) + 1))
    assert told.count("created") <= 1, told
    assert told.count("destroyed") <= 1, told
    running = False
    for word in told:
        if word in ("started", "stopped"):
            assert running == (word == "stopped"), f"{word} out of turn: {told}"
            running = word == "started"
    if "destroyed" in told:
        assert not running, told
        assert not {"started", "created"} & set(told[told.index("destroyed") :]), told
