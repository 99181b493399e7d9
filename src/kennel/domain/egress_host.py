"""Owns how a host is written: lower-case A-labels without a trailing dot, or a literal address; and host patterns.

Called by policy, the request checks, DNS and pins. Invariant: one host has one spelling; what is not plain
`[a-z0-9_-]` labels is refused, so no two readers of the same bytes can see different hosts.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from functools import lru_cache

_NAME = re.compile(
    r"(?=.{1,253}\Z)[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?(?:\.[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?)*"
)
_NUMBER = re.compile(r"(?:0x[0-9a-f]*|[0-9]+)")
_PORT = re.compile(r"[0-9]{1,5}")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class Authority:
    """A host as it is written on the wire, and its port when one is given."""

    host: str
    port: int | None


def normal_name(text: str) -> str | None:
    """The one spelling of a name, or None. Never a literal: a last label that reads as a number is refused."""
    name = text.lower() if text.isascii() else ""
    if name.endswith("."):
        name = name[:-1]
    if not _NAME.fullmatch(name) or _NUMBER.fullmatch(name.rpartition(".")[2]):
        return None
    return name


@lru_cache(4096)
def literal(text: str) -> Address | None:
    """The address that `text` strictly is (dotted quad, or IPv6 without brackets or zone), or None."""
    try:
        return ipaddress.ip_address(text) if "%" not in text else None
    except ValueError:
        return None


def normal_host(text: str) -> str | None:
    """A name's or literal address's one spelling (IPv6 without brackets), or None."""
    address = literal(text)
    return str(address) if address is not None else normal_name(text)


@lru_cache(4096)
def parse_authority(text: str) -> Authority | None:
    """`host`, `host:port`, `[v6]`, `[v6]:port`; None for user-info, empty ports, spaces and anything else."""
    if text.startswith("["):
        inside, closed, rest = text[1:].partition("]")
        address = literal(inside)
        if not closed or address is None or address.version != 6:
            return None
        host: str | None = str(address)
    else:
        name, colon, after = text.partition(":")
        host, rest = normal_host(name), colon + after
    if host is None:
        return None
    if not rest:
        return Authority(host, None)
    if not rest.startswith(":") or not _PORT.fullmatch(rest[1:]) or not 0 < int(rest[1:]) < 65536:
        return None
    return Authority(host, int(rest[1:]))


@lru_cache(4096)
def written(host: str, port: int, scheme: str) -> str:
    """The Host field for a checked host: brackets for IPv6, the port only when it is not the scheme's own."""
    shown = f"[{host}]" if ":" in host else host
    return shown if port == {"https": 443, "http": 80}.get(scheme) else f"{shown}:{port}"


class HostPatterns:
    """A set of host patterns: exact, `*.x` (not `x` itself), `*` (any name, no literal address)."""

    def __init__(self, patterns: list[str]) -> None:
        self._any = False
        self._exact: set[str] = set()
        self._suffixes: tuple[str, ...] = ()
        suffixes = []
        for pattern in patterns:
            if pattern == "*":
                self._any = True
                continue
            wild = pattern.startswith("*.")
            host = normal_name(pattern[2:]) if wild else normal_host(pattern.strip("[]"))
            if host is None:
                raise ValueError(f"{pattern!r} is no host: a name, '*.name', '*', or an address")
            if wild:
                suffixes.append("." + host)
            else:
                self._exact.add(host)
        self._suffixes = tuple(suffixes)

    def accept(self, host: str) -> bool:
        """Whether a normal host matches; a literal address only when it is named exactly."""
        if host in self._exact:
            return True
        if not (self._any or self._suffixes) or literal(host) is not None:
            return False
        return self._any or host.endswith(self._suffixes)
