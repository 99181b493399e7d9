"""docs/isolation.md and SECURITY.md say what the code does: limits, capabilities, calls, ids, open advisories."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

from kennel.adapters.oci.confinement import CAPABILITIES
from kennel.adapters.oci.syscalls import ALLOWED, FILTERED, REFUSED
from kennel.domain.advisories import advisories
from kennel.domain.container import ID_RANGE
from kennel.domain.instance_type import GB, INSTANCE_TYPES, MIB

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/isolation.md").read_text()
SECURITY = (ROOT / "SECURITY.md").read_text()


def rows(page: str, heading: str) -> list[list[str]]:
    """The cells of the first table below a heading, without its head."""
    lines = page.split(f"## {heading}\n", 1)[1].splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("|"))
    table = lines[start:]
    end = next((number for number, line in enumerate(table) if not line.startswith("|")), len(table))
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[2:end]]


def size(text: str) -> int:
    number, unit = text.split()
    return int(number) * {"MIB": MIB, "GIB": 1024 * MIB, "GB": GB}[unit.upper()]


def test_the_limits_are_those_of_the_instance_types() -> None:
    table = rows(PAGE, "Limits")
    assert [row[0] for row in table] == list(INSTANCE_TYPES)
    for name, cpu, memory, disk, processes in table:
        kind = INSTANCE_TYPES[name]
        assert int(Fraction(cpu) * 1000) == kind.milli_cpu
        assert (size(memory), size(disk), int(processes.replace(",", ""))) == (kind.memory, kind.disk, kind.pids)


def test_the_capabilities_are_the_ones_held() -> None:
    named = {f"CAP_{word}" for row in rows(PAGE, "Capabilities") for word in row[0].split(", ")}
    assert named == set(CAPABILITIES)


def test_calls_stand_in_the_row_of_their_answer() -> None:
    answers = {"EPERM": REFUSED, "by arguments": FILTERED, "allowed": ALLOWED}
    seen = 0
    for calls, answer, _ in rows(PAGE, "System calls"):
        for name in re.findall(r"\b[a-z_0-9]{4,}\b", calls):
            if name in (*ALLOWED, *REFUSED, *FILTERED) and not (answer == "EPERM" and name in FILTERED):
                assert name in answers[answer], (name, answer)
                seen += 1
            elif answer == "ENOSYS":
                assert name not in (*ALLOWED, *REFUSED, *FILTERED)
    assert seen > 40


def test_the_id_range_is_the_one_in_use() -> None:
    assert f"{ID_RANGE:,}" in PAGE


def test_the_open_advisories_of_debian_12_are_named() -> None:
    found = {advisory.id for advisory in advisories("runc", "runc version 1.1.5+ds1", "1.1.5+ds1-1+deb12u1")}
    assert found == set(re.findall(r"CVE-\d+-\d+", SECURITY))
