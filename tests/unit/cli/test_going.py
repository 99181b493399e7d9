"""The line that says how far a long snapshot is."""

from __future__ import annotations

import time
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from kennel.cli.going import going, line


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        ({"phase": "packing", "names": 12345, "bytes": 67_800_000}, "packing: 12,345 names, 67.8 MB"),
        ({"phase": "uploading", "bytes": 10_000_000, "total": 2_000_000_000}, "uploading: 10.0 of 2,000.0 MB"),
        ({"phase": "fetching", "bytes": 0}, "fetching: 0.0 MB"),
        ({}, "working: 0.0 MB"),
    ],
)
def test_lines(payload: dict[str, Any], text: str) -> None:
    assert line(payload) == text


def box(*payloads: dict[str, Any]) -> Any:
    """A sandbox whose stream has these events after its seventh."""

    @contextmanager
    def events(*, after: int, types: str) -> Any:
        assert (after, types) == (7, "sandbox/backup-progress")
        yield [SimpleNamespace(payload=payload) for payload in payloads]

    processor = SimpleNamespace(snapshot=lambda: SimpleNamespace(offset=7))
    return SimpleNamespace(processor=processor, stream=SimpleNamespace(events=events))


def test_a_line_on_a_terminal_that_goes_when_it_is_done(capsys: pytest.CaptureFixture[str]) -> None:
    said = ""
    with going(box({"phase": "packing\x1b[2J", "names": 3, "bytes": 0}), shown=True):
        deadline = time.monotonic() + 5
        while "packing" not in said and time.monotonic() < deadline:
            time.sleep(0.01)
            said += capsys.readouterr().err
    assert said == "\r\x1b[Kpacking\\x1b[2J: 3 names, 0.0 MB"
    assert capsys.readouterr().err == "\r\x1b[K"


def test_nothing_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with going(None):  # type: ignore[arg-type]  # it is not even looked at
        pass
    assert capsys.readouterr().err == ""
