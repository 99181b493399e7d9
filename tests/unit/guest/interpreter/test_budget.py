"""One cell says at most so much, and what was left out is counted."""

from __future__ import annotations

import json

from kennel.guest.interpreter import budget
from kennel.guest.interpreter.budget import Budget, encoded, shortened


def text_of(lines: list[bytes]) -> str:
    return "".join(json.loads(line)["text"] for line in lines)


def test_text_is_cut_into_pieces_and_ends_at_its_limit() -> None:
    small = Budget()
    told = "ä" * (3 * budget.PIECE + 1)
    lines = small.text("stdout", told)
    assert (len(lines), text_of(lines), small.dropped) == (4, told, 0)
    full = Budget()
    kept = sum(len(text_of(full.text("stderr", "x" * (1 << 20)))) for _ in range(20))
    assert budget.TEXT - (1 << 20) < kept <= budget.TEXT
    assert kept + full.dropped == 20 << 20


def test_single_characters_are_bounded_by_what_their_lines_cost() -> None:
    one = Budget()
    count = sum(len(one.text("stdout", "x")) for _ in range(budget.TEXT // 32))
    assert count < budget.TEXT // 60
    assert one.dropped > 0


def test_a_result_that_is_too_large_is_named_and_left_out() -> None:
    one = Budget()
    event = {"event": "result", "main": True, "data": {"image/png": "x" * budget.RESULT}, "metadata": {"a": 1}}
    told = json.loads(one.result(event))
    assert (told["data"], told["omitted"], told["metadata"]) == ({}, ["image/png"], {})
    assert one.dropped > budget.RESULT


def test_results_are_bounded_together_and_in_number() -> None:
    large = Budget()
    event = {"event": "result", "main": False, "data": {"text/plain": "y" * (4 << 20)}}
    kept = [json.loads(large.result(event)) for _ in range(10)]
    assert sum(bool(one["data"]) for one in kept) == budget.RESULTS // (4 << 20) - 1
    many = Budget()
    small = {"event": "result", "main": False, "data": {"text/plain": "z"}}
    lines = [many.result(small) for _ in range(budget.MOST_RESULTS + 5)]
    assert [bool(line) for line in lines].count(False) == 5
    assert many.dropped > 0


def test_half_a_character_does_not_stop_a_line() -> None:
    assert json.loads(encoded({"event": "stdout", "text": "a\ud800b"}))["text"] == "a?b"


def test_a_traceback_keeps_its_ends() -> None:
    lines = shortened([str(number) for number in range(100_000)])
    assert (lines[0], lines[-1], len(lines)) == ("0", "99999", budget.TRACEBACK_LINES + 1)
    assert len(shortened(["x" * (10 << 20)])[0]) <= budget.TRACEBACK + 2


def test_what_is_nested_too_deeply_is_left_out_like_what_is_too_large() -> None:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    told = json.loads(Budget().result({"event": "result", "main": True, "data": {"application/json": deep}}))
    assert (told["data"], told["omitted"]) == ({}, ["application/json"])
