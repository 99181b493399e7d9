"""Secrets that are refreshed: a real token endpoint, a host that answers 401, and what may go wrong there."""

from __future__ import annotations

import base64
import json
import socket
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

import pytest

from egress_world import OTHER, Heard, reply
from kennel.wire.egress import Refresh
from kennel.wire.gateway import PutSecret, SecretRotated

if TYPE_CHECKING:
    from egress_fixtures import Desk

pytest_plugins = ["egress_fixtures"]
pytestmark = pytest.mark.root

API, ID = "api.example.com", "id.example.com"
REFERENCE = 'getSecret("/secrets/oauth", { field: "accessToken" })'
MATERIAL = {"clientId": "app", "clientSecret": "client-secret-canary", "refreshToken": "refresh-canary-1"}
HEADERS = {"Authorization": f"Bearer {REFERENCE}"}


class Provider:
    """An OAuth server: every refresh token is good once, every access token until `revoke`."""

    def __init__(self, desk: Desk, **extra: object) -> None:
        self.extra = extra
        self.asked: list[dict[str, list[str]]] = []
        self.tokens = 0
        self.forgetful = False
        self.refresh = "refresh-canary-1"
        self.answer: Callable[[], bytes] | None = None
        self.lock = threading.Lock()
        self.server = desk.world.site(ID, handler=self._serve, address=OTHER)

    @property
    def token(self) -> str:
        return f"access-canary-{self.tokens}"

    def _serve(self, heard: Heard, link: socket.socket) -> None:
        while (request := heard.read_request(link)) is not None:
            with self.lock:
                link.sendall(self._grant(parse_qs(request.partition(b"\r\n\r\n")[2].decode())))

    def _grant(self, form: dict[str, list[str]]) -> bytes:
        self.asked.append(form)
        if self.answer is not None:
            return self.answer()
        if form.get("refresh_token", [self.refresh]) != [self.refresh]:
            return reply(b'{"error": "invalid_grant", "echo": "refresh-canary"}', status="400 Bad Request")
        self.tokens += 1
        self.refresh = f"refresh-canary-{self.tokens + 1}"
        token = self.token
        if self.forgetful:
            self.tokens += 1
        said = {"access_token": token, "refresh_token": self.refresh, "expires_in": 3600, **self.extra}
        return reply(json.dumps(said).encode(), "content-type: application/json")


def host(desk: Desk, provider: Provider) -> None:
    """An API that takes the provider's newest token alone, and echoes it."""

    def serve(heard: Heard, link: socket.socket) -> None:
        while (request := heard.read_request(link)) is not None:
            good = f"authorization: Bearer {provider.token}\r\n".encode() in request
            status = "200 OK" if good else "401 Unauthorized"
            link.sendall(reply(b"seen " + request.split(b"\r\n\r\n", 1)[0], status=status))

    desk.world.site(API, handler=serve)


@pytest.fixture
def provider(desk: Desk) -> Provider:
    made = Provider(desk)
    host(desk, made)
    keep(desk)
    return made


def keep(desk: Desk, **more: object) -> PutSecret:
    refresh = Refresh("oauth-refresh-token", f"https://{ID}/token", "")
    return desk.control.secret(
        "/secrets/oauth", {**MATERIAL, **more}, f"https://{API}", f"https://{ID}", project=desk.project, refresh=refresh
    )


def rotated(desk: Desk) -> list[SecretRotated]:
    return [n for n in desk.control.notices if isinstance(n, SecretRotated) and n.project == desk.project]


def pending(desk: Desk) -> list[bytes]:
    """What the gateway still keeps for control."""
    found = [file.read_bytes() for file in (desk.gateway.data / "rotations").iterdir()]
    return [text for text in found if f'"{desk.project}"'.encode() in text]


def test_the_first_use_gets_a_token_and_the_next_does_not(desk: Desk, provider: Provider) -> None:
    for _ in range(2):
        answer = desk.box.fetch(f"https://{API}/v1", headers=HEADERS)
        assert answer.status == 200
        assert b"canary" not in answer.head + answer.body
        assert b"getSecret(" in answer.body
    assert provider.asked == [{"grant_type": ["refresh_token"], "refresh_token": ["refresh-canary-1"]}]
    [told] = rotated(desk)
    assert "canary" not in told.secret.box
    decision = desk.decision(lane="refresh")
    assert (decision.url, decision.secret_path, decision.verdict) == (f"https://{ID}/token", "/secrets/oauth", "allow")


def test_a_401_is_answered_by_one_refresh_and_one_repetition(desk: Desk, provider: Provider) -> None:
    assert desk.box.fetch(f"https://{API}/", headers=HEADERS).status == 200
    provider.tokens += 1  # the host forgot the token; the provider did not hear of it
    provider.refresh = "refresh-canary-2"
    answer = desk.box.fetch(f"https://{API}/", headers=HEADERS)
    assert (answer.status, len(provider.asked)) == (200, 2)
    assert provider.asked[-1]["refresh_token"] == ["refresh-canary-2"]
    # A host that says 401 whatever comes is asked twice, not for ever.
    provider.forgetful = True
    provider.tokens += 1
    assert desk.box.fetch(f"https://{API}/", headers=HEADERS).status == 401
    assert len(provider.asked) == 3


def test_a_body_that_went_by_keeps_its_401(desk: Desk, provider: Provider) -> None:
    keep(desk, accessToken="stale")
    answer = desk.box.fetch(f"https://{API}/", method="POST", headers=HEADERS, body=b"x" * 10)
    assert (answer.status, provider.asked) == (401, [])


def test_many_at_once_are_one_refresh(desk: Desk, provider: Provider) -> None:
    answers: list[int] = []

    def ask() -> None:
        answers.append(desk.box.fetch(f"https://{API}/", headers=HEADERS).status)

    threads = [threading.Thread(target=ask) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [200] * 12
    assert len(provider.asked) == 1


def test_what_the_endpoint_says_is_in_no_answer(desk: Desk, provider: Provider) -> None:
    for said in (
        lambda: reply(b'{"error": "refresh-canary"}', status="400 refresh-canary"),
        lambda: reply(b"", "location: https://api.example.com/?refresh-canary", status="302 Found"),
        lambda: reply(b"\x1f\x8b", "content-encoding: gzip"),
        lambda: reply(b"x" * 100_000),
        lambda: b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello!",
    ):
        provider.answer = said
        answer = desk.box.fetch(f"https://{API}/", headers=HEADERS)
        assert (answer.status, answer.code) == (502, "secret_refresh_failed"), said
        assert b"canary" not in answer.body
    assert rotated(desk) == []


def test_rules_may_deny_the_endpoint(desk: Desk, provider: Provider) -> None:
    desk.policy({"ruleKey": "no-id", "verdict": "deny", "match": {"hosts": [ID]}})
    answer = desk.box.fetch(f"https://{API}/", headers=HEADERS)
    assert (answer.code, answer.json["ruleKey"]) == ("secret_refresh_failed", "no-id")
    assert provider.asked == []


def test_material_survives_the_gateway_and_an_older_box(desk: Desk, provider: Provider) -> None:
    old = keep(desk)
    assert desk.box.fetch(f"https://{API}/", headers=HEADERS).status == 200
    # Control did not store it and tells the old box again, as after its own restart: the newer one stays in force.
    desk.control.call(old)
    assert len(pending(desk)) == 1
    assert desk.box.fetch(f"https://{API}/", headers=HEADERS).status == 200
    assert len(provider.asked) == 1
    [told] = rotated(desk)
    desk.control.call(PutSecret(desk.project, told.secret))
    assert pending(desk) == []
    assert desk.box.fetch(f"https://{API}/", headers=HEADERS).status == 200
    assert len(provider.asked) == 1


def test_a_secret_replaced_during_the_refresh_stays_replaced(desk: Desk, provider: Provider) -> None:
    def slow() -> bytes:
        time.sleep(0.5)
        return reply(json.dumps({"access_token": "late", "refresh_token": "late"}).encode())

    provider.answer = slow
    status: list[int] = []
    asking = threading.Thread(target=lambda: status.append(desk.box.fetch(f"https://{API}/", headers=HEADERS).status))
    asking.start()
    desk.control.wait_for(lambda: provider.asked, 5)
    keep(desk, accessToken=provider.token, refreshToken="of the owner")
    asking.join()
    assert desk.box.fetch(f"https://{API}/", headers=HEADERS).status == 200
    assert len(provider.asked) == 1


def test_client_credentials_get_a_token_over_tls_and_another_after_a_401(desk: Desk) -> None:
    asked: list[bytes] = []

    def grant(heard: Heard, link: socket.socket) -> None:
        while (request := heard.read_request(link)) is not None:
            asked.append(request)
            said = {"access_token": f"access-canary-{len(asked)}", "token_type": "Bearer", "expires_in": 3600}
            link.sendall(reply(json.dumps(said).encode(), "content-type: application/json"))

    def serve(heard: Heard, link: socket.socket) -> None:
        good = {"n": b"Bearer access-canary-1\r\n"}
        while (request := heard.read_request(link)) is not None:
            known = good["n"] in request or b"Bearer access-canary-2\r\n" in request
            if b" /revoke " in request:
                good["n"], known = b"nothing", False
            link.sendall(reply(b"yes" if known else b"no", status="200 OK" if known else "401 Unauthorized"))

    desk.world.site(ID, handler=grant, address=OTHER)
    desk.world.site(API, handler=serve)
    refresh = Refresh("oauth-client-credentials", f"https://{ID}/oauth/token?tenant=a", "read write")
    material = {"clientId": "app id", "clientSecret": "client/secret-canary"}
    origins = f"https://{API}", f"https://{ID}"
    desk.control.secret("/secrets/oauth", material, *origins, project=desk.project, refresh=refresh)
    for _ in range(3):
        assert desk.box.fetch(f"https://{API}/v1", headers=HEADERS).body == b"yes"
    head, _, form = asked[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /oauth/token?tenant=a HTTP/1.1\r\n")
    pair = base64.b64encode(b"app%20id:client%2Fsecret-canary")
    assert b"authorization: Basic " + pair in head
    assert parse_qs(form.decode()) == {"grant_type": ["client_credentials"], "scope": ["read write"]}
    assert len(asked) == 1
    # The host takes it no longer: one more is asked for, and the request is sent again.
    desk.box.fetch(f"https://{API}/revoke", headers=HEADERS)
    assert desk.box.fetch(f"https://{API}/v1", headers=HEADERS).body == b"yes"
    assert len(asked) == 2
    assert [told.secret.path for told in rotated(desk)] == ["/secrets/oauth"] * 2
    assert b"canary" not in repr(desk.control.records).encode()


def test_the_value_of_another_field_never_leaves_with_it(desk: Desk, provider: Provider) -> None:
    headers = {"X-Token": 'getSecret("/secrets/oauth", { field: "refreshToken" })'}
    answer = desk.box.fetch(f"https://{API}/", headers=headers)
    assert answer.status == 401
    assert b"canary" not in answer.body
    for file in (desk.gateway.data / "rotations", desk.gateway.data / "journal"):
        assert all(b"canary" not in part.read_bytes() for part in file.rglob("*") if part.is_file())
