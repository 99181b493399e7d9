"""Copying a sparse image copies its data and keeps its holes."""

from __future__ import annotations

from pathlib import Path

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
