"""Owns the synthetic addresses of one sandbox: every name asked for gets one of 198.18.0.0/15, remembered for an hour.

Called by DNS (handing out) and the entrance (looking up where a connection wants to go). Invariant: an address means
one name for at least an hour after it was last told; names are bounded, and the oldest give way.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict

FIRST = int(ipaddress.IPv4Address("198.18.1.0"))
LAST = int(ipaddress.IPv4Address("198.19.255.254"))
RESOLVER = "198.18.0.1"
"""What `/etc/resolv.conf` in a sandbox names; any other address works as well."""
KEEP = 3600.0
TTL = 60
"""Seconds that a sandbox may remember an answer."""


class Names:
    """The table of one sandbox. Times are seconds of a monotonic clock."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._next = FIRST
        self._by_name: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._by_address: dict[int, str] = {}

    def address_of(self, name: str, now: float) -> tuple[int, bool] | None:
        """The name's address and whether it is new; None when every place is taken within the hour."""
        known = self._by_name.pop(name, None)
        if known is not None:
            self._by_name[name] = (known[0], now)
            return known[0], False
        self._forget(now)
        address = self._free() if len(self._by_name) < self._most else None
        if address is None:
            return None
        self._by_name[name] = (address, now)
        self._by_address[address] = name
        return address, True

    def name_of(self, address: int) -> str | None:
        """The name that was told this address, or None."""
        return self._by_address.get(address)

    def _forget(self, now: float) -> None:
        while self._by_name:
            name, (address, told) = next(iter(self._by_name.items()))
            if now - told < KEEP:
                return
            del self._by_name[name], self._by_address[address]

    def _free(self) -> int | None:
        for _ in range(LAST - FIRST + 1):
            candidate = self._next
            self._next = FIRST if candidate == LAST else candidate + 1
            if candidate not in self._by_address:
                return candidate
        return None


def synthetic(address: str) -> int | None:
    """The number of an address of 198.18.0.0/15, else None."""
    if not address.startswith(("198.18.", "198.19.")):
        return None
    return int(ipaddress.IPv4Address(address))
