"""The promises of ports/blobs.py, over a folder and over an S3 server (moto's, where `moto_server` can be found)."""

from __future__ import annotations

import asyncio
import os
import resource
import secrets
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import obstore
import pytest

from kennel.adapters.blobs.store import ObjectBlobs, open_blobs
from kennel.wire.errors import KennelError, error
from s3_server import make_s3, s3_options

pytestmark = pytest.mark.anyio
_MANY = 1 << 40


@pytest.fixture(scope="session")
def s3() -> Iterator[str]:
    """The address of an S3 server of the tests' own."""
    yield from make_s3()


@pytest.fixture(params=["folder", "s3"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectBlobs:
    if request.param == "folder":
        return open_blobs(tmp_path / "blobs")
    address = request.getfixturevalue("s3")
    return open_blobs(f"s3://bucket/{secrets.token_hex(4)}", s3_options(address))


def _file(data: bytes) -> int:
    made = os.memfd_create("blob")
    os.write(made, data)
    return made


async def _get(blobs: ObjectBlobs, name: str, limit: int = _MANY) -> bytes:
    target = os.memfd_create("got")
    try:
        size = await blobs.get(name, target, limit)
        data = os.pread(target, size + 1, 0)
        assert len(data) == size
        return data
    finally:
        os.close(target)


@pytest.mark.parametrize("size", [0, 1, 5000, (1 << 20) - 1, 9 << 20, 25 << 20])
async def test_what_was_put_comes_back(blobs: ObjectBlobs, size: int) -> None:
    data = os.urandom(size)
    source = _file(data)
    assert await blobs.put("layers/one", source)
    assert os.lseek(source, 0, os.SEEK_CUR) == size, "the position of a shared descriptor is left alone"
    os.close(source)
    assert await blobs.exists("layers/one")
    assert await _get(blobs, "layers/one") == data


async def test_a_pipe_can_be_put_and_got(blobs: ObjectBlobs) -> None:
    data = os.urandom(3 << 20)
    reading, writing = os.pipe()

    def feed() -> None:
        with open(writing, "wb") as stream:
            stream.write(data)

    feeding = asyncio.create_task(asyncio.to_thread(feed))
    assert await blobs.put("exports/a.tar.zst", reading)
    await feeding
    os.close(reading)
    assert await _get(blobs, "exports/a.tar.zst") == data


async def test_a_blob_is_written_once(blobs: ObjectBlobs) -> None:
    first, second = _file(b"first"), _file(b"second")
    assert await blobs.put("layers/x", first)
    assert not await blobs.put("layers/x", second)
    assert await _get(blobs, "layers/x") == b"first"
    made = await asyncio.gather(*(blobs.put("layers/raced", first) for _ in range(8)))
    assert made.count(True) == 1


async def test_what_is_missing_is_said_to_be(blobs: ObjectBlobs) -> None:
    assert not await blobs.exists("layers/none")
    with pytest.raises(KennelError) as caught:
        await _get(blobs, "layers/none")
    assert (caught.value.code, caught.value.status) == ("BLOB_NOT_FOUND", 404)
    await blobs.delete("layers/none")


async def test_deleted_blobs_are_gone_and_their_names_free(blobs: ObjectBlobs) -> None:
    source = _file(b"x")
    await blobs.put("layers/x", source)
    await blobs.delete("layers/x")
    assert not await blobs.exists("layers/x")
    assert await blobs.put("layers/x", source)


async def test_a_list_has_names_sizes_and_times(blobs: ObjectBlobs) -> None:
    source = _file(b"text" * 1000)
    before = time.time()
    for name in ("layers/a", "layers/b", "exports/c"):
        await blobs.put(name, source)
    found = {row.name: row async for row in blobs.list("layers")}
    assert set(found) == {"layers/a", "layers/b"}
    assert all(0 < row.size < 4000 and abs(row.modified - before) < 60 for row in found.values())
    assert [row async for row in blobs.list("nothing")] == []


@pytest.mark.parametrize("bad", ["", "/a", "a//b", "../a", "a/..", "a/./b", "A", "a b", "a#1", "a" * 201, "a\n"])
async def test_other_names_are_refused(blobs: ObjectBlobs, bad: str) -> None:
    for call in (blobs.put(bad, 0), blobs.get(bad, 1, 1), blobs.exists(bad), blobs.delete(bad)):
        with pytest.raises(KennelError) as caught:
            await call
        assert caught.value.code == "VALIDATION_FAILED"


async def test_damaged_blobs_are_refused(blobs: ObjectBlobs) -> None:
    source = _file(os.urandom(100_000))
    await blobs.put("layers/good", source)
    stored = bytes((await obstore.get_async(blobs._store, "layers/good")).bytes())
    flipped = bytearray(stored)
    flipped[len(stored) // 2] ^= 1
    for number, bad in enumerate((stored[:-1], stored + b"x", stored + stored, bytes(flipped), b"", b"not zstd")):
        await obstore.put_async(blobs._store, f"layers/bad{number}", bad)
        with pytest.raises(KennelError) as caught:
            await _get(blobs, f"layers/bad{number}")
        assert caught.value.code == "BLOB_CORRUPT"


async def test_a_blob_that_unpacks_to_too_much_is_stopped(blobs: ObjectBlobs) -> None:
    source = os.memfd_create("bomb")
    os.truncate(source, 1 << 30)
    await blobs.put("layers/bomb", source)
    target = os.memfd_create("got")
    with pytest.raises(KennelError, match="more than"):
        await blobs.get("layers/bomb", target, 10 << 20)
    assert os.fstat(target).st_size <= 10 << 20


async def test_large_blobs_go_through_in_bounded_memory(blobs: ObjectBlobs) -> None:
    source = os.memfd_create("large")
    for _ in range(20):
        os.write(source, os.urandom(10 << 20))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    await blobs.put("layers/large", source)
    with open("/dev/null", "wb") as sink:
        assert await blobs.get("layers/large", sink.fileno(), _MANY) == 200 << 20
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 96 << 10


async def test_a_source_that_fails_leaves_nothing(blobs: ObjectBlobs, tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with pytest.raises(OSError):
        await blobs.put("layers/x", writing)
    os.close(writing)
    assert not await blobs.exists("layers/x")
    assert [row async for row in blobs.list("layers")] == []


@pytest.mark.parametrize("size", [0, 10, 3 << 20])
async def test_what_passes_through_is_squeezed_and_whole_or_without_its_end(tmp_path: Path, size: int) -> None:
    store, data = open_blobs(tmp_path / "blobs"), os.urandom(size)

    async def arriving(*, cut: bool) -> AsyncIterator[bytes]:
        for at in range(0, size, 65536):
            yield data[at : at + 65536]
        if cut:
            raise error("PACK_FAILED", "cut off")

    frame = [piece async for piece in store.squeezed(arriving(cut=False))]
    assert b"".join([piece async for piece in store.unsqueezed(_each(frame), _MANY)]) == data
    part: list[bytes] = []
    with pytest.raises(KennelError) as caught:
        await _take(store.squeezed(arriving(cut=True)), part)
    assert caught.value.code == "PACK_FAILED"
    with pytest.raises(KennelError) as caught:
        await _take(store.unsqueezed(_each(part), _MANY), [])
    assert caught.value.code == "BLOB_CORRUPT"


async def _each(pieces: list[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


async def _take(pieces: AsyncIterator[bytes], taken: list[bytes]) -> None:
    async for piece in pieces:
        taken.append(piece)


async def test_a_store_that_does_not_answer_is_unavailable() -> None:
    options = {
        "endpoint": "http://127.0.0.1:9", "region": "us-east-1", "access_key_id": "a", "secret_access_key": "b",
        "client_options": {"allow_http": True}, "retry_config": {"max_retries": 0},
    }  # fmt: skip
    gone = open_blobs("s3://bucket", options)
    for call in (gone.put("a", _file(b"x")), gone.get("a", 1, 1), gone.exists("a"), gone.delete("a")):
        with pytest.raises(KennelError) as caught:
            await call
        assert (caught.value.code, caught.value.status) == ("BLOBS_UNAVAILABLE", 503)


async def test_half_written_files_of_a_dead_writer_are_swept(tmp_path: Path) -> None:
    folder = tmp_path / "blobs" / "layers"
    folder.mkdir(parents=True)
    (folder / "abc#1").write_bytes(b"half")
    (folder / "abc").write_bytes(b"whole")
    opened = open_blobs(tmp_path / "blobs")
    assert [path.name for path in folder.iterdir()] == ["abc"]
    assert await opened.exists("layers/abc")


@pytest.mark.root
async def test_a_full_folder_is_said_to_be_full(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root: mounts a small file system")
    folder = tmp_path / "full"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "kennel", str(folder)], check=True)
    try:
        opened = open_blobs(folder / "blobs")
        for size in (3 << 20, 20 << 20):
            source = _file(os.urandom(size))
            with pytest.raises(KennelError) as caught:
                await opened.put("layers/x", source)
            assert caught.value.code == "NO_SPACE"
            assert not await opened.exists("layers/x")
            os.close(source)
    finally:
        subprocess.run(["umount", str(folder)], check=True)
