"""Languages, ids and results of code contexts."""

from __future__ import annotations

from typing import Any

import pytest

from kennel.domain.code import check_run, language_of, prefix_of, result_body
from kennel.wire.errors import KennelError

RUNTIME = "0123456789abcdef"
ID = f"{prefix_of(RUNTIME)}0a0b0c0d0e0f"


@pytest.mark.parametrize(
    ("word", "language"),
    [("python", "python"), ("python3", "python"), ("js", "javascript"), ("node", "javascript"), ("ts", "typescript")],
)
def test_a_language_has_these_names(word: str, language: str) -> None:
    assert language_of(word) == language


@pytest.mark.parametrize("word", ["", "Python", "ruby", "x" * 1000])
def test_other_languages_are_refused(word: str) -> None:
    with pytest.raises(KennelError) as refused:
        language_of(word)
    assert refused.value.code == "VALIDATION_FAILED"


@pytest.mark.parametrize(
    ("context", "runtime", "code"),
    [
        (ID, RUNTIME, None),
        (ID, None, "CONTEXT_TERMINATED"),
        (ID, "f" * 16, "CONTEXT_TERMINATED"),
        ("c-01234567-short", RUNTIME, "CONTEXT_NOT_FOUND"),
        ("", None, "CONTEXT_NOT_FOUND"),
        (ID + "\n", RUNTIME, "CONTEXT_NOT_FOUND"),
    ],
)
def test_an_id_names_its_run_of_the_sandbox(context: str, runtime: str | None, code: str | None) -> None:
    found = None
    try:
        check_run(context, runtime)
    except KennelError as failure:
        found = failure.code
    assert found == code


@pytest.mark.parametrize(
    ("data", "body"),
    [
        ({"text/plain": "1", "image/png": "aa"}, {"text": "1", "png": "aa"}),
        ({"application/json": None}, {"json": None}),
        ({"text/plain": 5}, {"data": {"text/plain": 5}}),
        ({"application/vnd.plotly.v1+json": {"a": 1}}, {"chart": {"type": "plotly", "spec": {"a": 1}}}),
        ({"application/vnd.vegalite.v5+json": {"a": 1}}, {"chart": {"type": "vegalite", "spec": {"a": 1}}}),
        ({"application/vnd.kennel.chart+json": {"type": "line"}}, {"chart": {"type": "line"}}),
        ({"application/vnd.plotly.v1+json": "x"}, {"data": {"application/vnd.plotly.v1+json": "x"}}),
        ({"application/x-own": [1]}, {"data": {"application/x-own": [1]}}),
    ],
)
def test_formats_have_short_names(data: dict[str, Any], body: dict[str, Any]) -> None:
    assert result_body(data) == body
