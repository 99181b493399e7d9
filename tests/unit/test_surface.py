"""docs/surface.md is true: what it names exists, no row is empty, no report is missing."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/surface.md").read_text()
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
REASONS = ("not offered: ", "not offered yet: ")
ONE_PEERS = (
    "1 2 3 5 7 8 9 10 12 13 14 15 16 18 19 20 21 23 24 25 26 28 30 31 32 33 35 36 38 40 41 42 43 44 46 47 48 50 51 52 "
    "54 55 56 58 59 60 61 61b 62 63 65 66 67 68 69 71 72 74 76 77 78 79 81 82 83 84 87 88 89 90 91 94 95 97 98 99"
)
FIELD = (
    "1 2 4 6 7 8 10 11 12 13 15 16 18 19 21 23 24 25 26 27 28 29 30 32 33 34 35 36 37 38 39 40 41 43 44 46 48 49 51 52 "
    "53 55 56 57 59 60 61 63"
)


def rows(heading: str) -> list[list[str]]:
    """The cells of a section's table."""
    part = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in part.splitlines() if line.startswith("| ")][2:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def functions_in(path: Path) -> set[str]:
    return {
        node.name
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def test_every_test_it_names_exists() -> None:
    found = NAMED.findall(PAGE)
    assert len(found) > 150
    assert PAGE.count("`tests/") == len(found) + 1, "a name that cannot be read, beside that of the test itself"
    missing = []
    for file, name in sorted(set(found)):
        path = ROOT / file
        if not path.is_file() or name not in functions_in(path):
            missing.append(f"{file}::{name}")
    assert not missing


@pytest.mark.parametrize("heading", ["Peers' suites", "Reports about one peer", "Reports from the field"])
def test_every_row_names_a_test_or_a_reason(heading: str) -> None:
    for row in rows(heading):
        assert NAMED.search(row[-1]) or row[-1].startswith(REASONS), row
        assert len(row) == (2 if heading == "Peers' suites" else 3), row


@pytest.mark.parametrize(
    ("heading", "numbers"), [("Reports about one peer", ONE_PEERS), ("Reports from the field", FIELD)]
)
def test_no_report_is_missing_or_there_twice(heading: str, numbers: str) -> None:
    told = [number for row in rows(heading) for number in row[0].split(", ")]
    assert sorted(told) == sorted(numbers.split())


def test_what_is_not_built_yet_is_listed_at_the_end() -> None:
    assert ("not offered yet: " in PAGE) == ("## Not built yet" in PAGE)
