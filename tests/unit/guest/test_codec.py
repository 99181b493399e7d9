"""Control payloads: JSON both ways, and only CodecError for anything else, with and without the json package loaded."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kennel.guest import codec
from kennel.guest.codec import CodecError

FLAT = st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(max_size=30)
VALUES = st.dictionaries(st.text(max_size=10), FLAT | st.lists(FLAT, max_size=5) | st.dictionaries(st.text(), FLAT))


@given(VALUES)
@settings(max_examples=100, deadline=None)
def test_what_is_encoded_is_json_and_comes_back(value: dict[str, object]) -> None:
    data = codec.encode(value)
    assert json.loads(data) == value
    assert codec.decode(data) == value


def test_bytes_of_a_name_that_is_not_utf8_survive() -> None:
    name = b"a\xff".decode("utf-8", "surrogateescape")
    assert codec.decode(codec.encode({"cwd": name})) == {"cwd": name}


BAD = [
    b"",
    b"{",
    b'{"a',
    b'{"a":',
    b"[1]",
    b"1",
    b'"x"',
    b"nul",
    b'{"a":1,}',
    b"{1:2}",
    b'{"a":1}x',
    b' {"a":1}',
    b'{"a":NaN}',
    b'{"a":-Infinity}',
    b'{"a":1e999}',
    b'{"a":"\x01"}',
    b'{"a":"\\q"}',
    b'{"a":"\xff"}',
    b'{"a":' + b"9" * 50_000 + b"}",
    b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    b'{"a":' + b'{"a":' * 9 + b"1" + b"}" * 10,
]


@pytest.mark.parametrize("data", BAD, ids=range(len(BAD)))
def test_anything_else_is_a_codec_error(data: bytes) -> None:
    with pytest.raises(CodecError):
        codec.decode(data)


def test_the_same_without_the_json_package(tmp_path: Path) -> None:
    """In the guest nothing has imported json, whose error class the accelerator looks for."""
    script = tmp_path / "script.py"
    source = Path(codec.__file__).parent.parent
    script.write_text(
        f"import sys; sys.path.append({str(source)!r}); from guest import codec\n"
        f"for data in {BAD!r}:\n"
        "    try:\n        codec.decode(data)\n"
        "    except codec.CodecError:\n        continue\n"
        "    raise SystemExit(repr(data[:50]))\n"
        "assert 'json' not in sys.modules\n"
        "assert codec.decode(codec.encode({'a': [1, 'x']})) == {'a': [1, 'x']}\n"
    )
    subprocess.run([sys.executable, "-I", "-S", "-B", str(script)], check=True, timeout=30)


@given(st.binary(max_size=300))
@settings(max_examples=150, deadline=None)
def test_noise_is_a_dictionary_or_a_codec_error(data: bytes) -> None:
    with suppress(CodecError):
        assert isinstance(codec.decode(data), dict)


@pytest.mark.parametrize("value", [{"a": float("nan")}, {"a": b"x"}, {"a": object()}])
def test_what_is_not_json_is_not_sent(value: dict[str, object]) -> None:
    with pytest.raises((CodecError, ValueError)):
        codec.encode(value)
