"""docs/attacks.md is true: every attack has a row, every row a test of its number, every numbered test a row."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/attacks.md").read_text()
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
ROW = re.compile(r"^\| (\d+) \| (.+) \| (.+) \|$", re.MULTILINE)
ATTACKS = range(1, 69)


def numbers(name: str) -> range:
    """The attacks that a test says it makes: `test_7_…`, or `test_25_to_39_…`."""
    found = re.match(r"test_(\d+)_(?:to_(\d+)_)?", name)
    return range(int(found[1]), int(found[2] or found[1]) + 1) if found else range(0)


def functions_in(path: Path) -> set[str]:
    return {node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)}


def test_every_attack_has_one_row_in_order() -> None:
    assert [int(row[0]) for row in ROW.findall(PAGE)] == list(ATTACKS)


def test_every_row_names_tests_that_exist_and_one_of_its_number() -> None:
    for number, _, held in ROW.findall(PAGE):
        found = NAMED.findall(held)
        assert held == " ".join(f"`{file}::{name}`" for file, name in found), number
        for file, name in found:
            assert name in functions_in(ROOT / file), (number, name)
        assert any(int(number) in numbers(name) for _, name in found), number


def test_every_numbered_test_is_in_a_row_of_its_number() -> None:
    rows = {int(number): held for number, _, held in ROW.findall(PAGE)}
    for path in sorted((ROOT / "tests").glob("*/test_egress_*.py")):
        for name in functions_in(path):
            told = f"`{path.relative_to(ROOT)}::{name}`"
            assert not numbers(name) or any(told in rows[number] for number in numbers(name)), name


def test_tests_of_several_attacks_have_a_case_for_each() -> None:
    """One test for fifteen numbers is only as good as its table."""
    text = (ROOT / "tests/attack/test_egress_smuggling.py").read_text()
    cases = {int(number) for number in re.findall(r'^    "(\d+) [^"]+": b"', text, re.MULTILINE)}
    assert cases == set(numbers("test_25_to_39_x")) - {38}
