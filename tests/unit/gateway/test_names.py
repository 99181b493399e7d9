"""Synthetic addresses: one name each, kept an hour, never handed out again meanwhile; rates that wait."""

from __future__ import annotations

import ipaddress

from hypothesis import given
from hypothesis import strategies as st

from kennel.gateway.bucket import Bucket
from kennel.gateway.names import KEEP, Names, synthetic


@given(st.lists(st.tuples(st.sampled_from([f"n{i}" for i in range(12)]), st.floats(0, 2000)), max_size=60))
def test_an_address_means_one_name_for_an_hour(asked: list[tuple[str, float]]) -> None:
    names, now, told = Names(8), 0.0, {}
    for name, pause in asked:
        now += pause
        given_address = names.address_of(name, now)
        if given_address is None:
            assert sum(1 for _, when in told.values() if now - when < KEEP) >= 8
            continue
        address, _ = given_address
        for other, (theirs, when) in told.items():
            assert other == name or theirs != address or now - when >= KEEP
        told[name] = (address, now)
        assert names.name_of(address) == name


def test_they_lie_in_their_range() -> None:
    names = Names(70_000)
    rows = [names.address_of(f"n{number}", 0.0) for number in range(65_536)]
    addresses = {row[0] for row in rows if row is not None}
    assert len(addresses) == 65_536
    network = ipaddress.ip_network("198.18.0.0/15")
    assert all(ipaddress.ip_address(a) in network for a in (min(addresses), max(addresses)))
    assert ipaddress.ip_address(min(addresses)) > ipaddress.ip_address("198.18.0.255")


def test_synthetic() -> None:
    assert synthetic("198.19.255.254") == int(ipaddress.ip_address("198.19.255.254"))
    assert synthetic("198.20.0.1") is None
    assert synthetic("::1") is None


@given(st.lists(st.floats(0, 0.2), min_size=1, max_size=200))
def test_never_more_than_burst_and_rate(pauses: list[float]) -> None:
    bucket, now, taken = Bucket(10.0, 5.0, 0.0), 0.0, 0
    for pause in pauses:
        now += pause
        taken += bucket.take(now)
        assert taken <= 5 + 10 * now + 1e-6
        assert bucket.wait() <= 0.1
