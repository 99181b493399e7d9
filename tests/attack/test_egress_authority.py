"""Attacks 17 to 24: one name in DNS, TLS and Host, or nothing leaves."""

from __future__ import annotations

import os
import ssl
import struct
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from egress_gateway import GatewayProcess, Sandbox, read_response
from egress_world import OTHER, SITE
from patience import within

if TYPE_CHECKING:
    from egress_fixtures import Desk

pytest_plugins = ["egress_fixtures"]
pytestmark = pytest.mark.root

GOOD, EVIL = "good.example.com", "evil.example.com"


@pytest.fixture
def sites(desk: Desk) -> Desk:
    """Two hosts on one address, of which one is denied: what domain fronting needs."""
    desk.world.site(GOOD, EVIL)
    desk.world.serve(SITE, 80)
    desk.policy({"ruleKey": "no-evil", "verdict": "deny", "match": {"hosts": [EVIL]}})
    return desk


def requests(desk: Desk) -> list[bytes]:
    return [request for server in desk.world.servers for request in server.requests]


def test_17_server_name_and_host_differ(sites: Desk) -> None:
    for host in (EVIL, "other.example.com"):
        with sites.box.tls(GOOD) as link:
            link.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            assert read_response(link).code == "name_mismatch"
    assert requests(sites) == []


def test_18_server_name_and_name_looked_up_differ(sites: Desk) -> None:
    address = sites.box.address_of(GOOD)
    for sni, host in ((EVIL, EVIL), (EVIL, GOOD)):
        context = ssl.create_default_context(cadata=sites.control.facts["authority"])
        with context.wrap_socket(sites.box.connect(address, 443, look_up=False), server_hostname=sni) as link:
            link.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            assert read_response(link).code == "name_mismatch"
    # An address of this range that nobody looked up.
    assert sites.box.fetch("http://198.18.200.7/").code == "name_unknown"
    assert requests(sites) == []


def test_19_no_server_name(sites: Desk) -> None:
    assert sites.box.fetch(f"https://{GOOD}/", sni=None).code == "sni_missing"
    assert requests(sites) == []


@pytest.mark.parametrize(
    ("hosts", "code"),
    [
        (["Host: good.example.com", "Host: good.example.com"], "host_missing"),
        (["Host: good.example.com", "Host: evil.example.com"], "host_missing"),
        ([], "host_missing"),
        (["Host: GOOD.Example.COM"], ""),
        (["Host: good.example.com."], ""),
        (["Host: good.example.com:443"], ""),
        (["Host: good.example.com:80"], "host_invalid"),
        (["Host: good.example.com:"], "host_invalid"),
        (["Host: good.example.com:443x"], "host_invalid"),
        (["Host: user@good.example.com"], "host_invalid"),
        (["Host: good.example.com@evil.example.com"], "host_invalid"),
        (["Host: [::1]"], "name_mismatch"),
        (["Host: 93.184.216.34"], "name_mismatch"),
        (["Host: xn--gd-1ia.example.com"], "name_mismatch"),
        (["Host: g\u0456od.example.com"], "host_invalid"),
        (["Host: good.example.com, evil.example.com"], "host_invalid"),
        (["Host: good.example.com/evil"], "host_invalid"),
        (["Host: good_example.com"], "name_mismatch"),
        (["Host: good.example.com%2eevil.example.com"], "host_invalid"),
        (["Host: good.example.com#evil"], "host_invalid"),
        (["Host: .good.example.com"], "host_invalid"),
        (["Host: "], "host_invalid"),
    ],
)
def test_20_every_form_of_host(sites: Desk, hosts: list[str], code: str) -> None:
    raw = "\r\n".join(["GET / HTTP/1.1", *hosts]).encode() + b"\r\n\r\n"
    answer = sites.box.raw(GOOD, 443, raw)
    assert (answer.status, answer.code) == ((200, "") if not code else (403, code))
    if code:
        assert requests(sites) == []
    else:
        assert b"\r\nhost: good.example.com\r\n" in requests(sites)[0]


def test_21_absolute_form_to_another_host(sites: Desk) -> None:
    for target in (
        f"https://{EVIL}/",
        f"http://{EVIL}/",
        f"https://{GOOD}/",
        f"//{EVIL}/../x y",
        "*",
        "evil.example.com",
    ):
        answer = sites.box.raw(GOOD, 443, f"GET {target} HTTP/1.1\r\nHost: {GOOD}\r\n\r\n".encode())
        assert answer.status in (400, 403), target
    assert requests(sites) == []


def test_22_connect_plain_and_inside_tls(sites: Desk) -> None:
    raw = f"CONNECT {EVIL}:443 HTTP/1.1\r\nHost: {GOOD}\r\n\r\n".encode()
    for tls, port in ((True, 443), (False, 80)):
        answer = sites.box.raw(GOOD, port, raw, tls=tls)
        assert answer.status in (400, 403)
    assert sites.box.raw(GOOD, 443, f"TRACE / HTTP/1.1\r\nHost: {GOOD}\r\n\r\n".encode()).code == "method_refused"
    assert requests(sites) == []


def test_23_a_second_request_on_a_kept_connection_with_another_host(sites: Desk) -> None:
    with sites.box.tls(GOOD) as link:
        for host, code in ((GOOD, ""), (EVIL, "name_mismatch"), (GOOD, "")):
            link.sendall(f"GET /{host} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            assert read_response(link).code == code
    assert all(b"evil" not in request for request in requests(sites))
    assert len(requests(sites)) == 2


def hello(name: str) -> bytes:
    """A real ClientHello."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    side = context.wrap_bio(incoming, outgoing, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        side.do_handshake()
    return outgoing.read()


def in_records(message: bytes, size: int) -> bytes:
    """A handshake message cut into records of `size` bytes."""
    parts = [message[at : at + size] for at in range(0, len(message), size)]
    return b"".join(b"\x16\x03\x01" + len(part).to_bytes(2, "big") + part for part in parts)


def with_extension(message: bytes, kind: int, content: bytes) -> bytes:
    """A ClientHello record with one more extension, its lengths put right."""
    body = bytearray(message[9:])
    at = 34 + 1 + body[34]
    at += 2 + int.from_bytes(body[at : at + 2], "big")
    at += 1 + body[at]
    size = int.from_bytes(body[at : at + 2], "big")
    extension = struct.pack(">HH", kind, len(content)) + content
    body[at : at + 2] = (size + len(extension)).to_bytes(2, "big")
    body += extension
    shake = b"\x01" + len(body).to_bytes(3, "big") + bytes(body)
    return b"\x16\x03\x01" + len(shake).to_bytes(2, "big") + shake


def test_24_client_hello_in_every_shape(sites: Desk) -> None:
    plain = hello(GOOD)
    assert plain.startswith(b"\x16\x03\x01")
    shapes = {
        "byte by byte": [plain[at : at + 1] for at in range(len(plain))],
        "records of 50": [in_records(plain[5:], 50)],
        "records of 1": [in_records(plain[5:], 1)],
        "16 KB": [with_extension(plain, 0x0A0A, os.urandom(14_000))],
        "GREASE and ECH": [with_extension(with_extension(plain, 0x1A1A, b""), 0xFE0D, os.urandom(200))],
    }
    for label, pieces in shapes.items():
        with sites.box.connect(GOOD, 443) as link:
            for piece in pieces:
                link.sendall(piece)
                if len(pieces) > 1:
                    time.sleep(0.0005)
            # A ServerHello or an alert: it was read, not reset.
            assert link.recv(1) in (b"\x16", b"\x15"), label
    entry = b"\0" + len(GOOD).to_bytes(2, "big") + GOOD.encode()
    second = (len(entry) * 2).to_bytes(2, "big") + entry + entry
    for label, bad in {
        "name twice": with_extension(plain, 0, second),
        "over 16 KB": with_extension(plain, 0x0A0A, os.urandom(16_300)),
        "no hello": b"\x16\x03\x01\0\x04\x02\0\0\0",
        "empty record": b"\x16\x03\x01\0\0",
        "an alert first": b"\x15\x03\x01\0\x02\x01\0",
        "SSL 2": b"\x80\x2e\x01\x03\x01",
    }.items():
        assert sites.box.cut(GOOD, 443, bad) == b"", label
    assert requests(sites) == []


def test_24_half_a_hello_is_given_up_in_time(start: Callable[..., GatewayProcess]) -> None:
    own = start(hello_timeout=2.0)
    with own.sandbox("halfhello1").connect(GOOD, 443) as link:
        link.sendall(hello(GOOD)[:100])
        begun = time.monotonic()
        with pytest.raises(ConnectionResetError):
            link.recv(1)
        assert 1.5 < time.monotonic() - begun < within(5)


def test_clients_that_offer_only_http2_are_told_why(sites: Desk) -> None:
    with pytest.raises(ssl.SSLError, match="no application protocol"):
        sites.box.tls(GOOD, alpn=["h2"])
    assert sites.decision(code="http2_only").layer == "tls"
    with sites.box.tls(GOOD, alpn=["h2", "http/1.1"]) as link:
        assert link.selected_alpn_protocol() == "http/1.1"
    answer = sites.box.raw(GOOD, 443, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    assert answer.code == "http2_only"


def test_upstream_certificates_are_verified_for_the_name(sites: Desk) -> None:
    sites.world.serve(OTHER, 443, tls=sites.world.authority.context("somebody-else.example.com"))
    sites.world.resolver.names["wrong.example.com"] = [OTHER]
    assert sites.box.fetch("https://wrong.example.com/").code == "tls_failed"
    assert requests(sites) == []


def test_a_session_is_resumed_and_gives_no_rights(sites: Desk) -> None:
    """Clients that keep sessions pay for one handshake; who is asking is known by the listener alone."""
    context = ssl.create_default_context(cadata=sites.control.facts["authority"])

    def ask(box: Sandbox, session: ssl.SSLSession | None) -> tuple[str, bool, ssl.SSLSession | None]:
        with context.wrap_socket(box.connect(GOOD, 443), server_hostname=GOOD, session=session) as link:
            link.sendall(f"GET / HTTP/1.1\r\nHost: {GOOD}\r\n\r\n".encode())
            answer = read_response(link)
            return answer.code, bool(link.session_reused), link.session

    code, reused, session = ask(sites.box, None)
    assert (code, reused) == ("", False)
    assert ask(sites.box, session)[:2] == ("", True)
    sites.control.policy(project="others", default="deny")
    stranger = sites.another(project="others")
    assert ask(stranger, session)[0] == "egress_denied"
