"""Owns the scenes of the crash matrix about a sandbox's files: packed, fetched, merged, collected, taken back, saved.

Used by the crash matrix. Invariant: as in crash_scenes; a file is afterwards what it was before or after the act, never
something else, and whatever is listed can be had.
"""

from __future__ import annotations

import time
from pathlib import Path

from crash_scenes import AUDIT, ENV, Scene, Sleeping
from crashes import PATIENCE, Restless
from installation import PACKAGE, see_own_packages
from kennel import Sandbox
from kennel.domain.snapshot import KEPT_POINTS

MIB = 1 << 20


class SleepingWhole(Sleeping):
    persist = "disk"

    def prepare(self) -> None:
        super().prepare()
        self.box.exec("echo kept > /usr/local/file; echo kept > /etc/file; sync")
        time.sleep(AUDIT)

    def check(self) -> None:
        super().check()
        assert self.run("cat /usr/local/file /etc/file") == "kept\nkept\n"


class Fetching(Scene):
    """On a machine that lost its layers."""

    def prepare(self) -> None:
        super().prepare()
        for path in (self.installation.data / "node/layers").glob("*.erofs"):
            path.unlink()

    def act(self) -> object:
        return self.box.start()


class Compacting(Scene):
    """A sleep that ends with a merge: of a pet that wakes too soon for the background each time."""

    def prepare(self) -> None:
        self.create()
        self.box.exec("echo kept > file; mkdir d; echo 1 > d/1; echo gone > gone")
        self.box.sleep()
        self.box.exec("mv d e; rm gone")
        self.box.sleep()
        self.box.exec("echo 3 > 3; sync")
        time.sleep(AUDIT)

    def act(self) -> object:
        return self.box.sleep()

    def check(self) -> None:
        assert self.run("cat file; echo $GREETING; ls; cat e/1 3") == "kept\nhello\n3\ne\nfile\n1\n3\n"


class Collecting(Scene):
    """A destroyed pet's layers go, one by one, but not the one that its fork lies on."""

    def prepare(self) -> None:
        super().prepare()
        self.twin = self.box.fork(f"{self.box.path}-twin")
        self.run("echo more > more")
        self.box.sleep()
        self.shared = set(self._told("layers", self.twin.path))
        self.own = set(self._told("layers", self.box.path)) - self.shared
        assert self.own
        assert self.shared
        self.box.destroy()

    def _told(self, word: str, path: str) -> list[str]:
        made = [e["payload"] for e in self.installation.events(path) if e["type"] == "sandbox/backup-created"]
        return list(made[-1][word])

    def _here(self) -> set[str]:
        cached = {path.stem for path in (self.installation.data / "node/layers").glob("*.erofs")}
        return cached | {path.name for path in (self.installation.data / "control/blobs/layers").iterdir()}

    def act(self) -> object:
        deadline = time.monotonic() + PATIENCE - 1
        while self.own & self._here():
            assert time.monotonic() < deadline, "what nobody needs was not collected"
            time.sleep(0.02)
        return None

    def check(self) -> None:
        self.act()
        assert self.shared <= self._here()
        assert self.twin.exec("cat file", timeout=PATIENCE).stdout == "kept\n"

    def finish(self) -> None:
        self.twin.destroy()
        super().finish()


class Snapshotting(Scene):
    """Of a pet that runs: it must not stay frozen."""

    def prepare(self) -> None:
        self.create()
        self.run("echo kept > file; seq 2000 > many; sync")
        time.sleep(AUDIT)

    def act(self) -> object:
        return self.box.snapshot("one")

    def check(self) -> None:
        super().check()
        for each in self.box.snapshots():
            assert self.box.diff(each).paths == []


class RollingBack(Scene):
    def prepare(self) -> None:
        self.create()
        self.run("echo kept > file")
        self.first = self.box.snapshot("first").id
        self.run("echo other > file; touch new; sync")
        time.sleep(AUDIT)

    def act(self) -> object:
        return self.box.rollback(self.first)

    def check(self) -> None:
        assert self.run("cat file; ls") in ("kept\nfile\n", "other\nfile\nnew\n")
        self.box.rollback(self.first)
        assert self.run("ls; cat file; echo $GREETING") == "file\nkept\nhello\n"


class Pointing(Scene):
    """Commands with a point before each, when there are as many as are kept: each new one makes an old one go."""

    def create(self) -> None:
        self.box.create(env=ENV, sleep_after=600, points=True, request_id=self.request_id)

    def prepare(self) -> None:
        self.create()
        self.run("echo kept > file")
        for number in range(KEPT_POINTS):
            self.run(f"echo {number} > number")
        time.sleep(AUDIT)

    def act(self) -> object:
        self.run("rm file")
        self.run("echo kept > file")
        time.sleep(AUDIT)
        return None

    def check(self) -> None:
        """Whatever is listed is here, and the way back to before the next command works."""
        self.run("echo kept > file; echo before > number")
        self.run("rm file number")
        time.sleep(AUDIT)
        ran = [e for e in self.installation.events(self.box.path) if e["type"] == "sandbox/exec-started"]
        here = {path.stem for path in (self.installation.data / "node/layers").glob("*.erofs")}
        points = [each for each in self.box.snapshots() if each.reason == "point"]
        assert 0 < len(points) <= KEPT_POINTS
        taken = [e["payload"] for e in self.installation.events(self.box.path) if e["type"] == "sandbox/point-taken"]
        assert {layer for each in taken[-len(points) :] for layer in each["layers"]} <= here
        assert ran[-1]["payload"]["command"] == "rm file number"
        self.box.rollback(before=ran[-1]["offset"])
        assert self.run("cat file number; echo $GREETING") == "kept\nbefore\nhello\n"


class StartingAfterKill(Scene):
    """What is outside `/workspace` does not last: it is set aside at the start, and deleted while the pet runs."""

    def prepare(self) -> None:
        self.create()
        self.run("echo kept > file; echo 1 > /etc/mine; echo 1 > /usr/local/mine; sync")
        self.box.kill()

    def act(self) -> object:
        return self.box.start()

    def check(self) -> None:
        super().check()
        assert self.run("ls /etc/mine /usr/local/mine 2>/dev/null | wc -l") == "0\n"
        home = self.disk / "discarded"
        deadline = time.monotonic() + PATIENCE
        while list(home.iterdir()):
            assert time.monotonic() < deadline, "what nobody wants was not deleted"
            time.sleep(0.02)

    @property
    def disk(self) -> Path:
        """As node sees it: an installation of another view of the machine has mounts of its own."""
        root = Path(f"/proc/{self.installation.pid('node')}/root{self.installation.data}")
        return root / "node/sandboxes" / str(self.box.info().sandbox_id) / "disk"


class StartingOnAnotherImage(StartingAfterKill):
    """The machine got a package meanwhile: what was made on the image of before is set aside, and stays."""

    persist = "disk"

    def prepare(self) -> None:
        super().prepare()
        assert isinstance(self.installation, Upgradable)
        self.installation.upgrade()

    def check(self) -> None:
        Scene.check(self)
        assert self.run("ls /etc/mine /usr/local/mine 2>/dev/null | wc -l") == "0\n"
        assert sorted(path.name.split("-")[0] for path in (self.disk / "set-aside").iterdir()) == ["root", "usr"]
        said = [e["payload"] for e in self.installation.events(self.box.path) if "set-aside" in e["type"]]
        assert len(said) == 1, said
        assert said[0]["madeOn"] != said[0]["imageDigest"]


class Upgradable(Restless):
    """An installation that sees a list of its machine's packages of its own."""

    def up(self, *words: str) -> None:
        self.status = see_own_packages(self)
        super().up(*words)

    def upgrade(self) -> None:
        """One package more, or less."""
        text = self.status.read_text()
        self.status.write_text(text.removesuffix(PACKAGE) if text.endswith(PACKAGE) else text + PACKAGE)


class StartingHeavy(Scene):
    """A stack that takes a part of the disk: so much is held back, whatever came between."""

    def prepare(self) -> None:
        self.create()
        self.before = self._free()
        self.run("head -c 40000000 /dev/zero | tr '\\0' x > big; echo kept > file; sync")
        self.box.sleep()

    def _free(self) -> int:
        return int(self.run("stat -f -c '%a %S' /workspace | awk '{printf \"%.0f\", $1 * $2}'"))

    def act(self) -> object:
        return self.box.start()

    def check(self) -> None:
        super().check()
        assert abs(self.before - self._free() - 40_000_000) < 8 * MIB


class Forking(Scene):
    def prepare(self) -> None:
        super().prepare()
        self.twin = self.itx.sandboxes.get(f"{self.box.path}-twin")

    def act(self) -> object:
        return self._fork()

    def _fork(self) -> Sandbox:
        return self.box.fork(self.twin.path, request_id=f"{self.request_id}-twin")

    def check(self) -> None:
        super().check()
        self._fork()
        assert self.twin.exec("cat file; echo $GREETING", timeout=PATIENCE).stdout == "kept\nhello\n"

    def finish(self) -> None:
        self.twin.destroy()
        super().finish()


class Importing(Scene):
    """A tree that comes from elsewhere; cut off, it is finished by the same import."""

    def prepare(self) -> None:
        source = self.itx.sandboxes.get(f"{self.box.path}-source").create()
        source.exec("echo kept > file; seq 1000 | xargs touch")
        self.tree = b"".join(source.export_snapshot(source.snapshot()))
        source.destroy()

    def act(self) -> object:
        return self.itx.sandboxes.import_(self.box.path, self.tree, request_id=self.request_id)

    def check(self) -> None:
        self.act()
        assert self.run("cat file; ls | wc -l; ls -A / | grep -c kennel-restore || true") == "kept\n1001\n0\n"


class SavingDirectory(Scene):
    """A backup of a directory outside `/workspace`: listed means that it can be put back."""

    def prepare(self) -> None:
        self.create()
        self.run(
            "echo kept > file; mkdir -p /home/k/t; cd /home/k/t; echo one > one; head -c 3000000 /dev/urandom > big"
        )
        time.sleep(AUDIT)

    def act(self) -> object:
        return self.box.create_backup("/home/k/t")

    def check(self) -> None:
        super().check()
        self.act()
        for each in self.box.list_backups():
            self.run("rm -rf /home/k/copy")
            self.box.restore_backup(each, dir="/home/k/copy")
            self.run("cmp /home/k/t/one /home/k/copy/one && cmp /home/k/t/big /home/k/copy/big")
        assert self.run("ls -A /home/k") == "copy\nt\n"


class RestoringDirectory(SavingDirectory):
    def prepare(self) -> None:
        super().prepare()
        self.made = self.box.create_backup("/home/k/t")
        self.run("echo two > /home/k/t/one; rm /home/k/t/big")

    def act(self) -> object:
        return self.box.restore_backup(self.made)

    def check(self) -> None:
        Scene.check(self)
        assert self.run("ls -A /home/k /home/k/t; cat /home/k/t/one") in (
            "/home/k:\nt\n\n/home/k/t:\nbig\none\none\n",
            "/home/k:\nt\n\n/home/k/t:\none\ntwo\n",
        )
        self.act()
        assert self.run("ls -A /home/k /home/k/t; cat /home/k/t/one") == "/home/k:\nt\n\n/home/k/t:\nbig\none\none\n"


class DeletingDirectory(SavingDirectory):
    def prepare(self) -> None:
        super().prepare()
        self.made = self.box.create_backup("/home/k/t")

    def act(self) -> object:
        return self.box.delete_backup(self.made)

    def check(self) -> None:
        Scene.check(self)
        for each in self.box.list_backups():
            self.box.restore_backup(each, dir="/home/k/t")
            self.box.delete_backup(each)
        assert self.box.list_backups() == []


class CollectingArchives(SavingDirectory):
    """A destroyed pet's saved directories go, another one's stay."""

    def prepare(self) -> None:
        super().prepare()
        self.other = self.itx.sandboxes.get(f"{self.box.path}-other").create()
        self.other.exec("mkdir -p /home/k/t; echo one > /home/k/t/one")
        self.kept, self.gone = self.other.create_backup("/home/k/t"), self.box.create_backup("/home/k/t")
        self.box.destroy()

    def act(self) -> object:
        deadline = time.monotonic() + PATIENCE - 1
        while self.gone.id in archives(self.installation):
            assert time.monotonic() < deadline, "what nobody needs was not collected"
            time.sleep(0.02)
        return None

    def check(self) -> None:
        self.act()
        self.other.restore_backup(self.kept, dir="/home/k/copy")
        assert self.other.exec("cat /home/k/copy/one", timeout=PATIENCE).stdout == "one\n"

    def finish(self) -> None:
        self.other.destroy()
        super().finish()


def archives(installation: Restless) -> set[str]:
    folder = installation.data / "control/blobs/backups"
    return {path.name for path in folder.iterdir()} if folder.exists() else set()


class Expiring(Scene):
    """It slept for longer than files are kept: empty, and said once."""

    def prepare(self) -> None:
        super().prepare()
        time.sleep(1.1)

    def act(self) -> object:
        return self.box.start()

    def check(self) -> None:
        assert self.run("ls; echo $GREETING") == "hello\n"
        told = [e["type"] for e in self.installation.events(self.box.path)]
        assert told.count("sandbox/workspace-expired") == 1


def half_made(installation: Restless) -> list[str]:
    """What somebody who died began and nobody finished."""
    found = [*(installation.data / "node/layers/coming").iterdir(), *(installation.data / "control/blobs").rglob("*#*")]
    return [str(path.relative_to(installation.data)) for path in found]


def stored(installation: Restless) -> list[str]:
    blobs = [path for path in (installation.data / "control/blobs").rglob("*") if path.is_file()]
    found = [*blobs, *(installation.data / "node/layers").glob("*.erofs")]
    return [str(path.relative_to(installation.data)) for path in found]


def check_nothing_is_left(installation: Restless) -> None:
    """With nobody alive, an installation that collects often comes to hold nothing."""
    assert not half_made(installation)
    installation.down()
    installation.settings["collect_every"] = "0.5"
    installation.up()
    deadline = time.monotonic() + PATIENCE
    while found := stored(installation):
        assert time.monotonic() < deadline, f"left: {found[:10]}"
        time.sleep(0.05)
