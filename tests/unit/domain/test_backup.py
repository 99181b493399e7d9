"""Which directories may be backed up, and which archives a sandbox has."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from kennel.domain import backup
from kennel.domain.event import Event, Source
from kennel.wire.errors import KennelError


@pytest.mark.parametrize("good", ["/workspace", "/home/a/", "/tmp", "/app/x..y", "/var/tmp/z"])
def test_these_directories_may_be_backed_up(good: str) -> None:
    assert backup.checked_dir(good) == good.rstrip("/")


@pytest.mark.parametrize(
    "bad",
    ["", "/", "home", "/etc", "/workspaces", "/home/../etc", "/home//x", "/home/./x", "/var", "/home/" + "x" * 4096],
)
def test_these_may_not(bad: str) -> None:
    with pytest.raises(KennelError) as caught:
        backup.checked_dir(bad)
    assert (caught.value.code, caught.value.admitted) == ("INVALID_BACKUP_CONFIG", "no")


@pytest.mark.parametrize("bad", ["", "x" * 257, "a\nb", "a\x1bb"])
def test_names_are_short_and_can_be_shown(bad: str) -> None:
    with pytest.raises(KennelError):
        backup.checked_name(bad)
    assert backup.checked_name("ünï 1") == "ünï 1"


def _event(offset: int, type_: str, payload: dict[str, Any], *, platform: bool = True) -> Event:
    return Event(
        offset=offset, type=type_, payload=payload, metadata={}, idempotency_key=None, project="p",
        path="/sandboxes/a", created_at="2026-01-01T00:00:00+00:00", source=Source(platform=platform),
        position=offset, hash="",
    )  # fmt: skip


def test_the_fold_knows_what_was_saved_deleted_and_forged() -> None:
    one = {"backupId": "dk1", "dir": "/home/a", "bytes": 5, "ttlSeconds": 60}
    saved = _event(1, backup.SAVED, one)
    found = backup.fold([saved, _event(2, backup.SAVED, {**one, "backupId": "dk2"}, platform=False)])
    assert list(found) == ["dk1"]
    assert found["dk1"].blob == "backups/dk1"
    assert not found["dk1"].expired(datetime(2026, 1, 1, tzinfo=UTC))
    assert found["dk1"].expired(datetime(2026, 1, 1, 0, 1, tzinfo=UTC))
    assert backup.fold([saved, _event(2, "sandbox/snapshot-deleted", {"backupId": "dk1"})]) == {}
    assert backup.fold([saved, _event(2, "sandbox/destroyed", {})]) == {}
