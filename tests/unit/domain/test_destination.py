"""Which addresses may be dialled: every range, every wrapped form, and what an operator can open."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kennel.domain.destination import Openings, never, private, refusal

NONE = Openings()


@pytest.mark.parametrize(
    "address", ["93.184.216.34", "1.1.1.1", "8.8.8.8", "2606:4700::1111", "2a00:1450::1", "100.128.0.1"]
)
def test_public_addresses_pass(address: str) -> None:
    assert refusal("x.example.com", 443, [ipaddress.ip_address(address)], NONE) is None


@given(st.ip_addresses(v=4))
def test_whatever_python_calls_private_is_refused(address: ipaddress.IPv4Address) -> None:
    if (
        address.is_private
        or address.is_loopback
        or address.is_link_local
        or address.is_multicast
        or address.is_reserved
    ):
        assert never(address) or private(address), address


@given(st.ip_addresses(v=4))
def test_wrapped_addresses_are_never_dialled(address: ipaddress.IPv4Address) -> None:
    low = int(address)
    for prefix in ("::", "::ffff:0:0", "64:ff9b::", "::ffff:0:0:0"):
        assert never(ipaddress.IPv6Address(int(ipaddress.IPv6Address(prefix)) | low))
    assert never(ipaddress.IPv6Address((0x2002 << 112) | (low << 80)))


def test_one_bad_answer_refuses_all() -> None:
    good, bad = ipaddress.ip_address("1.1.1.1"), ipaddress.ip_address("10.0.0.1")
    assert refusal("x.example.com", 443, [good, bad], NONE) == "x.example.com has the address 10.0.0.1 (private)"
    assert refusal("x.example.com", 443, [], NONE) == "x.example.com has no address"


def test_an_opening_is_one_host_and_one_port_in_private_ranges() -> None:
    opened = Openings.parse(["Intern.example.com:8080", "[fd00::1]:443", "10.0.0.9:80"])
    inward = [ipaddress.ip_address("10.0.0.1")]
    assert refusal("intern.example.com", 8080, inward, opened) is None
    assert refusal("10.0.0.9", 80, [ipaddress.ip_address("10.0.0.9")], opened) is None
    assert refusal("fd00::1", 443, [ipaddress.ip_address("fd00::1")], opened) is None
    assert refusal("intern.example.com", 80, inward, opened)
    assert refusal("other.example.com", 8080, inward, opened)
    for address in ("127.0.0.1", "169.254.169.254", "::1", "fe80::1", "100.100.100.200", "fd00:ec2::254"):
        assert refusal("intern.example.com", 8080, [ipaddress.ip_address(address)], opened), address


@pytest.mark.parametrize("text", ["host", "host:", ":80", "host:0", "host:65536", "a b:1", "*.example.com:80"])
def test_openings_that_are_none(text: str) -> None:
    with pytest.raises(ValueError):
        Openings.parse([text])
