"""The address of a preview, and what crosses: tables."""

from __future__ import annotations

import pytest

from kennel.domain.preview import LETTERS, Base, Header, inward, new_token, outward

TOKEN = "abcdefghij234567"
LOCAL = Base.parse("http://*.localhost:8788")
FAR = Base.parse("https://*.show.example.com/")


def test_a_token_has_80_bits_and_is_one_label_with_any_port() -> None:
    made = {new_token() for _ in range(100)}
    assert len(made) == 100
    assert all(len(token) == LETTERS and LETTERS * 5 >= 80 for token in made)
    assert len(f"65535-{new_token()}") <= 63
    assert LOCAL.label_of(f"65535-{min(made)}.localhost".encode()) == (65535, min(made))


def test_an_address_reads_back() -> None:
    assert LOCAL.url(3000, TOKEN) == f"http://3000-{TOKEN}.localhost:8788/"
    assert FAR.url(3000, TOKEN) == f"https://3000-{TOKEN}.show.example.com/"
    for host in (f"3000-{TOKEN}.localhost:8788", f"3000-{TOKEN}.LOCALHOST", f"3000-{TOKEN.upper()}.localhost:1"):
        assert LOCAL.label_of(host.encode()) == (3000, TOKEN)


@pytest.mark.parametrize(
    "host",
    [
        "", "localhost", "localhost:8788", f"3000-{TOKEN}", f"3000-{TOKEN}.", f"3000-{TOKEN}.localhost.",
        f"3000-{TOKEN}.localhost:", f"3000-{TOKEN}.localhost:x", f"3000-{TOKEN}.localhost:123456",
        f"3000-{TOKEN}.localhost:80:80", f"0-{TOKEN}.localhost", f"03-{TOKEN}.localhost", f"65536-{TOKEN}.localhost",
        f"3000-{TOKEN}x.localhost", f"3000-{TOKEN[1:]}.localhost", f"3000-{TOKEN[1:]}1.localhost",
        f"x.3000-{TOKEN}.localhost", f"3000-{TOKEN}.evil.localhost", f"3000-{TOKEN}.localhost.evil",
        f"a@3000-{TOKEN}.localhost", f" 3000-{TOKEN}.localhost", f"3000-{TOKEN}.localhost ", "[::1]:8788",
        f"3000-{TOKEN}.show.example.com", f"３-{TOKEN}.localhost", f"3000-{TOKEN}.localhost:８",
    ],
)  # fmt: skip
def test_what_is_no_address_names_nothing(host: str) -> None:
    assert LOCAL.label_of(host.encode()) is None


@pytest.mark.parametrize(
    "text",
    ["", "localhost", "http://localhost:1", "http://*localhost", "ftp://*.x", "http://*.X", "http://*.a..b", "http://*.x/y",
     "http://*.x:", "http://*.x:1234567", "http://*.x ", "http://*.*.x", "http://*.-x", "//*.x"],
)  # fmt: skip
def test_a_place_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no place for previews"):
        Base.parse(text)


KEY = b"kn_" + b"x" * 43


@pytest.mark.parametrize(
    ("name", "value", "left"),
    [
        (b"accept", b"*/*", b"*/*"),
        (b"authorization", b"Bearer " + KEY, None),
        (b"authorization", b"Basic own", b"Basic own"),
        (b"cookie", b"kennel-session=1", None),
        (b"cookie", b"a=1; Kennel-session-8787=2;b=3", b"a=1; b=3"),
        (b"sec-websocket-protocol", b"kennel.v1, kennel.key." + KEY, None),
        (b"sec-websocket-protocol", b"vite-hmr,kennel.v1", b"vite-hmr"),
        (b"x-kennel-room-link", b"1", None),
        (b"x-forwarded-for", b"1", None),
        (b"forwarded", b"1", None),
        (b"x-real-ip", b"1", None),
        (b"cf-aig-authorization", b"1", None),
    ],
)
def test_what_reaches_a_server(name: bytes, value: bytes, left: bytes | None) -> None:
    assert inward([(name, value)]) == ([] if left is None else [(name, left)])


@pytest.mark.parametrize(
    ("given", "left"),
    [
        ((b"set-cookie", b"kennel-session=1"), None),
        ((b"set-cookie", b" Kennel-x=1; Path=/"), None),
        ((b"set-cookie", b"a=1; Path=/; DOMAIN=localhost; HttpOnly"), (b"set-cookie", b"a=1; Path=/; HttpOnly")),
        ((b"set-cookie", b"domain=own"), (b"set-cookie", b"domain=own")),
        ((b"clear-site-data", b'"*"'), None),
        ((b"x-kennel-preview", b"no"), None),
        ((b"x-own", b"1"), (b"x-own", b"1")),
    ],
)
def test_what_reaches_a_visitor(given: Header, left: Header | None) -> None:
    policy = (b"referrer-policy", b"same-origin")
    assert outward([given]) == [*([left] if left else []), policy]


def test_a_servers_own_word_on_referrers_stands() -> None:
    own = [(b"referrer-policy", b"origin")]
    assert outward(own) == own
