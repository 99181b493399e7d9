"""Records: whole or not at all, ranges never shared."""

from __future__ import annotations

from pathlib import Path

import pytest

from kennel.domain.container import ID_RANGE
from kennel.node.record import ID_FLOOR, Records
from kennel.wire.errors import KennelError


def test_ranges_do_not_overlap_and_a_freed_one_is_used_again(tmp_path: Path) -> None:
    records = Records(tmp_path)
    made = [records.add(f"sandbox{n}", "basic", "sha256:0", "container") for n in range(3)]
    assert [record.id_base for record in made] == [ID_FLOOR + n * ID_RANGE for n in range(3)]
    records.forget("sandbox1")
    assert records.add("sandbox9", "basic", "sha256:0", "container").slot == 1


def test_a_new_process_reads_what_the_old_one_wrote_and_passes_over_half_made_folders(tmp_path: Path) -> None:
    Records(tmp_path).add("sandbox0", "lite", "sha256:0", "container")
    (tmp_path / "sandbox1").mkdir()
    (tmp_path / "sandbox1/.record.new").write_text("{")
    again = Records(tmp_path)
    assert [record.sandbox for record in again.all()] == ["sandbox0"]
    assert again.add("sandbox2", "basic", "sha256:0", "container").slot == 1


def test_the_same_words_again_are_the_same_record_and_others_are_refused(tmp_path: Path) -> None:
    records = Records(tmp_path)
    first = records.add("sandbox0", "basic", "sha256:0", "container")
    assert records.add("sandbox0", "basic", "sha256:0", "container") is first
    with pytest.raises(KennelError) as caught:
        records.add("sandbox0", "lite", "sha256:0", "container")
    assert caught.value.code == "SANDBOX_BUILD_FAILED"


def test_a_creation_cut_off_before_its_record_goes_on(tmp_path: Path) -> None:
    (tmp_path / "sandbox0").mkdir()
    assert Records(tmp_path).add("sandbox0", "basic", "sha256:0", "container").slot == 0


def test_a_broken_record_keeps_no_other_from_being_read(tmp_path: Path) -> None:
    for name in ("sandbox0", "sandbox1"):
        Records(tmp_path).add(name, "basic", "sha256:0", "container")
    (tmp_path / "sandbox0/record.json").write_bytes(b"")
    assert [record.sandbox for record in Records(tmp_path).all()] == ["sandbox1"]
