"""How much a sandbox may write beside the layers it has."""

from __future__ import annotations

import pytest

from kennel.domain import disk_room
from kennel.domain.disk_room import FLOOR
from kennel.domain.instance_type import INSTANCE_TYPES, MIB

GB = 1000**3


@pytest.mark.parametrize(
    ("held", "type_", "fits"),
    [
        (0, "lite", True),
        (2 * GB, "lite", True),
        (2 * GB + 1, "lite", "basic"),
        (9 * GB, "lite", "standard-2"),
        (9 * GB, "standard-1", "standard-2"),
        (20 * GB, "standard-4", True),
        (20 * GB + 1, "standard-4", None),
    ],
)
def test_what_fits_and_what_would(held: int, type_: str, fits: bool | str | None) -> None:
    refused = disk_room.refusal(held, INSTANCE_TYPES[type_])
    if fits is True:
        assert refused is None
        return
    assert refused is not None
    assert (refused.code, refused.status, refused.admitted) == ("DISK_TOO_SMALL", 409, "no")
    assert refused.details == {"held": held, "disk": INSTANCE_TYPES[type_].disk, "instanceType": type_, "fits": fits}
    assert (fits or "no instance type") in (refused.hint or "")


@pytest.mark.parametrize(
    ("held", "room"),
    [
        (0, 950 * MIB),
        (1000, 950 * MIB - 1000),
        (950 * MIB - FLOOR, FLOOR),
        (950 * MIB - 1, 37 * MIB),
        (1000 * MIB, 12 * MIB),
        (1024 * MIB, 0),
    ],
)
def test_a_full_sandbox_keeps_a_little_to_delete_with(held: int, room: int) -> None:
    total, size = 950 * MIB, 1024 * MIB
    assert (total - disk_room.withheld(held, total, size)) // MIB == room // MIB


def test_no_writing_brings_a_sandbox_to_where_it_is_refused() -> None:
    size = INSTANCE_TYPES["lite"]
    total = size.disk - 71 * MIB
    held = 0
    for _ in range(15):
        room = total - disk_room.withheld(held, total, size.disk)
        assert room > 0
        held += room
        assert disk_room.refusal(held, size) is None
    assert disk_room.withheld(1000, 1000, 10) == 1000
