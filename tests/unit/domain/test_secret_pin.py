"""Pins compare whole origins; material is read by its named field alone."""

from __future__ import annotations

import pytest

from kennel.domain.denial import Refused
from kennel.domain.placeholder import Reference
from kennel.domain.secret_pin import associated, check_material, normal_pin, parse_origin, require_allowed, value_of
from kennel.wire.egress import Pin
from kennel.wire.errors import KennelError


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("https://API.example.com", "https://api.example.com:443"), ("https://a.example.com/path?q", "https://a.example.com:443"),
        ("http://a.example.com:8080", "http://a.example.com:8080"), ("wss://a.example.com", "https://a.example.com:443"),
        ("https://[2606::1]", "https://[2606::1]:443"), ("https://[2606::1]:8443", "https://[2606::1]:8443"),
    ],
)  # fmt: skip
def test_origins(url: str, origin: str) -> None:
    assert parse_origin(url) == origin
    assert parse_origin(origin) == origin


@pytest.mark.parametrize(
    "url",
    ["", "a.example.com", "ftp://a", "https://u@a.example.com", "https://", "https://*.example.com", "https://a b"],
)
def test_what_is_no_origin(url: str) -> None:
    with pytest.raises(KennelError):
        normal_pin(Pin([url]))


def test_every_part_of_a_pin() -> None:
    pin = normal_pin(Pin(["https://a.example.com"], ["get"], "/v1/", ["X-Token"]))
    here = ("https", "a.example.com", 443)
    require_allowed(pin, "s", here, "GET", "/v1/x", False)
    for place, method, path, ambiguous, code in (
        (("http", "a.example.com", 443), "GET", "/v1/x", False, "secret_not_allowed_for_origin"),
        (("https", "a.example.com", 8443), "GET", "/v1/x", False, "secret_not_allowed_for_origin"),
        (("https", "x.a.example.com", 443), "GET", "/v1/x", False, "secret_not_allowed_for_origin"),
        (here, "POST", "/v1/x", False, "secret_not_allowed_for_request"),
        (here, "GET", "/v2", False, "secret_not_allowed_for_request"),
        (here, "GET", "/v1/x", True, "secret_not_allowed_for_request"),
    ):
        with pytest.raises(Refused) as caught:
            require_allowed(pin, "s", place, method, path, ambiguous)
        assert caught.value.code == code


def test_associated_data_tells_every_part_apart() -> None:
    pin = Pin(["https://a.example.com:443"])
    base = ("p", "/secrets/x", pin, 1, "k")
    rows = [
        base,
        ("q", *base[1:]),
        ("p", "/secrets/y", pin, 1, "k"),
        ("p", "/secrets/x", pin, 2, "k"),
        (*base[:4], "l"),
    ]
    rows.append(("p", "/secrets/x", Pin(["https://b.example.com:443"]), 1, "k"))
    rows.append(("p", "/secrets/x", Pin(pin.origins, ["GET"]), 1, "k"))
    assert len({associated(*row) for row in rows}) == len(rows)


def test_material_and_fields() -> None:
    text = check_material({"a": {"b": "deep"}, "n": 1})
    assert value_of(text, Reference("/secrets/x", "a.b")) == "deep"
    assert value_of(check_material("plain"), Reference("/secrets/x")) == "plain"
    for field, code in (("a.c", "secret_reference_field_not_found"), ("a.b.c", "secret_reference_field_not_found"),
                        ("n", "secret_material_not_a_string"), (None, "secret_material_not_a_string"),
                        ("a", "secret_material_not_a_string")):  # fmt: skip
        with pytest.raises(Refused) as caught:
            value_of(text, Reference("/secrets/x", field))
        assert caught.value.code == code
    for bad in ("", {}, None, 5, ["a"], "x" * 20_000):
        with pytest.raises(KennelError):
            check_material(bad)
