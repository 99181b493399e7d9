"""Owns the scenes of the crash matrix in which a sandbox or a room lives: created, woken, put to sleep, destroyed.

Used by the crash matrix. Invariant: a scene has a sandbox of its own, acts once, and its check holds wherever between
the first step and the last one of the act a service was killed.
"""

from __future__ import annotations

import time

import pytest

from crashes import PATIENCE, Restless, check_life
from kennel import Kennel, KennelError
from kennel.wire.results import ExecResult

ENV = {"GREETING": "hello"}
AUDIT = 0.1
"""Seconds after which what a command leaves on the log is written."""


class Scene:
    """One sandbox of its own, the verb that is cut off, and what must hold whatever became of it."""

    persist = "workspace"

    def __init__(self, itx: Kennel, installation: Restless, name: str) -> None:
        self.itx, self.installation = itx, installation
        self.box = itx.sandboxes.get(f"/sandboxes/{name}")
        self.request_id = f"request-{name}"

    def prepare(self) -> None:
        """The sandbox as it is before the verb: asleep, with a file."""
        self.create()
        self.box.exec("echo kept > file; sync file")
        self.box.sleep()

    def create(self) -> None:
        self.box.create(env=ENV, sleep_after=600, persist=self.persist, request_id=self.request_id)

    def act(self) -> object:
        raise NotImplementedError

    def check(self) -> None:
        """The pet answers, with its file and its environment."""
        assert self.run("cat file; echo $GREETING") == "kept\nhello\n"

    def run(self, command: str) -> str:
        result: ExecResult = self.box.exec(command, timeout=PATIENCE)
        assert result.exit_code == 0, result
        return result.stdout

    def finish(self) -> None:
        self.box.destroy()
        assert self.box.info().status == "destroyed"
        check_life(self.installation.events(self.box.path))


class Creating(Scene):
    def prepare(self) -> None:
        """As on a new machine: the empty disk of this size is still to be made."""
        for image in (self.installation.data / "node/golden").glob("*"):
            image.unlink()

    def act(self) -> object:
        return self.create()

    def check(self) -> None:
        claims = [e for e in self.installation.events("/sandboxes") if e["payload"].get("path") == self.box.path]
        self.create()
        info = self.box.info()
        if claims:
            assert info.sandbox_id == claims[0]["payload"]["sandboxId"]
        with pytest.raises(KennelError) as caught:
            self.box.create(env=ENV, sleep_after=600)
        assert caught.value.code == "SANDBOX_EXISTS"
        assert self.run("echo $GREETING") == "hello\n"
        self.create()
        assert self.box.info().sandbox_id == info.sandbox_id


class Executing(Scene):
    def act(self) -> object:
        return self.run("true")


class FirstExec(Scene):
    def prepare(self) -> None:
        self.create()

    def act(self) -> object:
        return self.run("echo kept > file; sync file")

    def check(self) -> None:
        assert self.run("cat file 2>/dev/null || echo kept; echo $GREETING") == "kept\nhello\n"


class Starting(Scene):
    def act(self) -> object:
        return self.box.start()


class Sleeping(Scene):
    ended = "requested"

    def prepare(self) -> None:
        self.create()
        self.box.exec("echo kept > file; sync file; (setsid sleep 1000 &)")
        time.sleep(AUDIT)

    def act(self) -> object:
        return self.box.sleep()

    def check(self) -> None:
        """What was asked for is not told as a loss."""
        reasons = [e["payload"]["reason"] for e in self.installation.events(self.box.path) if "stopped" in e["type"]]
        assert reasons in ([], [self.ended])
        super().check()


class Killing(Sleeping):
    ended = "killed"

    def act(self) -> object:
        return self.box.kill()


class Destroying(Scene):
    def act(self) -> object:
        return self.box.destroy()

    def check(self) -> None:
        told = [event["type"] for event in self.installation.events(self.box.path)]
        if "sandbox/destroy-requested" not in told:
            super().check()
        else:
            assert "sandbox/destroyed" in told
        self.box.destroy()
        for ask in (lambda: self.box.exec("true"), self.box.create):
            with pytest.raises(KennelError) as caught:
                ask()
            assert caught.value.code == "SANDBOX_DESTROYED"


class DestroyingAwake(Destroying):
    def prepare(self) -> None:
        self.create()
        self.box.exec("echo kept > file; sync file; (setsid sleep 1000 &)")
        time.sleep(AUDIT)


class RoomScene(Scene):
    def __init__(self, itx: Kennel, installation: Restless, name: str) -> None:
        super().__init__(itx, installation, name)
        self.room = itx.rooms.get(name)
        self.stream = f"/rooms/{name}"

    def wait_until_destroyed(self) -> None:
        """A cleanup that was asked for is finished by itself."""
        deadline = time.monotonic() + PATIENCE
        while self.itx.sandboxes.get(f"sandbox-{self.room.id}").info().status != "destroyed":
            assert time.monotonic() < deadline, "the room's sandbox lives on"
            time.sleep(0.03)

    def finish(self) -> None:
        assert self.room.cleanup().errors in (None, [])
        for row in self.itx.sandboxes.list(include_destroyed=True):
            if row.name.startswith(f"sandbox-{self.room.id}"):
                assert row.status == "destroyed", row
                check_life(self.installation.events(row.path))


class RoomFirstExec(RoomScene):
    def prepare(self) -> None:
        pass

    def act(self) -> object:
        return self.room.exec("cd /tmp")

    def check(self) -> None:
        assert self.room.exec("echo here").stdout == "here\n"
        assert self.room.exec("true").exit_code == 0


class RoomCleaning(RoomScene):
    def prepare(self) -> None:
        self.room.exec("echo kept > /workspace/file")
        time.sleep(AUDIT)

    def act(self) -> object:
        return self.room.cleanup()

    def check(self) -> None:
        told = [event["type"] for event in self.installation.events(self.stream)]
        if "room/cleanup-requested" in told:
            self.wait_until_destroyed()
        left = self.room.exec("cat /workspace/file 2>/dev/null || echo new").stdout
        assert left == ("new\n" if "room/cleanup-requested" in told else "kept\n")
