"""Attacks 7 to 9 from a real sandbox: root inside has no socket, ring or tool that goes around the gateway."""

from __future__ import annotations

import errno
import json
from typing import TYPE_CHECKING

import pytest

from kennel.node import interception

if TYPE_CHECKING:
    from pet import Pet

pytestmark = pytest.mark.root

SOCKETS = """
import ctypes, errno, json, socket
found = {}
def attempt(name, work):
    try: found[name] = "made" if work() is not None else "nothing"
    except OSError as refused: found[name] = errno.errorcode[refused.errno]
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *words):
    if libc.syscall(number, *words) < 0:
        raise OSError(ctypes.get_errno(), "refused")
    return True
for name, family in (("vsock", 40), ("packet", 17), ("xdp", 44), ("netlink route", 16), ("tipc", 30)):
    kind = 3 if family in (17, 44, 16) else 1
    attempt(name, lambda: socket.socket(family, kind, 0))
attempt("netlink netfilter", lambda: socket.socket(16, 3, 12))
attempt("raw icmp", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
attempt("raw udp by IPv6", lambda: socket.socket(socket.AF_INET6, socket.SOCK_RAW, 17))
attempt("sctp", lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM, 132))
room = ctypes.create_string_buffer(512)
attempt("io_uring_setup", lambda: call(425, 8, room))
attempt("io_uring_enter", lambda: call(426, 0, 0, 0, 0, None, 0))
attempt("io_uring_register", lambda: call(427, 0, 0, None, 0))
for name, family, address in (("udp 443", socket.AF_INET, ("93.184.216.34", 443)),
                              ("udp 443 by IPv6", socket.AF_INET6, ("2606:2800:220:1::34", 443))):
    link = socket.socket(family, socket.SOCK_DGRAM)
    attempt(name, lambda: [link.sendto(b"x", address) for _ in range(3)])
print(json.dumps(found))
"""


def test_9_no_socket_family_and_no_ring_goes_around_the_gateway(pet: Pet) -> None:
    for uid in (0, 1000):
        ran = pet.run(["/usr/bin/python3", "-I", "-c", SOCKETS], uid=uid)
        assert ran.code == 0, ran.err
        found = json.loads(ran.out)
        assert found.pop("netlink route") == "made"
        for name in ("vsock", "packet", "xdp", "tipc"):
            assert found.pop(name) == "EAFNOSUPPORT", name
        for name in ("io_uring_setup", "io_uring_enter", "io_uring_register", "raw icmp"):
            assert found.pop(name) == "EPERM", name
        assert set(found) == {"netlink netfilter", "raw udp by IPv6", "sctp", "udp 443", "udp 443 by IPv6"}
        assert set(found.values()) <= {"EPERM", "EPROTONOSUPPORT"}, found


TOOLS = """
for words in "nft flush ruleset" "nft list ruleset" "ip link set lo down" "ip route flush table all" \
    "ip addr add 10.9.9.9/24 dev lo" "ip link add v0 type veth peer name v1" "ip netns add x" \
    "sysctl -w net.ipv4.ip_forward=1"; do
  $words > /dev/null 2>&1 && echo "done: $words"
done
ss -K state listening 2> /dev/null | grep -c LISTEN
ip -br link | grep -v LOOPBACK | wc -l
"""


def test_8_root_in_a_sandbox_cannot_touch_rules_links_or_listeners(pet: Pet) -> None:
    before = pet.run(["sh", "-c", "ip -br addr; ip route show table all"])
    told = pet.run(["sh", "-c", TOOLS]).out
    assert "done:" not in told
    assert told.splitlines()[0] == "0"
    after = pet.run(["sh", "-c", "ip -br addr; ip route show table all"])
    assert (after.out, after.code) == (before.out, before.code)
    assert before.out
    # Still there: a name is answered, and what the gateway says to a name nobody has is its own words.
    answer = pet.run(["curl", "-sS", "-m", "5", "http://no-such-host-here.invalid/"])
    assert '"ruleKey"' in answer.out, answer.err


BIND = """
import socket
for port in (NUMBER, 80, 443):
    for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"), (socket.AF_INET6, "::")):
        link = socket.socket(family)
        for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
            link.setsockopt(socket.SOL_SOCKET, option, 1)
        try:
            link.bind((address, port))
            link.listen()
            print("taken", end=" ")
        except OSError as refused:
            print(refused.errno, end=" ")
"""


def test_9_the_port_that_connections_are_led_to_cannot_be_taken(pet: Pet) -> None:
    """Whoever bound it would read what other programs of the sandbox send; other ports are its own business."""
    code = BIND.replace("NUMBER", str(interception.STREAM_PORT))
    ran = pet.run(["/usr/bin/python3", "-I", "-c", code])
    assert ran.out.split() == [str(errno.EADDRINUSE)] * 3 + ["taken"] * 6, ran.err
