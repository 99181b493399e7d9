"""The grammar of placeholders: what is one, what only looks like one, and that nothing else is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kennel.domain.denial import Refused
from kennel.domain.placeholder import Reference, check_secret_path, disguised, exact, find, mentions, write


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ('getSecret("/secrets/x")', Reference("/secrets/x")),
        ('getSecret ( "/secrets/a/b-c.d" )', Reference("/secrets/a/b-c.d")),
        ('getSecret("/secrets/x", { field: "a.b" })', Reference("/secrets/x", "a.b")),
        ('getSecret("/secrets/x",{field:"a"})', Reference("/secrets/x", "a")),
        ('getSecret( "/secrets/x" ,\n { field : "a" , } )', Reference("/secrets/x", "a")),
        ('getSecret({ platform: "openai.apiKey" })', Reference(None, None, "openai.apiKey")),
    ],
)
def test_every_form(text: str, reference: Reference) -> None:
    assert exact(text) == reference
    assert [span.reference for span in find(f"Bearer {text}; {text}")] == [reference, reference]


@pytest.mark.parametrize(
    "text",
    [
        "getSecret(", "getSecret()", "getSecret('/secrets/x')", 'getSecret("/secrets/x"',
        'getSecret("/secrets/x", "f")',
        'getSecret({ path: "/secrets/x" })', 'getSecret("/secrets/x", { field: "a", more: "b" })',
        "getSecret(/secrets/x)",
        'getSecret("/secrets/a\\"b")', 'getSecret({ platform: "x", field: "y" })', 'getSecret("")',
        'getSecret("/secrets/x", { field: "" })', 'getSecret("/secrets/x"' + " " * 200 + ")",
    ],
)  # fmt: skip
def test_what_only_begins_like_one(text: str) -> None:
    with pytest.raises(Refused) as caught:
        find(f"a {text} b")
    assert caught.value.code == "secret_reference_malformed"


@pytest.mark.parametrize(
    "path", ["/x", "/secrets/", "/secrets//a", "/secrets/../a", "/secrets/a b", "/secrets/%61", "secrets/a"]
)
def test_paths_that_name_no_secret(path: str) -> None:
    assert check_secret_path(path)
    with pytest.raises(Refused) as caught:
        find(f'getSecret("{path}")')
    assert caught.value.code == "secret_reference_invalid_path"


@pytest.mark.parametrize(
    "text", ["getSecret%28", "getSecret\\u0028", "getSecret&#40;", "getSecret(%22", 'getSecret(\\"', "getSecret(&quot;",
             "%67etSecret"],
)  # fmt: skip
def test_disguises(text: str) -> None:
    assert disguised(text)
    assert mentions(text)


def test_plain_text_is_plain() -> None:
    for text in ("getSecrets", "forgetSecret", "getsecret(x)", "my getSecret function", "secret", ""):
        assert find(text) == []
        assert not disguised(text)


def test_too_many() -> None:
    with pytest.raises(Refused) as caught:
        find('getSecret("/secrets/x")' * 101)
    assert caught.value.code == "secret_reference_too_many"


segments = st.text(
    st.characters(codec="ascii", min_codepoint=33, exclude_characters='"\\?#%/\x7f'), min_size=1, max_size=12
)


@given(segments.filter(lambda s: s not in (".", "..")), st.none() | segments)
def test_what_is_planted_is_found_again(name: str, field: str | None) -> None:
    text = write(f"/secrets/{name}", field)
    assert exact(text) == Reference(f"/secrets/{name}", field)
    assert len(find(f"x{text}y")) == 1


@given(st.text(st.sampled_from('getSecret("/secrets/x"), {}field:platform \\n%28'), max_size=300))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        spans = find(text)
    except Refused:
        return
    for span in spans:
        assert exact(text[span.start : span.end]) == span.reference
