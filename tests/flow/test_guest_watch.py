"""Watching through a real guest: what happens is told, by path and in time; what is lost is told too."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from guest_process import GuestProcess
from kennel.domain.file import WatchEvent, WatchOptions, WriteOptions
from kennel.relay.files import RemoteFiles
from kennel.relay.link import GuestLink
from kennel.relay.watches import RemoteWatch
from kennel.wire.errors import KennelError


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def files(guest: GuestLink) -> RemoteFiles:
    return guest.files


async def until(watch: RemoteWatch, name: str) -> list[tuple[str, str]]:
    """(kind, name below the top) of every event up to one about `name`."""
    found: list[WatchEvent] = []
    async with asyncio.timeout(10):
        async for batch in watch:
            found += batch
            if any(event.path.endswith(name.encode()) for event in batch):
                break
    return [(event.kind, os.fsdecode(event.path)) for event in found]


@pytest.mark.anyio
async def test_events_are_told_and_merged(process: GuestProcess, files: RemoteFiles, tmp_path: Path) -> None:
    watch = await files.watch(os.fsencode(tmp_path), WatchOptions())
    # On a busy machine these would lie further apart than the time for which events are merged.
    with process.held():
        for _ in range(50):
            (tmp_path / "a").write_text("x")
        (tmp_path / "gone").write_text("")
        (tmp_path / "gone").unlink()
        os.chmod(tmp_path, 0o700)
        (tmp_path / "end").mkdir()
    assert await until(watch, "end") == [
        ("create", f"{tmp_path}/a"),
        ("attrib", f"{tmp_path}"),
        ("create", f"{tmp_path}/end"),
    ]
    await watch.close()


@pytest.mark.anyio
async def test_our_own_writes_are_one_event(files: RemoteFiles, tmp_path: Path) -> None:
    path = os.fsencode(tmp_path / "f")
    watch = await files.watch(os.fsencode(tmp_path), WatchOptions())
    for mark in ("one", "two"):
        upload = await files.write(path, WriteOptions(mode=0o755))
        await upload.write(b"x")
        await upload.finish()
        (tmp_path / mark).mkdir()
        kind = "create" if mark == "one" else "modify"
        assert await until(watch, mark) == [(kind, f"{tmp_path}/f"), ("create", f"{tmp_path}/{mark}")]
    await watch.close()


@pytest.mark.anyio
async def test_directories_that_come_and_move_are_followed(files: RemoteFiles, tmp_path: Path) -> None:
    watch = await files.watch(os.fsencode(tmp_path), WatchOptions())
    (tmp_path / "a/b/c").mkdir(parents=True)
    (tmp_path / "a/b/c/deep").write_text("")
    found = await until(watch, "deep")
    assert ("create", f"{tmp_path}/a/b/c/deep") in found
    (tmp_path / "a").rename(tmp_path / "z")
    assert await until(watch, "/z") == [("move_from", f"{tmp_path}/a"), ("move_to", f"{tmp_path}/z")]
    await asyncio.sleep(0.1)
    (tmp_path / "z/b/c/deeper").write_text("")
    assert await until(watch, "deeper") == [("create", f"{tmp_path}/z/b/c/deeper")]
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    (tmp_path / "z").rename(outside)
    assert await until(watch, "/z") == [("move_from", f"{tmp_path}/z")]
    (outside / "b/unheard").write_text("")
    (tmp_path / "end").write_text("")
    assert await until(watch, "end") == [("create", f"{tmp_path}/end")]
    await watch.close()


@pytest.mark.anyio
async def test_excludes_and_includes(files: RemoteFiles, tmp_path: Path) -> None:
    (tmp_path / "node_modules/deep").mkdir(parents=True)
    usual = await files.watch(os.fsencode(tmp_path), WatchOptions())
    only = await files.watch(os.fsencode(tmp_path), WatchOptions(include=("*.py", "src/**/end"), exclude=()))
    (tmp_path / "node_modules/deep/x.py").write_text("")
    (tmp_path / "a.txt").write_text("")
    (tmp_path / "src/a/b").mkdir(parents=True)
    (tmp_path / "src/a/b/end").write_text("")
    assert (await until(usual, "end"))[0] == ("create", f"{tmp_path}/a.txt")
    assert await until(only, "end") == [
        ("create", f"{tmp_path}/node_modules/deep/x.py"),
        ("create", f"{tmp_path}/src/a/b/end"),
    ]
    await usual.close()
    await only.close()


@pytest.mark.anyio
async def test_what_is_lost_is_said(files: RemoteFiles, tmp_path: Path) -> None:
    watch = await files.watch(os.fsencode(tmp_path), WatchOptions())
    for number in range(40_000):  # more than the kernel keeps (16,384), in a moment
        os.mknod(tmp_path / str(number))
    (tmp_path / "end").write_text("")
    kinds: set[str] = set()
    async with asyncio.timeout(20):
        async for batch in watch:
            kinds |= {event.kind for event in batch}
            if "overflow" in kinds:
                break
    assert "overflow" in kinds
    (tmp_path / "after").write_text("")
    assert (await until(watch, "after"))[-1] == ("create", f"{tmp_path}/after")
    await watch.close()


@pytest.mark.anyio
async def test_a_watch_ends_with_its_directory(files: RemoteFiles, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    watch = await files.watch(os.fsencode(tmp_path / "d"), WatchOptions())
    (tmp_path / "d").rmdir()
    async with asyncio.timeout(5):
        assert [event async for batch in watch for event in batch] == []
    assert watch.reason == "deleted"
    for path, code in (("none", "FILE_NOT_FOUND"), ("file", "NOT_DIRECTORY")):
        (tmp_path / "file").write_text("")
        with pytest.raises(KennelError) as caught:
            await files.watch(os.fsencode(tmp_path / path), WatchOptions())
        assert caught.value.code == code


@pytest.mark.anyio
async def test_journals_answer_for_a_version(files: RemoteFiles, tmp_path: Path) -> None:
    top, options = os.fsencode(tmp_path), WatchOptions()
    first = await files.changes(top, options, None)
    assert (first.status, first.paths) == ("unchanged", ())
    (tmp_path / "a").write_text("")
    (tmp_path / "b").write_text("")
    second = await files.changes(top, options, first.version)
    assert (second.status, second.paths) == ("changed", (top + b"/a", top + b"/b"))
    assert (await files.changes(top, options, second.version)).status == "unchanged"
    assert (await files.changes(top, options, first.version)).paths == (top + b"/a", top + b"/b")
    for number in range(12_000):
        os.mknod(tmp_path / str(number))
    assert (await files.changes(top, options, first.version)).status == "resync"
    restarted = await files.changes(top, options, "abcdef:3")
    assert (restarted.status, restarted.reason) == ("resync", "restarted")


@pytest.mark.anyio
async def test_watches_leave_nothing_open(files: RemoteFiles, tmp_path: Path, process: GuestProcess) -> None:
    await files.stat(os.fsencode(tmp_path))
    before = process.descriptors()
    for _ in range(30):
        watch = await files.watch(os.fsencode(tmp_path), WatchOptions())
        await watch.close()
    for _ in range(10):
        await files.stat(os.fsencode(tmp_path))
    assert process.descriptors() == before
