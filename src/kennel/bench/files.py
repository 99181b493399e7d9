"""Owns `kennel bench files`: one large file and many small ones, up and down, beside a bare server and a bare disk.

Called by installation/bench. Invariant: the client is the same for Kennel and for the bare server; every row of large
files moves the same bytes, which are made before its clock runs.
"""

from __future__ import annotations

import io
import os
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import httpcore2

from kennel import Kennel, Sandbox
from kennel.bench import figures
from kennel.bench.bare_server import PIECE, bare_server
from kennel.bench.figures import Report, timed

MIB = 1024 * 1024
SMALL, SMALL_BYTES = 200, 4096
UP, DOWN, WRITE, READ = "bare uvicorn, body in", "bare uvicorn, body out", "plain write", "plain read"
SMALL_UP = "small, plain write"


def measure(itx: Kennel, times: int = 5, *, full: bool = False) -> Report:
    """256 MiB, or 1 GiB when `full`; then small files one after another."""
    size = (1024 if full else 256) * MIB
    report = Report(f"files of {size // MIB} MiB, and of 4 KiB by the {SMALL}, milliseconds")
    _floors(report, size, times)
    box = itx.sandboxes.get(figures.fresh_path("files")).create(instance_type="standard-2")
    try:
        _large(report, "upload", lambda: box.write_file("big", _pieces(size)), size, times, UP, "budget 400 MB/s")
        _large(report, "download", lambda: _count(box, size), size, times, DOWN, "budget 400 MB/s")
        _small(report, box, times)
    finally:
        box.destroy()
    return report


def _pieces(size: int) -> Iterator[bytes]:
    return (PIECE for _ in range(size // len(PIECE)))


def _count(box: Sandbox, size: int) -> None:
    if sum(map(len, box.read_file_stream("big"))) != size:
        raise RuntimeError("the file came short: a figure for it would mean nothing")


def _large(
    report: Report, name: str, work: Callable[[], object], size: int, times: int, floor: str | None, note: str = ""
) -> None:
    row = report.add(name, timed(work, times), floor, note)
    report.facts[f"{name}, MB/s at the median"] = round(size / 1000 / row.median)


def _floors(report: Report, size: int, times: int) -> None:
    with tempfile.TemporaryDirectory(prefix="kennel-floor-", dir="/var/tmp") as folder:
        path = Path(folder, "big")
        _large(report, WRITE, lambda: _write(path, _pieces(size)), size, times, None, "floor: open, write, rename")
        _large(report, READ, lambda: _read(path), size, times, None, "floor: from the page cache")
        report.add(SMALL_UP, timed(lambda: _write_small(Path(folder)), times), note="floor: open, write, rename")
    with bare_server() as url, httpcore2.ConnectionPool(retries=30) as pool:
        _large(report, UP, lambda: pool.request("PUT", url, content=_pieces(size), headers=_length(size)),
               size, times, None, "floor: taken and forgotten")  # fmt: skip
        _large(report, DOWN, lambda: _drain(pool, f"{url}/{size // len(PIECE)}"), size, times, None, "floor")


def _length(size: int) -> dict[bytes | str, bytes | str]:
    return {"content-length": str(size)}


def _drain(pool: httpcore2.ConnectionPool, url: str) -> None:
    with pool.stream("GET", url) as answer:
        for _ in answer.iter_stream():
            continue


def _write(path: Path, pieces: Iterator[bytes]) -> None:
    beside = path.with_suffix(".new")
    with beside.open("wb", buffering=0) as file:
        for piece in pieces:
            file.write(piece)
    beside.rename(path)


def _read(path: Path) -> None:
    with path.open("rb", buffering=0) as file:
        while file.read(len(PIECE)):
            continue


def _write_small(folder: Path) -> None:
    for number in range(SMALL):
        _write(folder / str(number), iter((bytes(SMALL_BYTES),)))


def _small(report: Report, box: Sandbox, times: int) -> None:
    content = os.urandom(SMALL_BYTES)
    many = _archive(content)
    work: dict[str, tuple[Callable[[], object], str | None]] = {
        "small, one by one, up": (lambda: [box.write_file(f"s/{n}", content) for n in range(SMALL)], SMALL_UP),
        "small, one by one, down": (lambda: [box.read_bytes(f"s/{n}") for n in range(SMALL)], None),
        "small, as one archive, up": (lambda: box.extract("s", many), SMALL_UP),
        "small, as one archive, down": (lambda: box.archive("s").read(), None),
    }
    for name, (each, floor) in work.items():
        row = report.add(name, timed(each, times), floor)
        report.facts[f"{name}, files per second"] = round(SMALL * 1000 / row.median)


def _archive(content: bytes) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for number in range(SMALL):
            member = tarfile.TarInfo(str(number))
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return made.getvalue()
