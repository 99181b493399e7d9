"""Owns which addresses the gateway may ever dial: public ones, and private ones that the operator opened by host:port.

Called by the gateway after every real look-up. Invariant: loopback, link-local, metadata, multicast and addresses that
wrap another (v4-mapped, NAT64, 6to4, Teredo) are refused whatever is opened; one bad answer refuses the whole look-up.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass

from kennel.domain.egress_host import Address, normal_host

_PRIVATE = {
    "10.0.0.0/8": "private",
    "100.64.0.0/10": "shared",
    "172.16.0.0/12": "private",
    "192.168.0.0/16": "private",
    "fc00::/7": "private",
}
_NEVER = {
    "0.0.0.0/8": "unspecified",
    "127.0.0.0/8": "loopback",
    "169.254.0.0/16": "link-local or metadata",
    "192.0.0.0/24": "reserved",
    "192.0.2.0/24": "documentation",
    "192.88.99.0/24": "6to4 relay",
    "198.18.0.0/15": "synthetic",
    "198.51.100.0/24": "documentation",
    "203.0.113.0/24": "documentation",
    "224.0.0.0/3": "multicast or reserved",
    "::/96": "unspecified, loopback or v4-compatible",
    "::ffff:0:0/96": "v4-mapped",
    "::ffff:0:0:0/96": "v4-translated",
    "64:ff9b::/96": "NAT64",
    "64:ff9b:1::/48": "NAT64",
    "100::/64": "discard",
    "2001::/23": "protocol assignments and Teredo",
    "2001:db8::/32": "documentation",
    "2002::/16": "6to4",
    "3fff::/20": "documentation",
    "5f00::/16": "segment routing",
    "fd00:ec2::254/128": "metadata",
    "fe80::/10": "link-local",
    "fec0::/10": "site-local",
    "ff00::/8": "multicast",
}
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def _table(ranges: dict[str, str]) -> dict[int, list[tuple[_Network, str]]]:
    rows: dict[int, list[tuple[_Network, str]]] = {4: [], 6: []}
    for text, why in ranges.items():
        network = ipaddress.ip_network(text)
        rows[network.version].append((network, why))
    return rows


_NEVER_ROWS, _PRIVATE_ROWS = _table(_NEVER), _table(_PRIVATE)
# A private range may hold a metadata service of a cloud; these are never opened either.
_METADATA = frozenset(ipaddress.ip_address(a) for a in ("100.100.100.200", "192.0.0.192", "fd00:ec2::254"))


def never(address: Address) -> str | None:
    """Why this address is refused whatever the operator opened, or None."""
    if address in _METADATA:
        return "metadata"
    if getattr(address, "scope_id", None):
        return "scoped"
    return next((why for network, why in _NEVER_ROWS[address.version] if address in network), None)


def private(address: Address) -> str | None:
    """Why this address needs to be opened by the operator, or None."""
    return next((why for network, why in _PRIVATE_ROWS[address.version] if address in network), None)


@dataclass(frozen=True, slots=True)
class Openings:
    """The exact `host:port` pairs in private ranges that the installation's settings open."""

    pairs: frozenset[tuple[str, int]] = frozenset()

    @classmethod
    def parse(cls, texts: Iterable[str]) -> Openings:
        """From `host:port` or `[v6]:port`; ValueError names the one that is neither."""
        pairs = set()
        for text in texts:
            name, _, port = text.strip().rpartition(":")
            host = normal_host(name.strip("[]"))
            if host is None or not port.isdigit() or not 0 < int(port) < 65536:
                raise ValueError(f"{text!r} is not host:port")
            pairs.add((host, int(port)))
        return cls(frozenset(pairs))

    def hold(self, host: str, port: int) -> bool:
        return (host, port) in self.pairs


def refusal(host: str, port: int, addresses: Iterable[Address], openings: Openings) -> str | None:
    """Why these answers for `host` may not be dialled at `port`, or None: every one of them must be good."""
    found = False
    for address in addresses:
        found = True
        why = never(address)
        if why is None and (kind := private(address)) is not None and not openings.hold(host, port):
            why = kind
        if why is not None:
            return f"{host} has the address {address} ({why})"
    return None if found else f"{host} has no address"
