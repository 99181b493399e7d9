"""Copying a sparse image copies its data and keeps its holes."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from kennel.node import disk


def test_data_and_holes(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    with open(source, "wb") as stream:
        stream.truncate(64 << 20)
        for offset, data in ((0, b"start"), (10 << 20, b"m" * 300_000), ((64 << 20) - 3, b"end")):
            stream.seek(offset)
            stream.write(data)
    disk.copy_sparse(source, target)
    assert source.read_bytes() == target.read_bytes()
    assert target.stat().st_blocks * 512 < 2 << 20


def test_nothing_but_a_hole(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    with open(source, "wb") as stream:
        stream.truncate(1 << 30)
    disk.copy_sparse(source, target)
    assert target.stat().st_size == 1 << 30
    assert target.stat().st_blocks == 0


def test_many_who_want_an_empty_disk_at_once_get_one_that_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[list[str]] = []

    def mkfs(words: list[str], **_: object) -> None:
        made.append(words)
        time.sleep(0.05)
        Path(words[-1]).write_bytes(b"file system")

    monkeypatch.setattr(disk.subprocess, "run", mkfs)
    (tmp_path / ".4096.new").write_bytes(b"cut off")
    found: list[bytes] = []
    threads = [
        threading.Thread(target=lambda: found.append(disk.golden(tmp_path, 4096).read_bytes())) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (found, len(made)) == ([b"file system"] * 8, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["4096.ext4"]
