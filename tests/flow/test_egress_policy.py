"""Rules, tunnels and the record of what happened, against a real gateway and real namespaces."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from egress_gateway import GatewayProcess, connect_as, read_response
from egress_websocket import KEY, websocket_echo
from egress_world import OTHER, SITE, Heard, World, answering, reply
from kennel.settings import CONTROL_UID
from kennel.wire import gateway as wire
from kennel.wire.egress import Record

if TYPE_CHECKING:
    from egress_fixtures import Desk

pytest_plugins = ["egress_fixtures"]
pytestmark = pytest.mark.root

HOST = "good.example.com"


def deny(host: str, **words: object) -> dict[str, object]:
    return {"ruleKey": "no", "verdict": "deny", "match": {"hosts": [host]}, **words}


def test_the_same_reason_at_every_layer_and_a_kept_connection(desk: Desk) -> None:
    site = desk.world.site(HOST)
    plain = desk.world.serve(SITE, 80)
    desk.policy(deny(HOST, description="not this one"))
    secure, open_ = desk.box.fetch(f"https://{HOST}/a"), desk.box.fetch(f"http://{HOST}/a")
    assert secure.json == open_.json == {
        "error": "egress_denied", "code": "egress_denied", "detail": "not this one", "ruleKey": "no",
        "hint": "ask whoever owns the project to change its egress rules ('kennel egress rules'); do not retry",
        "retry": False,
    }  # fmt: skip
    with desk.box.tls(HOST) as link:
        for _ in range(3):
            link.sendall(f"POST / HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 3\r\n\r\nabc".encode())
            assert read_response(link).status == 403
    assert site.requests == plain.requests == []
    assert desk.world.resolver.asked == []


def test_the_first_rule_that_matches_decides(desk: Desk) -> None:
    desk.world.site(HOST, "sub." + HOST)
    desk.policy(
        {"ruleKey": "get", "verdict": "allow", "match": {"hosts": [HOST], "methods": ["GET"], "pathPrefix": "/ok"}},
        {"ruleKey": "rest", "verdict": "deny", "match": {"hosts": [HOST]}},
        {"ruleKey": "subs", "verdict": "allow", "match": {"hosts": ["*." + HOST], "ports": [443]}},
        default="deny",
    )
    assert desk.box.fetch(f"https://{HOST}/ok/1").status == 200
    assert desk.box.fetch(f"https://{HOST}/no").json["ruleKey"] == "rest"
    assert desk.box.fetch(f"https://{HOST}/ok/1", method="DELETE").json["ruleKey"] == "rest"
    assert desk.box.fetch(f"https://sub.{HOST}/").status == 200
    assert desk.box.fetch("https://else.example.com/").json["ruleKey"] is None


def test_audit_only_lets_pass_and_says_what_it_would_have_done(desk: Desk) -> None:
    desk.world.site(HOST)
    desk.policy(deny(HOST), auditOnly=True)
    assert desk.box.fetch(f"https://{HOST}/").status == 200
    assert desk.decision(host=HOST).would == "deny"


def test_no_policy_and_no_project_let_nothing_through(desk: Desk) -> None:
    site = desk.world.site(HOST)
    stranger = desk.another(project=None)
    assert stranger.fetch(f"https://{HOST}/").code == "not_bound"
    desk.control.bind(stranger.id, "project-without-policy")
    assert stranger.fetch(f"https://{HOST}/").code == "no_policy"
    assert site.requests == []


def echo(heard: Heard, link: socket.socket) -> None:
    link.sendall(b"hello\n")
    while data := link.recv(65536):
        heard.raw += data
        link.sendall(data)


def ended(link: socket.socket) -> bool:
    """Whether the connection is over, by reset or end."""
    try:
        return link.recv(100) == b""
    except ConnectionError:
        return True


def tcp_rule(host: str, port: int) -> dict[str, object]:
    return {"ruleKey": "raw", "verdict": "allow", "mode": "tcp", "match": {"hosts": [host], "ports": [port]}}


def test_raw_tcp_by_rule_and_cut_when_the_rule_goes(desk: Desk) -> None:
    desk.world.serve(OTHER, 5432, echo)
    desk.world.resolver.names["db.example.com"] = [OTHER]
    assert desk.box.cut("db.example.com", 5432, b"\0\0\0\x08\x04\xd2\x16\x2f") == b""
    desk.policy(tcp_rule("db.example.com", 5432))
    with desk.box.connect("db.example.com", 5432) as link:
        assert link.recv(100) == b"hello\n"
        payload = os.urandom(300_000)
        threading.Thread(target=link.sendall, args=(payload,)).start()
        back = b""
        while len(back) < len(payload):
            back += link.recv(65536)
        assert back == payload
        desk.policy(tcp_rule("db.example.com", 5432), deny("other.example.com"))
        link.sendall(b"still")
        assert link.recv(100) == b"still"
        desk.policy(deny("other.example.com"))
        assert ended(link)
    outcome = desk.control.wait_for(
        lambda: [
            r for r in desk.control.records if r.kind == "outcome" and r.layer == "tunnel" and r.bytes_in > 300_000
        ]
    )
    assert outcome[0].detail == "the policy changed"


def test_a_websocket_is_cut_when_its_rule_goes(desk: Desk) -> None:
    desk.world.site(HOST, handler=websocket_echo)
    with desk.box.tls(HOST) as link:
        link.sendall(
            f"GET /s HTTP/1.1\r\nHost: {HOST}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {KEY}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        assert read_response(link).status == 101
        link.sendall(b"frame")
        assert link.recv(100) == b"frame"
        desk.policy(deny(HOST))
        assert ended(link)


def test_the_record_is_whole_and_in_order_across_absences(desk: Desk) -> None:
    desk.world.site(HOST)
    assert desk.box.fetch(f"https://{HOST}/1").status == 200
    desk.decision(url=f"https://{HOST}/1")
    desk.control.close()
    time.sleep(0.2)
    # Control is away: plain requests go on under the last policy; secrets and holds do not.
    assert desk.box.fetch(f"https://{HOST}/2").status == 200
    answer = desk.box.fetch("https://evil.example.com/")
    assert answer.status == 502
    desk.control.connect()
    desk.decision(url=f"https://{HOST}/2")

    def told() -> list[Record]:
        # What was not acknowledged before control went away is said again: the first time counts.
        rows = [r for r in desk.control.records if r.kind == "outcome" and r.project == desk.project]
        return list({r.request: r for r in rows}.values())

    desk.control.wait_for(lambda: len(told()) >= 3)
    outcomes = told()
    by_request = {r.request: r for r in desk.control.decisions(project=desk.project)}
    assert [by_request[r.request].url.rpartition("/")[2] for r in outcomes[:2]] == ["1", "2"]
    assert outcomes[0].status == 200
    assert outcomes[2].code == "name_not_found"


def test_secrets_and_holds_need_the_log(world: World, start: Callable[..., GatewayProcess]) -> None:
    own = start(acknowledge_timeout=0.5)
    site = world.site(HOST)
    own.control.policy({"ruleKey": "ask", "verdict": "hold", "match": {"pathPrefix": "/held"}}, deny("no.example.com"))
    own.control.secret("/secrets/x", "the-value", f"https://{HOST}")
    box = own.sandbox("needslog01")
    headers = {"X-Token": 'getSecret("/secrets/x")'}
    own.control.acknowledging = False
    assert box.fetch(f"https://{HOST}/", headers=headers).code == "audit_unavailable"
    own.control.acknowledging = True
    own.control.close()
    time.sleep(0.2)
    assert box.fetch(f"https://{HOST}/", headers=headers).code == "audit_unavailable"
    assert box.fetch(f"https://{HOST}/held").code == "audit_unavailable"
    assert box.fetch("https://no.example.com/").code == "egress_denied"
    assert site.requests == []
    own.control.connect()
    assert box.fetch(f"https://{HOST}/", headers=headers).status == 200
    world.clear()


def test_a_full_journal_makes_requests_wait(world: World, start: Callable[..., GatewayProcess]) -> None:
    own = start(journal_bytes=3000)
    site = world.site(HOST)
    own.control.policy()
    box = own.sandbox("fulljourn1")
    own.control.acknowledging = False
    for _ in range(20):
        with box.tls(HOST) as link:
            link.settimeout(0.5)
            link.sendall(f"GET / HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
            try:
                assert read_response(link).status == 200
            except TimeoutError:
                break
    else:
        pytest.fail("nothing ever waited")
    heard = len(site.requests)
    assert heard < 20
    own.control.acknowledging = True
    own.control.close()
    own.control.connect()
    assert box.fetch(f"https://{HOST}/").status == 200
    world.clear()


def test_records_survive_a_killed_gateway(world: World, start: Callable[..., GatewayProcess]) -> None:
    own = start()
    world.site(HOST)
    own.control.policy()
    box = own.sandbox("survives01")
    own.control.acknowledging = False
    for number in range(5):
        assert box.fetch(f"https://{HOST}/{number}").status == 200
    own.kill()
    own.control.close()
    own.control.records.clear()
    own.control.acknowledging = True
    own.start()
    own.control.connect()
    rows = own.control.wait_for(lambda: (found := own.control.decisions(host=HOST)) and len(found) == 5 and found)
    assert [row.url.rpartition("/")[2] for row in rows] == ["0", "1", "2", "3", "4"]
    world.clear()


def test_only_node_and_control_are_heard_each_with_its_own_words(desk: Desk, gateway: GatewayProcess) -> None:
    def says(uid: int, request: wire.Request) -> bytes:
        with connect_as(uid, gateway.socket_path) as link:
            link.settimeout(2)
            try:
                link.sendall(wire.encode(wire.Call(1, request)))
                return link.recv(4096)
            except ConnectionError:
                return b""

    assert says(1000, wire.Hello()) == b""
    assert says(0, wire.SetPolicy(desk.project, {})) == b""
    assert says(0, wire.Hello()) == b""
    assert says(CONTROL_UID, wire.Attach("sandbox99")) == b""
    assert says(CONTROL_UID, wire.Detach("sandbox99")) == b""
    assert says(0, wire.Attach("sandbox99")) == b""
    with connect_as(0, gateway.socket_path) as link:
        link.sendall(b"\xff\xff\xff\xff")
        assert link.recv(10) == b""
    assert desk.control.attached()


def test_dry_run_says_what_a_request_would_meet(desk: Desk) -> None:
    desk.policy(deny(HOST), {"ruleKey": "ask", "verdict": "hold", "match": {"pathPrefix": "/ask"}})
    desk.secret("/secrets/x", "value", "https://api.example.com")

    def meets(url: str, **words: object) -> dict[str, object]:
        found: dict[str, object] = desk.control.call(wire.Try(desk.project, "/sandboxes/x", "GET", url, **words))  # type: ignore[arg-type]
        return found

    assert meets(f"https://{HOST}/")["code"] == "egress_denied"
    assert meets("https://api.example.com/ask")["verdict"] == "hold"
    header = [("X-Token", 'getSecret("/secrets/x")')]
    assert meets("https://api.example.com/", headers=header)["secretPath"] == "/secrets/x"
    assert meets("https://else.example.com/", headers=header)["code"] == "secret_not_allowed_for_origin"
    assert desk.world.resolver.asked == []
    with pytest.raises(RuntimeError, match="VALIDATION_FAILED"):
        meets("ftp://x")


def test_bad_policies_are_refused_whole(desk: Desk) -> None:
    for rules in (
        [{"ruleKey": "x", "verdict": "maybe"}], [{"ruleKey": "x", "verdict": "deny", "match": {"hosts": ["a b"]}}],
        [deny("a.example.com"), deny("b.example.com")], [{"ruleKey": "x", "verdict": "deny", "match": {"host": ["a"]}}],
        [{"ruleKey": "x", "verdict": "allow", "mode": "tcp", "match": {"hosts": ["*.a.example.com"], "ports": [1]}}],
        [{"ruleKey": "x", "verdict": "deny", "mode": "tcp", "match": {"hosts": ["a.example.com"], "ports": [1]}}],
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match="VALIDATION_FAILED"):
            desk.policy(*rules)


def test_stale_kept_connections_are_replaced(desk: Desk) -> None:
    def once(heard: Heard, link: socket.socket) -> None:
        heard.read_request(link)
        link.sendall(reply())
        time.sleep(0.05)

    site = desk.world.site(HOST, handler=once)
    with desk.box.tls(HOST) as link:
        for _ in range(4):
            link.sendall(f"GET / HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
            assert read_response(link).status == 200
            time.sleep(0.08)
    assert len(site.connections) == 4


def test_large_bodies_stream_both_ways(desk: Desk) -> None:
    size = 8 * 1024 * 1024

    def swallow(heard: Heard, link: socket.socket) -> None:
        raw = b""
        while b"\r\n\r\n" not in raw:
            raw += link.recv(65536)
        left = size - len(raw.partition(b"\r\n\r\n")[2])
        while left > 0:
            left -= len(link.recv(1 << 20))
        link.sendall(reply(b"x" * size))

    desk.world.site(HOST, handler=swallow)
    with desk.box.tls(HOST) as link:
        head = f"POST / HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: {size}\r\nExpect: 100-continue\r\n\r\n"
        link.sendall(head.encode())
        assert link.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        link.sendall(b"y" * size)
        answer = read_response(link)
    assert (answer.status, len(answer.body)) == (200, size), desk.control.records[-3:]


def test_answers_of_unknown_length_and_http_1_0(desk: Desk) -> None:
    desk.world.site(
        HOST, handler=answering(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + reply(b"after", "Alt-Svc: h3"))
    )
    answer = desk.box.fetch(f"https://{HOST}/")
    assert (answer.status, answer.body, answer.field("alt-svc")) == (200, b"after", None)
    assert desk.box.fetch(f"https://{HOST}/", method="HEAD").field("content-length") == "5"
