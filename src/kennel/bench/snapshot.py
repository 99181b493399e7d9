"""Owns `kennel bench snapshot`: the first pack of a tree, of a few changes, forks; beside what others need for it.

Called by installation/bench. Invariant: every tool gets a tree of the same bytes in the same run; restic's rows are
there when restic is, and nothing stands in for them.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from kennel import Kennel, Sandbox
from kennel.bench import figures, tree
from kennel.bench.figures import Report, timed

ALONE, TAR = "mkfs.erofs of the 10", "tar + zstd of all"


def measure(itx: Kennel, times: int = 10) -> Report:
    """Trees of tree.FILES files of which tree.CHANGED change between two packs."""
    report = Report(f"snapshots, {tree.CHANGED} changed of {tree.FILES:,} files, milliseconds")
    with tempfile.TemporaryDirectory(prefix="kennel-floor-", dir="/var/tmp") as folder:
        _others(Path(folder), report, times)
    box = itx.sandboxes.get(figures.fresh_path("snapshot")).create(instance_type="standard-2", sleep_after=3600)
    try:
        tree.within(box, tree.make())
        report.add("first snapshot, all files, over HTTP", [_snapshot(box)], TAR)
        report.add("  of the first frozen", _noted(box, "frozenMs", 1), note="budget 1,000 for 150,000 files")
        live = []
        for number in range(times):
            tree.within(box, tree.change(number))
            live.append(_snapshot(box))
        report.add("first wake's snapshots, over HTTP", live, TAR, "each takes all that changed since the wake")
        _after_sleep(box, report, times)
        _forks(itx, box, report, times)
    finally:
        box.destroy()
    return report


def _snapshot(box: Sandbox) -> float:
    return _once(lambda: box.snapshot("bench"))


def _once(work: Callable[[], object]) -> float:
    return timed(work, 1, warm=False)[0]


def _noted(box: Sandbox, word: str, count: int) -> list[float]:
    """What the last `count` backups say of themselves."""
    made = box.stream.read(types="sandbox/backup-created", limit=10_000)[-count:]
    return [float(event.payload[word]) for event in made]


def _after_sleep(box: Sandbox, report: Report, times: int) -> None:
    """Sleeps of a sandbox that changed a little each time it was awake, and live snapshots then."""
    box.sleep()
    live, sleeps = [], []
    for number in range(times):
        box.start()
        tree.within(box, tree.change(1000 + number))
        live.append(_snapshot(box))
        tree.within(box, tree.change(2000 + number))
        sleeps.append(_once(box.sleep))
    backups = box.stream.read(types="sandbox/backup-created", limit=10_000)[-2 * times :]
    packs = [float(event.payload["durationMs"]) for event in backups if event.payload["reason"] == "requested"]
    frozen = [float(event.payload["frozenMs"]) for event in backups if "frozenMs" in event.payload]
    report.add("live snapshot, over HTTP", live, ALONE)
    report.add("  of that frozen", frozen, ALONE, "budget 50")
    report.add("sleep, over HTTP", sleeps, ALONE, "stop, pack, upload, pointer")
    report.add("  of that pack and upload", packs, ALONE, "budget 30")


def _forks(itx: Kennel, box: Sandbox, report: Report, times: int) -> None:
    took = []
    for _ in range(times):
        path = figures.fresh_path("fork")
        took.append(_once(functools.partial(box.fork, path)))
        itx.sandboxes.get(path).destroy()
    report.add("fork of a sleeping sandbox, over HTTP", took, TAR)


def _others(folder: Path, report: Report, times: int) -> None:
    """The same tree packed by mkfs.erofs, tar with zstd, and restic."""
    tree.beside(folder, tree.make())
    delta = folder / "delta"
    for number in range(tree.CHANGED):
        (delta / str(number)).mkdir(parents=True)
        shutil.copy2(folder / "tree" / str(number) / str(number), delta / str(number))
    image = str(folder / "image")
    report.add(ALONE, timed(lambda: _run("mkfs.erofs", "--quiet", image, str(delta)), times), note="floor: the changed")
    whole = timed(lambda: _run("mkfs.erofs", "--quiet", image, str(folder / "tree")), times)
    report.add("mkfs.erofs of all", whole, note="floor")
    packed = timed(lambda: _run("sh", "-c", f"tar -C {folder} -c tree | zstd -q -f -o {image}"), times)
    report.add(TAR, packed, note="floor: whole each time")
    if shutil.which("restic") is None:
        report.facts["restic"] = "not installed"
        return
    os.environ["RESTIC_PASSWORD"] = "bench"
    restic = ("restic", "--quiet", "--no-cache", "-r", str(folder / "restic"))
    _run(*restic, "init")
    report.add("restic, first", [_once(lambda: _run(*restic, "backup", str(folder / "tree")))], TAR)
    again = []
    for number in range(times):
        tree.beside(folder, tree.change(number))
        again.append(_once(lambda: _run(*restic, "backup", str(folder / "tree"))))
    report.add("restic, again", again, ALONE)


def _run(*words: str) -> None:
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=300)
