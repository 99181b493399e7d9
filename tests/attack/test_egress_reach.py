"""Attacks 1 to 11: reaching what nobody may reach, whatever is asked, flushed or killed."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from egress_gateway import GatewayProcess, read_response
from egress_world import FORBIDDEN, GATEWAY_4, GATEWAY_6, OTHER, SITE, SITE_6, World, answering, reply
from kennel.node import interception
from patience import within

if TYPE_CHECKING:
    from egress_fixtures import Desk

pytest_plugins = ["egress_fixtures"]
pytestmark = pytest.mark.root


def test_1_metadata_by_literal_name_and_every_disguise(desk: Desk) -> None:
    target = desk.world.serve("169.254.169.254", 80, answering(reply(b"credentials")))
    names = {"plain.example.com": "169.254.169.254", "mapped.example.com": "::ffff:169.254.169.254"}
    names |= {"nat64.example.com": "64:ff9b::a9fe:a9fe", "sixtofour.example.com": "2002:a9fe:a9fe::1"}
    for name, address in names.items():
        desk.world.resolver.names[name] = [address]
        answer = desk.box.fetch(f"http://{name}/latest/meta-data")
        assert (answer.status, answer.code) == (403, "destination_refused"), name
    for literal in ("169.254.169.254", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe"):
        with desk.box.connect(literal, 80) as link:
            link.sendall(b"GET / HTTP/1.1\r\nHost: 169.254.169.254\r\n\r\n")
            assert read_response(link).code in ("name_mismatch", "address_not_allowed"), literal
    # Decimal and octal forms are no names: DNS does not know them.
    for form in ("2852039166", "0251.0376.0251.0376", "0xa9fea9fe", "metadata.google.internal"):
        assert desk.box.ask(form)[3] & 15 != 0, form
    desk.policy({"ruleKey": "open", "verdict": "allow", "match": {"hosts": ["169.254.169.254"]}})
    assert desk.box.fetch("http://169.254.169.254/").code == "destination_refused"
    assert target.connections == []


@pytest.mark.parametrize(
    "addresses",
    [
        ["0.0.0.1"], ["10.0.0.5"], ["100.64.1.1"], ["127.0.0.1"], ["169.254.169.254"], ["172.16.3.3"], ["192.0.0.8"],
        ["192.0.2.1"], ["192.88.99.1"], ["192.168.7.7"], ["198.18.0.9"], ["198.51.100.1"], ["203.0.113.1"],
        ["224.0.0.1"], ["255.255.255.255"], ["::"], ["::1"], ["::ffff:93.184.216.34"], ["64:ff9b::5db8:d822"],
        ["64:ff9b:1::1"], ["100::1"], ["2001::1"], ["2001:db8::1"], ["2002:5db8:d822::1"], ["fc00::1"], ["fe80::1"],
        ["ff02::1"], ["::127.0.0.1"], ["fd00:ec2::254"], [SITE, "10.0.0.5"], ["10.0.0.5", SITE], [SITE, "::1"],
        [SITE, SITE_6, "169.254.169.254"],
    ],
)  # fmt: skip
def test_2_every_range_alone_and_mixed_with_good_answers(desk: Desk, addresses: list[str]) -> None:
    desk.world.serve(SITE, 80)
    desk.world.resolver.names["inward.example.com"] = addresses
    with desk.world.capture() as packets:
        answer = desk.box.fetch("http://inward.example.com/")
    assert (answer.status, answer.code) == (403, "destination_refused")
    assert all(b"inward" in packet for packet in packets), "something else than the look-up left"


def test_3_an_answer_that_changes_between_lookups_is_looked_up_once(desk: Desk) -> None:
    good, bad = desk.world.serve(SITE, 80), desk.world.serve("10.0.0.5", 80)
    desk.world.resolver.names["rebind.example.com"] = lambda count: [SITE] if count <= 1 else ["10.0.0.5"]
    assert desk.box.fetch("http://rebind.example.com/").status == 200
    assert desk.world.resolver.asked.count(("rebind.example.com", 1)) == 1
    assert desk.box.fetch("http://rebind.example.com/", headers={"X": "second"}).status in (200, 403)
    assert len(good.requests) >= 1
    assert bad.connections == []


def test_4_literal_addresses_need_a_rule_that_names_them(desk: Desk) -> None:
    plain, six = desk.world.serve(SITE, 80), desk.world.serve(SITE_6, 80)
    secure = desk.world.serve(SITE, 443, tls=desk.world.authority.context(SITE))
    assert desk.box.fetch(f"http://{SITE}/").code == "address_not_allowed"
    assert desk.box.fetch(f"https://{SITE}/", sni=None).code == "address_not_allowed"
    with desk.box.connect(SITE_6, 80) as link:
        link.sendall(f"GET / HTTP/1.1\r\nHost: [{SITE_6}]\r\n\r\n".encode())
        assert read_response(link).code == "address_not_allowed"
    assert desk.box.fetch(f"https://{SITE}/", sni="good.example.com").status == 403
    assert plain.connections == six.connections == secure.connections == []
    desk.policy({"ruleKey": "named", "verdict": "allow", "match": {"hosts": [SITE, SITE_6]}})
    assert desk.box.fetch(f"http://{SITE}/").status == 200
    assert desk.box.fetch(f"https://{SITE}/", sni=None).status == 200
    with desk.box.connect(SITE_6, 80) as link:
        link.sendall(f"GET / HTTP/1.1\r\nHost: [{SITE_6}]\r\n\r\n".encode())
        assert read_response(link).status == 200


def test_5_the_hosts_own_services_by_every_address(desk: Desk) -> None:
    listeners = []
    for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):

        def make(family: int = family, address: str = address) -> socket.socket:
            made = socket.socket(family, socket.SOCK_STREAM)
            if family == socket.AF_INET6:
                made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            made.bind((address, 8080))
            made.listen()
            made.setblocking(False)
            return made

        listeners.append(interception.inside(desk.world.inner, make))
    for number, address in enumerate((GATEWAY_4, GATEWAY_6, "127.0.0.1", "::1")):
        desk.world.resolver.names[f"host{number}.example.com"] = [address]
        assert desk.box.fetch(f"http://host{number}.example.com:8080/").code == "destination_refused", address
    desk.policy({"ruleKey": "named", "verdict": "allow", "match": {"hosts": [GATEWAY_4]}})
    assert desk.box.fetch(f"http://{GATEWAY_4}:8080/").code == "destination_refused"
    for listener in listeners:
        with pytest.raises(BlockingIOError):
            listener.accept()
        listener.close()


def test_6_the_gateways_own_port_dialled_directly(desk: Desk) -> None:
    for address in ("127.0.0.1", "::1"):
        request = b"GET / HTTP/1.1\r\nHost: good.example.com\r\n\r\n"
        assert desk.box.cut(address, interception.STREAM_PORT, request, look_up=False) == b"", address
    assert desk.decision(code="protocol_refused")


def refuses(link: socket.socket, where: tuple[str, int]) -> bool:
    """Whether one of three datagrams brought an error."""
    try:
        for _ in range(3):
            link.sendto(b"\x08\0\xf7\xff" + b"\0" * 60, where)
            time.sleep(0.01)
    except OSError:
        return True
    return False


def test_7_udp_raw_and_icmp_send_nothing_and_fail_at_once(desk: Desk) -> None:
    with desk.world.capture() as packets:
        begun = time.monotonic()
        for family, kind, protocol, where in (
            (socket.AF_INET, socket.SOCK_DGRAM, 0, (SITE, 443)),
            (socket.AF_INET6, socket.SOCK_DGRAM, 0, (SITE_6, 443)),
            (socket.AF_INET, socket.SOCK_DGRAM, 0, (SITE, 123)),
            (socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP, (SITE, 0)),
            (socket.AF_INET, socket.SOCK_RAW, 253, (SITE, 0)),
            (socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_SCTP, (SITE, 0)),
            (socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6, (SITE_6, 0)),
        ):
            with desk.box.inside(lambda f=family, k=kind, p=protocol: socket.socket(f, k, p)) as link:
                assert refuses(link, where), (kind, where)
        assert time.monotonic() - begun < within(2)
    assert packets == []


def test_8_whatever_root_inside_breaks_cuts_only_itself(desk: Desk, gateway: GatewayProcess) -> None:
    desk.world.serve(SITE, 80)
    desk.world.resolver.names["good.example.com"] = [SITE]
    other = desk.another()
    broken = [desk.another() for _ in range(3)]
    for words, box in zip((("nft", "flush", "ruleset"), ("ip", "link", "set", "lo", "down")), broken, strict=False):
        assert box.fetch("http://good.example.com/").status == 200
        subprocess.run(["nsenter", f"--net={box.handle}", *words], check=True)
        with desk.world.capture() as packets:
            with pytest.raises(OSError):
                box.connect(SITE, 80, timeout=1).close()
        assert packets == []
    # Killing the listening socket itself makes accept fail for ever: the sandbox is dropped, nobody spins.
    subprocess.run(["nsenter", f"--net={broken[2].handle}", "ss", "-K", "state", "listening"], capture_output=True)
    time.sleep(0.3)
    used = _cpu(gateway.process.pid)
    time.sleep(0.5)
    assert _cpu(gateway.process.pid) - used < 0.25
    assert other.fetch("http://good.example.com/").status == 200


def _cpu(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_10_a_sandbox_is_known_by_its_listener_alone(desk: Desk) -> None:
    desk.world.serve(SITE, 80)
    desk.world.resolver.names["good.example.com"] = [SITE]
    desk.policy({"ruleKey": "not-b", "verdict": "deny", "match": {"sandboxes": ["b"]}})
    a, b = desk.another(path="/sandboxes/a"), desk.another(path="/sandboxes/b")
    assert a.fetch("http://good.example.com/").status == 200
    assert b.fetch("http://good.example.com/").code == "egress_denied"
    # Namespaces and their numbers are used again: who comes next is nobody until control says who it is.
    b.remove()
    stranger = desk.another(project=None)
    assert stranger.fetch("http://good.example.com/").code == "not_bound"
    assert a.fetch("http://good.example.com/").status == 200


def test_11_gateway_killed_no_traffic_and_back_again(
    world: World,
    start: Callable[..., GatewayProcess],
) -> None:
    site = world.serve(SITE, 80)
    world.resolver.names["good.example.com"] = [SITE]
    own = start()
    box = own.sandbox("comesback1")
    own.control.policy()
    assert box.fetch("http://good.example.com/").status == 200
    own.kill()
    heard = len(site.requests)
    with world.capture() as packets:
        with pytest.raises(OSError):
            box.ask("good.example.com", timeout=0.5)
        with box.connect("198.18.1.0", 80) as link:
            link.settimeout(0.5)
            link.sendall(b"GET / HTTP/1.1\r\nHost: good.example.com\r\n\r\n")
            with pytest.raises(TimeoutError):
                link.recv(1)
    assert packets == []
    own.start()
    own.control.connect()
    # Nothing is known any more: refused until control has said everything again.
    deadline = time.monotonic() + 5
    while "comesback1" not in own.control.attached():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert box.fetch("http://good.example.com/").code == "not_bound"
    own.control.bind("comesback1")
    own.control.policy()
    assert box.fetch("http://good.example.com/").status == 200
    assert len(site.requests) == heard + 1
    world.clear()


def test_private_ranges_open_only_by_exact_host_and_port(
    world: World,
    start: Callable[..., GatewayProcess],
) -> None:
    own = start(openings=["intern.example.com:8080", "meta.example.com:80"])
    for address in FORBIDDEN:
        world.serve(address, 8080)
    world.resolver.names |= {"intern.example.com": ["10.0.0.5"], "meta.example.com": ["169.254.169.254"]}
    world.resolver.names["else.example.com"] = ["10.0.0.5"]
    own.control.policy()
    box = own.sandbox("openings1")
    assert box.fetch("http://intern.example.com:8080/").status == 200
    assert box.fetch("http://intern.example.com/").code == "destination_refused"
    assert box.fetch("http://else.example.com:8080/").code == "destination_refused"
    assert box.fetch("http://meta.example.com/").code == "destination_refused"
    world.clear()


def test_port_25_is_shut_even_where_a_rule_names_it(desk: Desk) -> None:
    mail = desk.world.serve(OTHER, 25)
    desk.world.resolver.names["mail.example.com"] = [OTHER]
    desk.policy(
        {"ruleKey": "mail", "verdict": "allow", "mode": "tcp", "match": {"hosts": ["mail.example.com"], "ports": [25]}}
    )
    assert desk.box.cut("mail.example.com", 25) == b""
    assert desk.decision(code="port_closed")
    assert mail.connections == []
