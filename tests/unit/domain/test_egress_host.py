"""One spelling for every host, and patterns that match no more than they say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kennel.domain.egress_host import HostPatterns, normal_host, normal_name, parse_authority, written


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Example.COM", "example.com"), ("example.com.", "example.com"), ("a_b.example.com", "a_b.example.com"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"), ("example.com..", None), (".example.com", None),
        ("b\u00fccher.example", None), ("exa mple.com", None), ("-a.example.com", None), ("a-.example.com", None),
        ("1.2.3.4", None), ("1.2.3", None), ("0x7f000001", None), ("2130706433", None), ("example.1", None),
        ("a" * 64 + ".com", None), ("", None), ("a" + ".b" * 130, None), ("ex\u0430mple.com", None),
    ],
)  # fmt: skip
def test_names(text: str, name: str | None) -> None:
    assert normal_name(text) == name


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("example.com", "example.com", None), ("example.com:80", "example.com", 80), ("[::1]:443", "::1", 443),
        ("[2606:4700::0]", "2606:4700::", None), ("1.2.3.4:1", "1.2.3.4", 1),
    ],
)  # fmt: skip
def test_authorities(text: str, host: str, port: int | None) -> None:
    found = parse_authority(text)
    assert found is not None
    assert (found.host, found.port) == (host, port)


@pytest.mark.parametrize(
    "text",
    [
        "", ":80", "a:", "a:0", "a:65536", "a:+1", "a: 1", "u@a", "[::1", "[1.2.3.4]", "::1", "[fe80::1%eth0]", "a/b",
        "a\tb", "a:1:2", "[::1]x", "a?b", "01.02.03.04",
    ],
)  # fmt: skip
def test_what_is_no_authority(text: str) -> None:
    assert parse_authority(text) is None


@given(st.text(max_size=40))
def test_a_normal_host_is_its_own_spelling(text: str) -> None:
    host = normal_host(text)
    if host is not None:
        assert normal_host(host) == host
        again = parse_authority(written(host, 8443, "https"))
        assert again is not None
        assert (again.host, again.port) == (host, 8443)


def test_patterns() -> None:
    patterns = HostPatterns(["a.example.com", "*.b.example.com", "1.2.3.4", "[2606::1]"])
    for host in ("a.example.com", "x.b.example.com", "x.y.b.example.com", "1.2.3.4", "2606::1"):
        assert patterns.accept(host), host
    for host in ("b.example.com", "xb.example.com", "x.a.example.com", "a.example.com.evil.com", "1.2.3.5"):
        assert not patterns.accept(host), host
    anything = HostPatterns(["*"])
    assert anything.accept("x.example.com")
    assert not anything.accept("1.2.3.4")
    for bad in ("", "*.", "a b", "*x.com", "x.*.com", "https://x.com", "x.com:443"):
        with pytest.raises(ValueError):
            HostPatterns([bad])
