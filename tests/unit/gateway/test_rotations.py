"""New material that control has not stored yet outlives the gateway, and gives way to what was stored meanwhile."""

from __future__ import annotations

from pathlib import Path

from kennel.gateway.rotations import Rotations
from kennel.wire.egress import Pin, SealedSecret


def sealed(box: str, offset: int = 3, path: str = "/secrets/a") -> SealedSecret:
    return SealedSecret(path, Pin(["https://a.example.com:443"]), offset, "kid", box)


def test_it_counts_until_control_has_it(tmp_path: Path) -> None:
    Rotations(tmp_path).keep("acme", sealed("new"))
    again = Rotations(tmp_path)
    assert [(told.project, told.secret.box) for told in again.all()] == [("acme", "new")]
    assert again.in_force("acme", sealed("old")).box == "new"
    assert again.in_force("other", sealed("old")).box == "old"
    assert again.in_force("acme", sealed("new")).box == "new"
    assert again.all() == Rotations(tmp_path).all() == []


def test_a_secret_stored_meanwhile_wins(tmp_path: Path) -> None:
    kept = Rotations(tmp_path)
    kept.keep("acme", sealed("new"))
    assert kept.in_force("acme", sealed("stored", offset=9)).box == "stored"
    assert kept.all() == []


def test_a_removed_secret_takes_it_along(tmp_path: Path) -> None:
    kept = Rotations(tmp_path)
    kept.keep("acme", sealed("new"))
    kept.keep("acme", sealed("other", path="/secrets/b"))
    kept.drop("acme", "/secrets/a")
    assert [told.secret.path for told in Rotations(tmp_path).all()] == ["/secrets/b"]
    assert {file.stat().st_mode & 0o777 for file in tmp_path.iterdir()} == {0o600}
