"""How much a sandbox may write beside the layers it has."""

from __future__ import annotations

import pytest

from kennel.domain import disk_room
from kennel.domain.instance_type import INSTANCE_TYPES

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
    ("held", "total", "kept"),
    [
        (0, GB, 0),
        (1000, GB, 1000),
        (GB - disk_room.FLOOR, GB, GB - disk_room.FLOOR),
        (GB, GB, GB - disk_room.FLOOR),
        (5 * GB, GB, GB - disk_room.FLOOR),
        (GB, 1000, 0),
    ],
)
def test_a_full_sandbox_keeps_a_little_to_delete_with(held: int, total: int, kept: int) -> None:
    assert disk_room.withheld(held, total) == kept
