"""A whole tree from a tar: exact, and nowhere but below its top."""

from __future__ import annotations

import io
import os
import stat
import tarfile
from pathlib import Path

import pytest

from kennel.guest import exact

Entry = tuple[str, bytes, dict[str, object]]


def tar(*entries: Entry) -> io.BytesIO:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, kind, words in entries:
            row = tarfile.TarInfo(name)
            row.type, body = kind, words.pop("body", b"")
            row.uid, row.gid, row.size = os.getuid(), os.getgid(), len(body)  # type: ignore[arg-type]
            for word, value in words.items():
                setattr(row, word, value)
            archive.addfile(row, io.BytesIO(body))  # type: ignore[arg-type]
    made.seek(0)
    return made


FILE, FOLDER, LINK, SYMBOLIC = tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.LNKTYPE, tarfile.SYMTYPE


def test_modes_times_holes_and_links_are_what_they_were(tmp_path: Path) -> None:
    times = {"mtime": "1000000000.123456789"}
    exact.restore(
        tar(
            (".", FOLDER, {"mode": 0o1777}),
            ("d", FOLDER, {"mode": 0o500, "pax_headers": times}),
            ("d/f", FILE, {"mode": 0o4711, "body": b"text", "pax_headers": {"mtime": "-1.500000000"}}),
            ("d/again", LINK, {"linkname": "d/f"}),
            ("hole", FILE, {"body": bytes(1 << 20) + b"end"}),
            ("away", SYMBOLIC, {"linkname": "/etc/passwd", "pax_headers": times}),
        ),
        str(tmp_path),
    )
    assert stat.S_IMODE(os.stat(tmp_path).st_mode) == 0o1777
    assert (os.stat(tmp_path / "d").st_mtime_ns, stat.S_IMODE(os.stat(tmp_path / "d").st_mode)) == (
        1_000_000_000_123_456_789, 0o500,
    )  # fmt: skip
    info = os.stat(tmp_path / "d/f")
    assert (stat.S_IMODE(info.st_mode), info.st_nlink, info.st_mtime_ns) == (0o4711, 2, -1_500_000_000)
    assert (tmp_path / "hole").read_bytes() == bytes(1 << 20) + b"end"
    assert os.stat(tmp_path / "hole").st_blocks * 512 < 1 << 19
    assert os.lstat(tmp_path / "away").st_mtime_ns == 1_000_000_000_123_456_789


@pytest.mark.parametrize(
    "entries",
    [
        [("../out", FILE, {"body": b"x"})],
        [("a/../../out", FILE, {"body": b"x"})],
        [("link", SYMBOLIC, {"linkname": ".."}), ("link/out", FILE, {"body": b"x"})],
        [("out", SYMBOLIC, {"linkname": "../out"}), ("out", FILE, {"body": b"x"})],
        [("hard", LINK, {"linkname": "../secret"})],
        [("hard", LINK, {"linkname": "nowhere"})],
    ],
)
def test_nothing_lands_outside(tmp_path: Path, entries: list[Entry]) -> None:
    (tmp_path / "secret").write_text("s")
    top = tmp_path / "top"
    top.mkdir()
    with pytest.raises(tarfile.TarError):
        exact.restore(tar(*entries), str(top))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["secret", "top"]
    assert (tmp_path / "secret").stat().st_nlink == 1


def test_an_absolute_name_is_below_the_top_and_a_device_is_left_out(tmp_path: Path) -> None:
    exact.restore(tar(("/kennel-abs", FILE, {"body": b"x"}), ("null", tarfile.CHRTYPE, {})), str(tmp_path))
    assert os.listdir(tmp_path) == ["kennel-abs"]


def test_the_same_tree_again_over_a_half_of_it(tmp_path: Path) -> None:
    for _ in range(2):
        whole = tar(("d", FOLDER, {"mode": 0o755}), ("d/f", FILE, {"body": b"x", "mode": 0o600}),
                    ("d/g", LINK, {"linkname": "d/f"}), ("l", SYMBOLIC, {"linkname": "d"}))  # fmt: skip
        exact.restore(whole, str(tmp_path))
    assert os.stat(tmp_path / "d/f").st_nlink == 2


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("1.5", 1_500_000_000),
        ("12", 12_000_000_000),
        ("-1.250000000", -1_250_000_000),
        ("0.000000001", 1),
        ("", 7_000_000_000),
        ("x", 7_000_000_000),
        ("1e9", 7_000_000_000),
        ("9" * 300, 7_000_000_000),
        ("1.x", 7_000_000_000),
    ],
)
def test_times(text: str, moment: int) -> None:
    assert exact._nanoseconds(text, 7) == moment
