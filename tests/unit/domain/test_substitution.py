"""Values in their places, and nothing changed around them."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote, unquote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kennel.domain.denial import Refused
from kennel.domain.placeholder import Reference
from kennel.domain.substitution import check_template, fill_body, fill_headers, fill_target, survey, survey_body

REFERENCE = 'getSecret("/secrets/x")'
VALUE = "v/a l+u&e=\u00e9%"


def value(reference: Reference) -> str:
    assert reference == Reference("/secrets/x")
    return VALUE


def test_headers_and_text_around_them() -> None:
    headers = [(b"x-a", f"pre {REFERENCE} {REFERENCE} post".encode()), (b"x-b", b"\xff plain"), (b"accept", b"*/*")]
    found = survey(headers, "/", None)
    assert found.places == ["header x-a"]
    assert fill_headers(found, headers, value) == [
        (b"x-a", f"pre {VALUE} {VALUE} post".encode()), (b"x-b", b"\xff plain"), (b"accept", b"*/*"),
    ]  # fmt: skip


def test_basic_is_opened_only_when_it_holds_one() -> None:
    untouched = (b"authorization", b"basic " + base64.b64encode(b"a:b"))
    assert survey([untouched], "/", None).references == []
    pair = (b"authorization", b"basic " + base64.b64encode(f"u\u00e9:{REFERENCE}".encode()))
    found = survey([pair], "/", None)
    assert found.places == ["basic"]
    [(_, filled)] = fill_headers(found, [pair], value)
    assert base64.b64decode(filled.split()[1]).decode() == f"u\u00e9:{VALUE}"


@pytest.mark.parametrize(
    "spell", [lambda t: quote(t, safe=""), lambda t: quote(t, safe="/()"), lambda t: t.replace('"', "%22")]
)
def test_paths_and_query_values(spell) -> None:  # type: ignore[no-untyped-def]
    path, query = f"/a%2Fb/{spell(REFERENCE)}/c", f"q=%20a&k={spell(REFERENCE)}&k2=+&flag&e="
    found = survey([], path, query)
    assert (found.in_path, found.in_query) == (True, True)
    filled, asked = fill_target(found, path, query, value)
    encoded = quote(VALUE, safe="")
    assert filled == f"/a%2Fb/{encoded}/c"
    assert asked == f"q=%20a&k={encoded}&k2=+&flag&e="


@pytest.mark.parametrize(
    "query", [quote(REFERENCE) + "=a", quote(REFERENCE), "a&" + quote(REFERENCE, safe="()") + "=1"]
)
def test_query_names(query: str) -> None:
    with pytest.raises(Refused) as caught:
        survey([], "/", query)
    assert caught.value.code == "secret_reference_outside_url_path"


def test_output_is_not_read_again() -> None:
    headers = [(b"x-a", REFERENCE.encode())]
    found = survey(headers, "/", None)
    assert fill_headers(found, headers, lambda _: 'getSecret("/secrets/y")') == [(b"x-a", b'getSecret("/secrets/y")')]


def test_values_that_do_not_fit() -> None:
    headers = [(b"x-a", REFERENCE.encode())]
    found = survey(headers, f"/{quote(REFERENCE)}", None)
    for bad in ("a\rb", "a\nb", "a\0b"):
        with pytest.raises(Refused):
            fill_headers(found, headers, lambda _, bad=bad: bad)
        with pytest.raises(Refused):
            fill_target(found, f"/{quote(REFERENCE)}", None, lambda _, bad=bad: bad)


def test_json_bodies() -> None:
    found = survey([], "/", None)
    tree = survey_body(
        found, json.dumps({"a": REFERENCE, REFERENCE: 1, "b": [f" {REFERENCE}", {"c": REFERENCE}]}).encode()
    )
    assert json.loads(fill_body(tree, value)) == {"a": VALUE, REFERENCE: 1, "b": [f" {REFERENCE}", {"c": VALUE}]}
    with pytest.raises(Refused) as caught:
        check_template([(b"x-kennel-secret-template", b"json"), (b"content-type", b"text/json")], None)
    assert caught.value.code == "secret_json_template_invalid_content_type"
    check_template([(b"x-kennel-secret-template", b"json"), (b"content-type", b"application/vnd.api+json; x=1")], 5)


printable = st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF, exclude_characters="\x7f"), max_size=40)


@given(printable, printable, printable.filter(bool))
def test_query_values_come_back_whole(before: str, after: str, secret: str) -> None:
    query = f"k={quote(before)}{quote(REFERENCE)}{quote(after)}&z={quote(after)}"
    found = survey([], "/", query)
    _, filled = fill_target(found, "/", query, lambda _: secret)
    assert filled is not None
    assert unquote_plus(filled.split("&")[0][2:]) == before + secret + after
    assert filled.split("&")[1] == f"z={quote(after)}"


@given(
    st.lists(st.tuples(st.sampled_from([b"x-a", b"authorization", b"cookie"]), st.binary(max_size=60)), max_size=6),
    st.text(st.characters(codec="ascii"), max_size=60),
)
def test_any_head_is_surveyed_or_refused(headers: list[tuple[bytes, bytes]], text: str) -> None:
    try:
        found = survey(headers, "/" + text, text)
    except Refused:
        return
    if not found.references:
        assert fill_headers(found, headers, value) == headers
        assert fill_target(found, "/" + text, text, value) == ("/" + text, text)
