"""Files through a real guest: bytes, odd names, atomic writes, trees, whose rights, a loop that stays free."""

from __future__ import annotations

import asyncio
import os
import subprocess
import tarfile
import time
from io import BytesIO
from pathlib import Path

import pytest

from guest_process import GuestProcess
from kennel.domain.command import Command
from kennel.domain.file import SaveOptions, WriteOptions
from kennel.relay.files import RemoteFiles
from kennel.relay.link import GuestLink
from kennel.wire.errors import KennelError
from patience import within

ALL_BYTES = bytes(range(256))
MIB = 1024 * 1024


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def files(guest: GuestLink) -> RemoteFiles:
    return guest.files


@pytest.fixture
def top(tmp_path: Path) -> bytes:
    os.chmod(tmp_path, 0o755)
    return os.fsencode(tmp_path)


async def put(files: RemoteFiles, path: bytes, data: bytes, **options: object) -> bool:
    upload = await files.write(path, WriteOptions(**options))  # type: ignore[arg-type]
    await upload.write(data)
    return (await upload.finish())[1]


async def got(files: RemoteFiles, path: bytes, **options: object) -> bytes:
    download = await files.read(path, **options)  # type: ignore[arg-type]
    return b"".join([piece async for piece in download])


async def names(files: RemoteFiles, path: bytes, **options: object) -> list[bytes]:
    listing = await files.list(path, **options)  # type: ignore[arg-type]
    return [entry.name async for batch in listing for entry in batch]


async def refused(awaitable: object) -> KennelError:
    with pytest.raises(KennelError) as caught:
        await awaitable  # type: ignore[misc]
    return caught.value


@pytest.mark.anyio
async def test_every_byte_in_contents_and_names(files: RemoteFiles, top: bytes) -> None:
    name = bytes(n for n in range(1, 256) if n != ord("/"))
    assert await put(files, top + b"/" + name, ALL_BYTES * 1000)
    assert await got(files, top + b"/" + name) == ALL_BYTES * 1000
    assert await names(files, top) == [name]
    assert (await files.stat(top + b"/" + name)).size == 256_000


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("start", "count", "expected"),
    [(0, None, b"0123456789"), (3, 2, b"34"), (-3, None, b"789"), (-99, 2, b"01"), (9, 9, b"9"), (10, 1, b"")],
)
async def test_ranges(files: RemoteFiles, top: bytes, start: int, count: int | None, expected: bytes) -> None:
    await put(files, top + b"/f", b"0123456789")
    assert await got(files, top + b"/f", start=start, count=count) == expected


@pytest.mark.anyio
async def test_files_of_proc_are_read_to_their_end(files: RemoteFiles) -> None:
    download = await files.read(b"/proc/version")
    assert download.count is None
    assert b"Linux" in b"".join([piece async for piece in download])


@pytest.mark.anyio
async def test_a_write_keeps_mode_and_owner_and_follows_links(files: RemoteFiles, top: bytes) -> None:
    target = top + b"/real"
    Path(os.fsdecode(target)).write_bytes(b"old")
    os.chown(target, 1234, 1235)
    os.chmod(target, 0o640)
    os.symlink("real", top + b"/link")
    os.symlink("nowhere", top + b"/dangling")
    before = os.stat(target).st_ino
    assert not await put(files, top + b"/link", b"new")
    assert await put(files, top + b"/dangling", b"there")
    after = os.stat(target)
    assert (after.st_uid, after.st_gid, after.st_mode & 0o7777) == (1234, 1235, 0o640)
    assert after.st_ino != before
    assert os.path.islink(top + b"/link")
    assert Path(os.fsdecode(top), "nowhere").read_bytes() == b"there"


@pytest.mark.anyio
async def test_what_cannot_be_written(files: RemoteFiles, top: bytes) -> None:
    os.mkfifo(top + b"/fifo")
    os.symlink("loop", top + b"/loop")
    Path(os.fsdecode(top), "file").write_bytes(b"")
    for path, code, name in (
        (b"", "IS_DIRECTORY", "EISDIR"),
        (b"/x/", "IS_DIRECTORY", "EISDIR"),
        (b"/fifo", "FILESYSTEM_ERROR", "ENOTSUP"),
        (b"/loop", "TOO_MANY_LINKS", "ELOOP"),
        (b"/file/below", "NOT_DIRECTORY", "ENOTDIR"),
        (b"/" + b"n" * 256, "NAME_TOO_LONG", "ENAMETOOLONG"),
    ):
        failure = await refused(put(files, top + path, b"x"))
        assert (failure.code, failure.details["errno"], failure.admitted) == (code, name, "no")
    assert (await refused(put(files, top + b"/file", b"", exclusive=True))).code == "FILE_EXISTS"
    assert (await refused(put(files, top + b"/a/b", b"", parents=False))).code == "FILE_NOT_FOUND"
    assert sorted(os.listdir(top)) == [b"fifo", b"file", b"loop"]


@pytest.mark.anyio
async def test_what_cannot_be_read_answers_at_once(files: RemoteFiles, top: bytes) -> None:
    os.mkfifo(top + b"/fifo")
    for path, code in ((b"/fifo", "FILESYSTEM_ERROR"), (b"", "IS_DIRECTORY"), (b"/none", "FILE_NOT_FOUND")):
        async with asyncio.timeout(2):
            assert (await refused(files.read(top + path))).code == code
    assert (await refused(files.read(b"/dev/zero"))).code == "FILESYSTEM_ERROR"


@pytest.mark.anyio
async def test_a_caller_that_leaves_leaves_the_old_file_and_nothing_else(files: RemoteFiles, top: bytes) -> None:
    await put(files, top + b"/f", b"old")
    upload = await files.write(top + b"/f", WriteOptions())
    await upload.write(b"x" * MIB)
    await upload.close()
    for _ in range(100):
        await files.stat(top)
    assert os.listdir(top) == [b"f"]
    assert await got(files, top + b"/f") == b"old"


@pytest.mark.anyio
async def test_writers_of_one_path_never_mix(files: RemoteFiles, top: bytes) -> None:
    texts = [bytes([65 + n]) * 300_000 for n in range(8)]

    async def reader() -> None:
        for _ in range(20):
            assert await got(files, top + b"/f") in texts

    await put(files, top + b"/f", texts[0])
    await asyncio.gather(reader(), *(put(files, top + b"/f", text) for text in texts))
    assert await got(files, top + b"/f") in texts
    assert os.listdir(top) == [b"f"]


@pytest.mark.anyio
async def test_a_full_disk_keeps_the_old_file(files: RemoteFiles, top: bytes, process: GuestProcess) -> None:
    inside = ["nsenter", "-t", str(process.pid), "-m"]
    subprocess.run([*inside, "mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", os.fsdecode(top)], check=True)
    try:
        await put(files, top + b"/f", b"old" * 1000)
        failure = await refused(put(files, top + b"/f", b"x" * 8 * MIB))
        assert (failure.code, failure.details["errno"], failure.admitted) == ("NO_SPACE", "ENOSPC", "yes")
        assert await got(files, top + b"/f") == b"old" * 1000
        assert await names(files, top, hidden=True) == [b"f"]
    finally:
        subprocess.run([*inside, "umount", os.fsdecode(top)], check=True)


@pytest.mark.anyio
async def test_a_users_rights_count(files: RemoteFiles, process: GuestProcess) -> None:
    os.chmod(process.folder, 0o755)  # pytest's own folders are closed to others
    top = os.fsencode(process.folder) + b"/rights"
    await put(files, top + b"/secret", b"s", mode=0o600)
    os.mkdir(top + b"/open")
    os.chmod(top + b"/open", 0o777)
    assert (await refused(got(files, top + b"/secret", user="65534"))).code == "PERMISSION_DENIED"
    assert (await refused(put(files, top + b"/new", b"", user="65534"))).code == "PERMISSION_DENIED"
    await put(files, top + b"/open/new", b"n", user="65534:65534")
    found = os.stat(top + b"/open/new")
    assert (found.st_uid, found.st_gid) == (65534, 65534)
    assert await got(files, top + b"/secret") == b"s"  # the guest's own rights are back
    assert (await refused(files.stat(top, user="no such user"))).code == "INVALID_USER"


@pytest.mark.anyio
async def test_listings(files: RemoteFiles, top: bytes) -> None:
    for path in (b"a/b/c", b".hidden/x", b"z", b"a/.secret"):
        await put(files, top + b"/" + path, b"")
    os.symlink("a", top + b"/to-a")
    assert sorted(await names(files, top)) == [b"a", b"to-a", b"z"]
    assert sorted(await names(files, top, recursive=True)) == [b"a", b"a/b", b"a/b/c", b"to-a", b"z"]
    everything = [b".hidden", b".hidden/x", b"a", b"a/.secret", b"a/b", b"a/b/c", b"to-a", b"z"]
    assert sorted(await names(files, top, recursive=True, hidden=True)) == everything
    for limit in range(1, 10):
        found: list[bytes] = []
        more = True
        while more:
            listing = await files.list(
                top, recursive=True, hidden=True, limit=limit, after=found[-1] if found else None
            )
            page = [entry.name async for batch in listing for entry in batch]
            assert len(page) <= limit
            found, more = found + page, listing.more
        assert found == everything


@pytest.mark.anyio
async def test_trees_are_copied_moved_and_removed(files: RemoteFiles, top: bytes) -> None:
    await put(files, top + b"/t/a/x", ALL_BYTES, mode=0o750)
    os.symlink("/etc/passwd", top + b"/t/link")
    os.mkfifo(top + b"/t/fifo")
    assert (await refused(files.change("copy", top + b"/t", {"to": top + b"/u"}))).code == "IS_DIRECTORY"
    inside = await refused(files.change("copy", top + b"/t", {"to": top + b"/t/a/t", "recursive": True}))
    assert inside.code == "INVALID_PATH"
    place, facts = await files.change("copy", top + b"/t", {"to": top + b"/u", "recursive": True})
    assert (place, facts is not None and facts.type) == (top + b"/u", "directory")
    assert os.readlink(top + b"/u/link") == b"/etc/passwd"
    assert os.stat(top + b"/u/a/x").st_mode & 0o7777 == 0o750
    place, _ = await files.change("move", top + b"/t", {"to": b"/dev/shm", "into": True})
    assert place == b"/dev/shm/t"
    assert not os.path.exists(top + b"/t")
    assert await got(files, b"/dev/shm/t/a/x") == ALL_BYTES
    await files.change("delete", b"/dev/shm/t", {"recursive": True})
    assert (await refused(files.change("delete", top + b"/u", {}))).code == "IS_DIRECTORY"
    await files.change("delete", top + b"/u", {"recursive": True})
    assert os.listdir(top) == []
    assert os.path.exists("/etc/passwd")


@pytest.mark.anyio
async def test_a_tree_deeper_than_a_path_can_say_is_removed_or_refused(
    files: RemoteFiles, guest: GuestLink, top: bytes
) -> None:
    deep = "import os\nfor _ in range(%d):\n os.mkdir('d' * 200); os.chdir('d' * 200)"
    for depth in (100, 600):
        os.mkdir(top + b"/deep")
        await guest.exec(Command(argv=("python3", "-c", deep % depth), cwd=os.fsdecode(top + b"/deep")))
        if depth == 100:
            assert len(await names(files, top, recursive=True)) == 101
            await files.change("delete", top + b"/deep", {"recursive": True})
        else:
            failure = await refused(files.change("delete", top + b"/deep", {"recursive": True}))
            assert failure.code == "PATH_TOO_LONG"
            await guest.exec(Command(argv=("rm", "-rf", "deep"), cwd=os.fsdecode(top)))
    assert os.listdir(top) == []


@pytest.mark.anyio
async def test_archives_both_ways(files: RemoteFiles, top: bytes) -> None:
    await put(files, top + b"/t/a\xff\nb/x", ALL_BYTES * 1000)
    os.symlink("/etc/passwd", top + b"/t/link")
    pack = await files.pack(top + b"/t")
    data = b"".join([piece async for piece in pack])
    unpack = await files.unpack(top + b"/u")
    for at in range(0, len(data), 70_000):
        await unpack.write(data[at : at + 70_000])
    await unpack.finish()
    assert await got(files, top + b"/u/a\xff\nb/x") == ALL_BYTES * 1000
    assert os.readlink(top + b"/u/link") == b"/etc/passwd"
    assert (await refused(anext(aiter(await files.pack(top + b"/none"))))).code == "FILE_NOT_FOUND"


@pytest.mark.anyio
@pytest.mark.parametrize("end", ["nobody wants it", "who sent it is gone"])
async def test_a_directory_that_does_not_come_back_leaves_no_trace(
    files: RemoteFiles, guest: GuestLink, top: bytes, end: str
) -> None:
    await put(files, top + b"/saved/big", ALL_BYTES * 4000)
    await put(files, top + b"/t/one", b"two")
    data = b"".join([piece async for piece in await files.save(top + b"/saved", SaveOptions((), 1 << 30, 1000), b"")])
    restore = await files.restore(top + b"/t")
    await restore.write(data[: len(data) // 2])
    async with asyncio.timeout(within(10)):
        while len(os.listdir(top + b"/t")) == 1:
            await asyncio.sleep(0.01)
        await restore.close() if end == "nobody wants it" else await guest.close()
        while os.listdir(top + b"/t") != [b"one"]:
            await asyncio.sleep(0.01)


@pytest.mark.anyio
async def test_an_archive_cannot_leave_its_directory(files: RemoteFiles, top: bytes) -> None:
    hostile = BytesIO()
    with tarfile.open(fileobj=hostile, mode="w") as tar:
        entry = tarfile.TarInfo("../escaped")
        entry.size = 1
        tar.addfile(entry, BytesIO(b"x"))
    unpack = await files.unpack(top + b"/u")

    async def send() -> None:
        await unpack.write(hostile.getvalue())
        await unpack.finish()

    assert (await refused(send())).code == "VALIDATION_FAILED"
    assert not os.path.exists(top + b"/escaped")


@pytest.mark.anyio
async def test_commands_go_on_beside_a_transfer(
    files: RemoteFiles, guest: GuestLink, top: bytes, process: GuestProcess
) -> None:
    async def spell(work: object) -> list[float]:
        """How long commands take while `work` is done."""
        task = asyncio.ensure_future(work)  # type: ignore[arg-type]
        times = []
        while not task.done():
            began = time.perf_counter()
            await guest.exec(Command(argv=("true",), cwd="/"))
            times.append(time.perf_counter() - began)
        await task
        return sorted(times)

    async def upload() -> None:
        upload = await files.write(top + b"/big", WriteOptions())
        for _ in range(128):
            await upload.write(bytes(MIB))
        await upload.finish()

    async def download() -> None:
        count = 0
        async for piece in await files.read(top + b"/big"):
            count += len(piece)
        assert count == 128 * MIB

    before = process.memory()
    for work in (upload(), download()):
        times = await spell(work)
        assert times[len(times) // 2] < within(0.1), times
    assert process.memory() - before < 16 * MIB


@pytest.mark.anyio
async def test_a_slow_reader_presses_back(files: RemoteFiles, top: bytes, process: GuestProcess) -> None:
    await put(files, top + b"/big", bytes(16 * MIB))
    before = process.memory()
    downloads = [await files.read(top + b"/big") for _ in range(8)]
    await asyncio.sleep(0.2)
    assert process.memory() - before < 16 * MIB
    for download in downloads:
        await download.close()
    assert await got(files, top + b"/big", count=10) == bytes(10)


@pytest.mark.anyio
async def test_a_guest_that_dies_ends_transfers_with_what_is_known(tmp_path: Path) -> None:
    process = GuestProcess()
    try:
        link = await process.connect()
        path = os.fsencode(tmp_path) + b"/f"
        await put(link.files, path, bytes(8 * MIB))
        download = await link.files.read(path)
        upload = await link.files.write(path, WriteOptions())
        await upload.write(b"x")
        await link.files.stat(path)
        process.kill()

        async def drain() -> None:
            async for _ in download:
                await asyncio.sleep(0)

        for work in (drain(), upload.finish()):
            async with asyncio.timeout(1):
                failure = await refused(work)
            assert (failure.code, failure.admitted) == ("SANDBOX_LOST", "yes")
        assert os.listdir(tmp_path) == ["f"]
        assert os.path.getsize(path) == 8 * MIB
    finally:
        process.close()


@pytest.mark.anyio
async def test_nothing_is_left_open(files: RemoteFiles, top: bytes, process: GuestProcess) -> None:
    await put(files, top + b"/f", bytes(MIB))
    await files.stat(top)
    before = process.descriptors()
    for _ in range(50):
        download = await files.read(top + b"/f")
        await download.close()
        upload = await files.write(top + b"/g", WriteOptions())
        await upload.write(b"x")
        await upload.close()
        listing = await files.list(top, recursive=True)
        await listing.close()
    for _ in range(20):
        await files.stat(top)
    assert process.descriptors() == before
