"""Owns catching a sandbox's traffic: links and rules in its namespace, and the sockets there that the gateway serves.

Called by unit (`lay` when a namespace is made), gateway_link (`listen`) and preview_sockets (`unconnected`). Invariant:
the rules are plumbing, the wall is that no link leaves the namespace: flushing everything only cuts the sandbox off. A
socket stays in the namespace it was made in, whichever process holds it.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from kennel.node import linux, nftables, own_thread
from kennel.node.rtnetlink import Links
from kennel.wire.gateway import ADDRESS, ADDRESS_6, PAIRS

STREAM_PORT, DATAGRAM_PORT = 61001, 61053
BACKLOG = 512

T = TypeVar("T")

# Loopback and the sandbox's own addresses stay its own; every other TCP and all DNS go to the host's sockets (REDIRECT
# in the output hook means 127.0.0.1 and ::1); all else is refused at once, so that clients of QUIC fall back quickly.
_RULES = f"""
table inet kennel {{
  chain own {{
    ip daddr {{ 127.0.0.0/8, {ADDRESS} }} accept
    ip6 daddr {{ ::1, {ADDRESS_6} }} accept
  }}
  chain catch {{
    type nat hook output priority -100; policy accept;
    jump own
    udp dport 53 redirect to :{DATAGRAM_PORT}
    meta l4proto tcp redirect to :{STREAM_PORT}
  }}
  chain wall {{
    type filter hook output priority 0; policy drop;
    jump own
    ct state established,related accept
    reject with icmpx admin-prohibited
  }}
}}
"""


def lay(handle: Path) -> None:
    """Links, addresses, routes and rules in a fresh namespace (bound to `handle`); a second call is a no-op."""
    inside(handle, _lay)


def _lay() -> None:
    try:
        socket.if_nametoindex("eth0")
        return
    except OSError:
        pass  # a fresh namespace: it has loopback alone
    # Binding a low port needs a capability over this namespace, which nobody in the sandbox has.
    Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").write_text("0")
    # Rules before links: at no moment is there a way without a wall.
    nftables.apply(_RULES)
    with Links() as links:
        links.add_pair("eth0", "kennel0")
        links.up("kennel0")
        index = links.up("eth0")
        links.add_address(index, ADDRESS)
        links.add_address(index, ADDRESS_6)
        links.add_default(index, ADDRESS)
        links.add_default(index, ADDRESS_6)


def listen(handle: Path) -> list[socket.socket]:
    """Makes the four sockets inside a namespace: TCP v4 and v6, DNS over UDP v4 and v6. EADDRINUSE if they stand."""
    return inside(handle, _listen)


def _listen() -> list[socket.socket]:
    made: list[socket.socket] = []
    try:
        for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
            # With the protocol by number, event loops recognise TCP and switch Nagle's algorithm off.
            stream = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC, socket.IPPROTO_TCP)
            made.append(stream)
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            stream.bind((address, STREAM_PORT))
            stream.listen(BACKLOG)
        for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
            datagram = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            made.append(datagram)
            datagram.bind((address, DATAGRAM_PORT))
    except BaseException:
        for one in made:
            one.close()
        raise
    return made


def unconnected(handle: Path) -> list[socket.socket]:
    """Makes TCP sockets inside a namespace that reach its own servers: PAIRS of v4, then PAIRS of v6."""
    return inside(handle, _unconnected)


def _unconnected() -> list[socket.socket]:
    made: list[socket.socket] = []
    try:
        for family in (socket.AF_INET, socket.AF_INET6):
            for _ in range(PAIRS):
                # With the protocol by number, as above.
                made.append(socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC, socket.IPPROTO_TCP))
    except BaseException:
        for one in made:
            one.close()
        raise
    return made


def inside(handle: Path, work: Callable[[], T]) -> T:
    """Runs `work` in a thread that stands in the namespace bound to `handle`; raises what it raises."""

    def enter() -> T:
        linux.enter(str(handle), linux.CLONE_NEWNET)
        return work()

    return own_thread.run(enter, "inside")
