"""The rule of DESIGN 10 (6) as a table."""

from __future__ import annotations

from typing import Any

import pytest

from kennel.domain.capacity import GIB, Limits, Machine, Promised, refusal
from kennel.domain.instance_type import INSTANCE_TYPES

ROOMY = Machine(milli_cpu=2000, memory=24 * GIB, memory_free=20 * GIB, disk=200 * GIB, disk_free=100 * GIB)


def test_an_empty_machine_takes_every_type() -> None:
    assert [refusal(size, ROOMY, Promised(), Limits()) for size in INSTANCE_TYPES.values()] == [None] * 6


@pytest.mark.parametrize(
    ("machine", "promised", "limits", "why"),
    [
        ({"memory_free": 2 * GIB}, {}, {}, "free memory is below the floor"),
        ({"disk_free": 19 * GIB}, {}, {}, "free disk is below the floor"),
        ({"disk": 20 * GIB, "disk_free": 7 * GIB}, {}, {}, "free disk is below the floor"),
        ({}, {"milli_cpu": 31_900}, {}, "CPU is promised beyond the overcommit of 16x"),
        ({}, {"memory": 96 * GIB}, {}, "memory is promised beyond the overcommit of 4x"),
        ({}, {"disk": 1600 * GIB}, {}, "disk is promised beyond the overcommit of 8x"),
        ({}, {"instances": {"basic": 2}}, {"max_instances": {"basic": 2}}, "2 of at most 2 basic"),
    ],
)
def test_each_bound_refuses_with_what_was_asked_and_what_is_free(
    machine: dict[str, Any], promised: dict[str, Any], limits: dict[str, Any], why: str
) -> None:
    there = Machine(**{**{name: getattr(ROOMY, name) for name in ROOMY.__slots__}, **machine})
    refused = refusal(INSTANCE_TYPES["basic"], there, Promised(**promised), Limits(**limits))
    assert refused is not None
    assert (refused.code, refused.status, refused.admitted) == ("NO_CAPACITY", 503, "no")
    assert why in refused.message
    assert refused.details["asked"]["instanceType"] == "basic"
    assert refused.details["free"] == {"memory": there.memory_free, "disk": there.disk_free}


def test_the_last_one_that_fits_is_taken_and_the_next_refused() -> None:
    size = INSTANCE_TYPES["standard-4"]
    fits = int(ROOMY.milli_cpu * 16 / size.milli_cpu)
    assert refusal(size, ROOMY, Promised(milli_cpu=(fits - 1) * size.milli_cpu), Limits()) is None
    assert refusal(size, ROOMY, Promised(milli_cpu=fits * size.milli_cpu), Limits()) is not None
