"""The `<run>` parser: a table of cases, the original's own expression as the oracle, and hostile texts."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kennel.domain.run_tags import BLANKS, parse, trim

PIECES = st.sampled_from(
    ["<run>", "</run>", "<run", "run>", "<RUN>", "ls", " ", "\n", "\ufeff", "é", "</", "<run >", ""]
)
TEXTS = st.lists(PIECES, max_size=30).map("".join)
ORACLE = re.compile(r"<run>([\s\S]*?)</run>")


@pytest.mark.parametrize(
    ("text", "left", "commands"),
    [
        ("", "", ()),
        ("hello", "hello", ()),
        ("I'll do it.\n<run>echo 'Hello World' > hello.txt</run>", "I'll do it.", ("echo 'Hello World' > hello.txt",)),
        ("<run>a</run> and <run>b</run>", "and", ("a", "b")),
        ("<run>  \n a \t</run>", "", ("a",)),
        ("x <run>  </run> y", "x  y", ()),
        ("<run></run>", "", ()),
        ("open <run>ls", "open <run>ls", ()),
        ("closed</run>", "closed</run>", ()),
        ("<run>a</run><run>b", "<run>b", ("a",)),
        ("<run>a<run>b</run>c</run>", "c</run>", ("a<run>b",)),
        ("<run>a\nb\n</run>", "", ("a\nb",)),
        ("<RUN>a</RUN>", "<RUN>a</RUN>", ()),
        ("<run >a</run>", "<run >a</run>", ()),
        ("&lt;run&gt;a&lt;/run&gt;", "&lt;run&gt;a&lt;/run&gt;", ()),
        ("<ru<run>x</run>n>evil</run>", "<run>evil</run>", ("x",)),
    ],
)
def test_cases(text: str, left: str, commands: tuple[str, ...]) -> None:
    assert parse(text) == (left, commands)


@given(TEXTS)
def test_it_agrees_with_the_originals_expression(text: str) -> None:
    tagged = parse(text)
    found = [trim(match) for match in ORACLE.findall(text)]
    assert list(tagged.commands) == [command for command in found if command]
    assert tagged.text == trim(ORACLE.sub("", text))


@given(st.text())
def test_a_text_without_tags_is_only_trimmed(text: str) -> None:
    assert parse(text) == (text.strip(BLANKS), ()) or "<run>" in text


@given(st.lists(st.text(st.characters(exclude_characters="<>")), max_size=20))
def test_every_command_comes_back_in_order(commands: list[str]) -> None:
    text = "".join(f"<run>{command}</run>" for command in commands)
    assert list(parse(text).commands) == [trim(command) for command in commands if trim(command)]


@pytest.mark.parametrize(
    "text",
    ["<run>" * 1_000_000, "</run>" * 800_000, "<run></run>" * 400_000, "<run>" * 500_000 + "</run>", "<" * 5_000_000],
    ids=["open", "closed", "empty", "nested", "angles"],
)
def test_five_megabytes_of_anything_take_a_moment(text: str) -> None:
    began = time.process_time()
    parse(text)
    assert time.process_time() - began < 2.0


def test_ten_thousand_tags() -> None:
    assert len(parse("".join(f"<run>echo {n}</run>" for n in range(10_000))).commands) == 10_000


def test_blanks_are_the_originals() -> None:
    assert trim("\ufeff\u00a0\u2028 x \u3000\n") == "x"
    assert trim("\x1c\x85x") == "\x1c\x85x"
