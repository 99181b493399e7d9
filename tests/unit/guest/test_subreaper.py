"""A process that there is no room for now is made when there is."""

from __future__ import annotations

from errno import EAGAIN, ENOENT

import pytest

from kennel.guest import subreaper


def test_a_process_is_made_once_there_is_room() -> None:
    answers: list[int | OSError] = [OSError(EAGAIN, ""), OSError(EAGAIN, ""), 4711]

    def make(word: str) -> int:
        assert word == "sleep"
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    assert subreaper._when_there_is_room(make, "sleep") == 4711
    assert not answers


@pytest.mark.parametrize(("number", "patience", "most"), [(ENOENT, 15.0, 1), (EAGAIN, 0.0, 1), (EAGAIN, 0.05, 4)])
def test_another_failure_and_the_end_of_patience_are_said(
    monkeypatch: pytest.MonkeyPatch, number: int, patience: float, most: int
) -> None:
    calls = 0

    def make() -> int:
        nonlocal calls
        calls += 1
        raise OSError(number, "")

    monkeypatch.setattr(subreaper, "_PATIENCE", patience)
    with pytest.raises(OSError) as failed:
        subreaper._when_there_is_room(make)
    assert failed.value.errno == number
    assert 1 <= calls <= most
