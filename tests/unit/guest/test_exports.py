"""What bash says of its exported variables, read back; bash itself is the oracle."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kennel.guest import exports

BASH = shutil.which("bash")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {}),
        ('declare -x A="b"\n', {"A": "b"}),
        ('declare -x A="b\\"\\$\\`\\\\c"\ndeclare -ix N="5"\n', {"A": 'b"$`\\c', "N": "5"}),
        ('declare -x A="two\nlines"\ndeclare -x B=""\n', {"A": "two\nlines", "B": ""}),
        ("declare -x A=$'a\\nb\\t\\'\\\\\\033\\303\\251\\xff'\n", {"A": "a\nb\t'\\\x1bé\udcff"}),
        ('declare -x A\ndeclare -ax L=([0]="x")\ndeclare -x B="1"\n', {"B": "1"}),
        ('declare -x SHLVL="1"\ndeclare -x PWD="/"\ndeclare -x OLDPWD\n', {}),
        ('export A="posix"\n', {"A": "posix"}),
        ('garbage A="1"\ndeclare -x 1A="x"\ndeclare -x A="open', {"A": "open"}),
        ("declare -x A=$'\\", {"A": "\\"}),
        ("declare -x A=$'\\u00e9\\U0001f600\\u\\x\\q'\n", {"A": "é😀\0\0\\q"}),
    ],
)
def test_reading(text: str, found: dict[str, str]) -> None:
    assert exports.parse(text) == found


@given(st.text(max_size=200))
@settings(max_examples=150, deadline=None)
def test_noise_gives_a_dictionary(text: str) -> None:
    assert all(type(value) is str for value in exports.parse("declare -x A=$'" + text).values())
    assert isinstance(exports.parse(text), dict)


@pytest.mark.skipif(BASH is None, reason="no bash here")
@given(st.lists(st.binary(min_size=0, max_size=40).map(lambda raw: raw.replace(b"\0", b"")), min_size=1, max_size=8))
@settings(max_examples=25, deadline=None)
def test_bash_is_understood_whatever_the_values(values: list[bytes]) -> None:
    env = {f"V{number}".encode(): value for number, value in enumerate(values)} | {b"LANG": b"C.UTF-8"}
    said = subprocess.run([str(BASH), "--norc", "-c", "export -p"], env=env, capture_output=True, check=True).stdout  # type: ignore[arg-type]
    got = exports.parse(said.decode("utf-8", "surrogateescape"))
    assert {name.encode(): value.encode("utf-8", "surrogateescape") for name, value in got.items()} == env
