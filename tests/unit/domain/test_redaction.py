"""A value is found in every form, wherever a stream is cut."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kennel.domain.redaction import Redactor, forms

VALUE = 's3cr/et+\u00e9"<x>'


@pytest.mark.parametrize(
    "form",
    [
        VALUE, quote(VALUE, safe=""), quote(VALUE), json.dumps(VALUE)[1:-1],
        json.dumps(VALUE, ensure_ascii=False)[1:-1],
        VALUE.encode().hex(), quote(VALUE, safe="").lower(),
    ],
)  # fmt: skip
def test_forms(form: str) -> None:
    redactor = Redactor(forms(VALUE), b"<hidden>")
    assert redactor.feed(f"a {form} b".encode()) + redactor.end() == b"a <hidden> b"


@pytest.mark.parametrize("shift", [0, 1, 2, 3, 10])
def test_base64_at_every_alignment(shift: int) -> None:
    value = "0123456789abcdef-secret"
    text = base64.b64encode(b"u" * shift + value.encode() + b"tail")
    redactor = Redactor(forms(value), b"#")
    out = redactor.feed(text) + redactor.end()
    assert b"#" in out
    assert len(out) < 20 + shift * 2


def test_the_pair_it_was_sent_in() -> None:
    pair = b"user:" + VALUE.encode()
    redactor = Redactor(forms(VALUE, [pair]), b"#")
    assert redactor.whole(b"got " + base64.b64encode(pair)) == b"got #"


def test_what_cannot_begin_a_form_is_not_kept() -> None:
    redactor = Redactor(forms("secret-value"), b"#")
    assert redactor.feed(b"data: hello\n\n") == b"data: hello\n\n"
    assert redactor.feed(b"data: secr") == b"data: "
    assert redactor.feed(b"et\n\n") == b"secret\n\n"


@given(
    st.text(min_size=1, max_size=20),
    st.binary(max_size=60),
    st.binary(max_size=60),
    st.lists(st.integers(1, 9), max_size=60),
)
def test_no_cut_hides_it(value: str, before: bytes, after: bytes, cuts: list[int]) -> None:
    raw = value.encode("utf-8", "surrogatepass")
    text = before + raw + after
    redactor, out = Redactor(forms(value), b""), b""
    for cut in cuts:
        out += redactor.feed(text[:cut])
        text = text[cut:]
    out += redactor.feed(text) + redactor.end()
    whole = Redactor(forms(value), b"").whole(before + raw + after)
    assert len(out) <= len(before) + len(after)
    assert len(whole) <= len(before) + len(after)
