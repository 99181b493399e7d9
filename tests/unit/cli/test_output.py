"""What may reach a terminal, and what colour depends on."""

from __future__ import annotations

import io
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kennel.cli.output import complain, plain, printable, show_json, show_table


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@given(st.text())
def test_nothing_that_a_terminal_obeys_is_left(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    assert printable(shown) == shown


def test_kept_characters_stay() -> None:
    assert printable("a\tb\n\x07", keep="\n\t") == "a\tb\n\\x07"


def test_colour_is_for_terminals_that_want_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(sys, "stderr", Terminal())
    complain("CODE", "message", "do this")
    assert sys.stderr.getvalue().startswith("\x1b[1;31merror\x1b[0m CODE: message\n")  # type: ignore[attr-defined]
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(sys, "stderr", Terminal())
    complain("CODE", "message")
    assert sys.stderr.getvalue() == "error CODE: message\n"  # type: ignore[attr-defined]


def test_json_of_what_json_cannot_hold(capsys: Any) -> None:
    show_json({"a": object})
    assert capsys.readouterr().out == '{\n  "a": "<class \'object\'>"\n}\n'


def test_cells() -> None:
    shown = {None: "-", "": "-", True: "yes", False: "no", (): "-", ("a", "b"): "a, b", 3: "3"}
    assert {value: plain(value) for value in shown} == shown


def test_a_table_is_aligned_by_what_a_terminal_shows(capsys: Any) -> None:
    show_table(["NAME", "STATUS"], [["a", "running"], ["日本e\u0301", "x\x1b[2J"], ["", "-"]])
    assert capsys.readouterr().out == "NAME   STATUS\na      running\n日本e\u0301  x\\x1b[2J\n       -\n"
    show_table(["NAME"], [])
    assert capsys.readouterr().out == "NAME\n"
