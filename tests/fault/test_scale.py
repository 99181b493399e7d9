"""Long forms of sleep: very many files, very large ones, very many lives; memory stays bounded and nothing is left."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from installation import Installation, make_installation
from kennel import KennelError

pytestmark = [pytest.mark.root, pytest.mark.full]
MIB = 1 << 20

_MANY = """
import hashlib, os
made = hashlib.sha256()
for folder in range(1000):
    os.makedirs(f"d{folder % 30}/e{folder}")
    for number in range(150):
        with open(f"d{folder % 30}/e{folder}/file{number}.txt", "w") as stream:
            stream.write(f"{folder} {number} " * (number % 40))
"""
_SUM = """
import hashlib, os
seen, count = hashlib.sha256(), 0
for where, folders, files in os.walk("/workspace"):
    folders.sort()
    for name in sorted(files):
        path = os.path.join(where, name)
        info = os.lstat(path)
        with open(path, "rb") as stream:
            seen.update(f"{path} {info.st_mode} {info.st_size} {info.st_mtime_ns}".encode())
            while piece := stream.read(1 << 20):
                seen.update(piece)
        count += 1
print(count, seen.hexdigest())
"""


class Memory(threading.Thread):
    """The most resident memory that each service had, without pages of files, and node's jobs with it."""

    def __init__(self, installation: Installation) -> None:
        super().__init__(daemon=True)
        self._installation, self._done = installation, threading.Event()
        self.most: Counter[str] = Counter()

    def run(self) -> None:
        while not self._done.wait(0.05):
            pids = {"control": self._installation.pid("control"), "node": self._installation.pid("node")}
            for name, pid in pids.items():
                self.most[name] = max(self.most[name], anonymous(pid))
            jobs = sum(anonymous(pid) for pid in _below(pids["node"]))
            self.most["jobs"] = max(self.most["jobs"], jobs)

    def end(self) -> dict[str, int]:
        self._done.set()
        self.join()
        return dict(self.most)


def anonymous(pid: int) -> int:
    """Bytes of memory of its own that a process has in RAM; 0 for one that is gone."""
    try:
        rows = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return sum(int(row.split()[1]) * 1024 for row in rows if row.startswith(("RssAnon:", "RssShmem:")))


def _below(pid: int) -> Iterator[int]:
    """The packing process and its jobs: what node started and is not a sandbox's."""
    try:
        children = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        children += [int(word) for task in Path(f"/proc/{pid}/task").iterdir() if task.name != str(pid)
                     for word in (task / "children").read_text().split()]  # fmt: skip
    except (FileNotFoundError, ProcessLookupError):
        return
    for child in children:
        yield child
        yield from _below(child)


@contextmanager
def watched(installation: Installation, what: str) -> Iterator[dict[str, int]]:
    """Prints how long the block took and what memory; fails when that was not bounded."""
    memory, begun, most = Memory(installation), time.monotonic(), dict[str, int]()
    memory.start()
    try:
        yield most
    finally:
        most.update(memory.end())
        seen = ", ".join(f"{name} {size / MIB:.0f} MiB" for name, size in sorted(most.items()))
        print(f"{what}: {time.monotonic() - begun:.1f} s, {seen}", flush=True)
    assert most["control"] < 400 * MIB
    assert most["node"] < 200 * MIB
    assert most["jobs"] < 300 * MIB


@pytest.fixture(scope="module")
def roomy() -> Iterator[Installation]:
    yield from make_installation(warm_pool="0", collect_every="2")


def python(box: Any, script: str) -> str:
    result = box.exec(argv=["python3", "-c", script], timeout=1200)
    assert result.exit_code == 0, result.stderr
    return str(result.stdout)


def backups(installation: Installation, box: Any) -> list[dict[str, Any]]:
    events = installation.events(box.path)
    assert not [event for event in events if event["type"] == "sandbox/backup-failed"]
    return [event["payload"] for event in events if event["type"] == "sandbox/backup-created"]


def through_sleep(installation: Installation, box: Any, what: str) -> None:
    """A live snapshot, a sleep, a machine without its layers, a wake: the same files."""
    before = python(box, _SUM)
    with watched(installation, f"{what}, live snapshot"):
        box.snapshot()
    print(f"{what}: frozen for {backups(installation, box)[-1]['frozenMs']:.0f} ms")
    with watched(installation, f"{what}, sleep"):
        box.sleep()
    for path in (installation.data / "node/layers").glob("*.erofs"):
        path.unlink()
    with watched(installation, f"{what}, wake from the store"):
        box.start()
    assert python(box, _SUM) == before


@pytest.mark.timeout(1800)
def test_very_many_files_in_bounded_memory(roomy: Installation) -> None:
    with roomy.client(timeout=900) as itx:
        box = itx.sandboxes.get("/sandboxes/many").create(instance_type="standard-4", keep_alive=True)
        python(box, _MANY)
        through_sleep(roomy, box, "150,000 files")
        # Measured 0.8 s of CPU; the machine that tests may have other work.
        assert backups(roomy, box)[0]["frozenMs"] < 10_000
        told = [e["payload"] for e in roomy.events(box.path) if e["type"] == "sandbox/backup-progress"]
        assert "packing" in {each["phase"] for each in told}
        assert max(each.get("names", 0) for each in told) > 10_000
        assert len(told) < 30
        box.destroy()


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("gib", [1, 10])
def test_a_very_large_file_in_bounded_memory(roomy: Installation, gib: int) -> None:
    with roomy.client(timeout=1800) as itx:
        box = itx.sandboxes.get(f"/sandboxes/large-{gib}").create(instance_type="standard-4", keep_alive=True)
        script = f"head -c 1073741824 /dev/urandom > a && for i in $(seq {gib - 1}); do cat a >> b; done; sync"
        assert box.exec(script, timeout=1200).exit_code == 0
        through_sleep(roomy, box, f"{gib} GiB")
        box.destroy()


class Count:
    """What an installation has on the machine: processes, mounts, loop devices, groups, names, open files."""

    def __init__(self, installation: Installation) -> None:
        folder = str(installation.data)
        self.kept = Counter[str]()
        for line in installation.residue():
            self.kept[
                "process" if line.startswith("process") else line.split()[0] if line[0].isalpha() else "mount"
            ] += 1
        for name in ("sandboxes", "runc", "layers", "layers/mounted", "layers/coming", "run"):
            self.kept[name] = len(os.listdir(installation.data / "node" / name)) if (
                installation.data / "node" / name).is_dir() else 0  # fmt: skip
        blobs = installation.data / "control/blobs/layers"
        self.kept["blobs"] = len(os.listdir(blobs)) if blobs.is_dir() else 0
        self.kept["groups"] = sum(
            1 for group in Path("/sys/fs/cgroup").rglob(f"kennel/{_name(installation)}/*") if group.is_dir()
        )
        self.open = {name: len(os.listdir(f"/proc/{installation.pid(name)}/fd")) for name in ("up", "control", "node")}
        self.threads = {
            name: len(os.listdir(f"/proc/{installation.pid(name)}/task")) for name in ("control", "node", "gateway")
        }
        self.memory = {name: anonymous(installation.pid(name)) for name in ("control", "node", "gateway")}
        assert folder


def _name(installation: Installation) -> str:
    from kennel.settings import Settings

    return Settings(data=installation.data).installation


def _lives(installation: Installation, numbers: Iterator[int], failures: list[BaseException]) -> None:
    with installation.client(timeout=120) as itx:
        for number in numbers:
            try:
                box = itx.sandboxes.get(f"/sandboxes/life-{number}").create(env={"N": str(number)})
                assert box.exec("echo $N > file; mkdir d; sync file").exit_code == 0
                box.sleep()
                assert box.exec("cat file; echo more >> file").stdout == f"{number}\n"
                box.sleep()
                box.destroy()
            except (AssertionError, KennelError) as failure:
                failures.append(failure)


def _two_at_once(installation: Installation, first: int, last: int) -> None:
    failures: list[BaseException] = []
    rows = [iter(range(first + part, last, 2)) for part in range(2)]
    threads = [threading.Thread(target=_lives, args=(installation, row, failures)) for row in rows]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


def _settled(installation: Installation) -> Count:
    """The count once what nobody needs is collected."""
    deadline = time.monotonic() + 60
    while True:
        count = Count(installation)
        if (count.kept["blobs"] == 0 and count.kept["layers/mounted"] == 0) or time.monotonic() > deadline:
            return count
        time.sleep(0.5)


@pytest.mark.timeout(3600)
def test_nothing_is_left_of_two_hundred_lives() -> None:
    for installation in make_installation(warm_pool="0", collect_every="2"):
        _two_at_once(installation, 0, 20)
        before = _settled(installation)
        begun = time.monotonic()
        _two_at_once(installation, 20, 220)
        after = _settled(installation)
        print(f"200 lives in {time.monotonic() - begun:.0f} s: {dict(after.kept)}, open {after.open}, threads "
              f"{after.threads}, memory {before.memory} → {after.memory}", flush=True)  # fmt: skip
        assert after.kept == before.kept
        assert (after.kept["blobs"], after.kept["sandboxes"], after.kept["layers/coming"]) == (0, 0, 0)
        for name, most in before.open.items():
            assert after.open[name] <= most + 8, f"{name} holds more open files: {most}, then {after.open[name]}"
        for name, size in before.memory.items():
            assert after.memory[name] < size + 64 * MIB, f"{name} grew: {size}, then {after.memory[name]}"
