"""Previews through the whole installation: what a visitor gets, what crosses, what ends a visit, what wakes a pet."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from installation import Installation
from kennel import Kennel, KennelError, Sandbox
from preview_visitor import SERVER, Visitor, read

PORTS = (3000, 3001, 3002, 3003)


def serving(box: Sandbox) -> None:
    box.start_process(argv=["python3", "-c", SERVER])
    for port in PORTS:
        box.wait_for_port(port, 20)


@pytest.fixture(scope="module")
def box(installation: Installation) -> Iterator[Sandbox]:
    with installation.client() as itx:
        box = itx.sandboxes.get("/sandboxes/shown").create()
        serving(box)
        yield box


@pytest.fixture
def visitor(box: Sandbox) -> Visitor:
    return Visitor(box.expose_port(3000).url)


def socket_to(visitor: Visitor, path: str = "/", **words: Any) -> ClientConnection:
    url = f"ws://{visitor.host}{path}"
    return connect(url, sock=visitor.connect(), compression=None, **words)


@pytest.mark.parametrize("port", PORTS)
def test_a_server_on_any_address_is_reached_and_sees_the_public_host(box: Sandbox, port: int) -> None:
    """127.0.0.1, ::1, 0.0.0.0 and ::, under one Host on HTTP and WebSocket alike (report 75)."""
    there = Visitor(box.expose_port(port).url)
    answer = there.get("/a%2Fb%20c?x=%26&y")
    assert answer.status == 200
    assert answer.text.startswith("/a%2Fb%20c?x=%26&y ")
    assert f"host: {there.host}\n" in answer.text.lower()
    assert "x-forwarded-proto: http\n" in answer.text.lower()
    with socket_to(there) as peer:
        assert f"host: {there.host}\n" in str(peer.recv()).lower()


def test_bodies_stream_both_ways(visitor: Visitor) -> None:
    """Report 77: events were held back; an upload of any size passes, with a length or in chunks."""
    with visitor.connect() as link, link.makefile("rb") as file:
        link.sendall(visitor.request("/events"))
        times = []
        while line := file.readline():
            if line.startswith(b"data"):
                times.append(time.monotonic())
            if len(times) == 3:
                break
        assert times[2] - times[0] > 0.4
    size = 32 * 1024 * 1024
    assert visitor.raw(visitor.request("/", f"Content-Length: {size}", method="POST") + bytes(size)).text == str(size)
    pieces = b"".join(b"10000\r\n" + bytes(65536) + b"\r\n" for _ in range(16)) + b"0\r\n\r\n"
    head = visitor.request("/", "Transfer-Encoding: chunked", "Expect: 100-continue", method="POST")
    with visitor.connect() as link, link.makefile("rb") as file:
        link.sendall(head)
        assert read(file).status == 100
        link.sendall(pieces)
        assert read(file).text == str(16 * 65536)
    assert len(visitor.get("/large").body) == 64 << 20


def test_redirects_are_the_visitors_to_follow(visitor: Visitor) -> None:
    """Report 74: the proxy followed redirects."""
    moved = visitor.get("/redirect")
    assert (moved.status, moved.all("location")) == (307, ["https://elsewhere.example/"])


def test_a_connection_is_kept_on_both_sides_and_belongs_to_no_preview(box: Sandbox, visitor: Visitor) -> None:
    other = Visitor(box.expose_port(3002).url)
    with visitor.connect() as link, link.makefile("rb") as file:
        peers = []
        for host in (visitor.host, visitor.host, other.host, visitor.host, "3000-aaaaaaaaaaaaaaaa.localhost"):
            link.sendall(visitor.request("/", host=host))
            answer = read(file)
            peers.append(answer.text.split("\n")[0].split(" ")[-1] if answer.status == 200 else answer.code)
            assert answer.status != 200 or f"host: {host}\n" in answer.text.lower()
    assert peers[0] == peers[1]
    assert peers[4] == "INVALID_TOKEN"


def test_nothing_of_kennels_crosses(installation: Installation, visitor: Visitor) -> None:
    """Neither the key nor a cookie of the console reaches a sandbox, and a sandbox sets none for others."""
    answer = visitor.get(
        "/", f"Authorization: Bearer {installation.key}", "Cookie: kennel-session-1=secret; own=2",
        "X-Kennel-Room-Link: secret", "X-Forwarded-For: 6.6.6.6", "X-Forwarded-Host: evil", "Forwarded: for=6.6.6.6",
        "X-Real-IP: 6.6.6.6", "X-Mine: yes", "Connection: close, X-Hop", "X-Hop: secret",
    )  # fmt: skip
    told = answer.text.lower()
    for word in (installation.key.lower(), "secret", "6.6.6.6", "evil", "x-kennel"):
        assert word not in told
    assert "cookie: own=2\n" in told
    assert "x-mine: yes\n" in told
    assert answer.all("set-cookie") == ["own=1; Path=/"]
    assert answer.all("x-kennel-preview") == []
    assert answer.all("referrer-policy") == ["same-origin"]
    own = visitor.get("/", "Authorization: Bearer the-apps-own").text
    assert "authorization: Bearer the-apps-own\n" in own
    words = ["vite-hmr", "kennel.v1", f"kennel.key.{installation.key}"]
    with socket_to(visitor, subprotocols=words) as peer:
        assert "sec-websocket-protocol: vite-hmr\n" in str(peer.recv()).lower()
        assert peer.subprotocol == "vite-hmr"


def test_the_api_is_not_below_a_preview_nor_a_preview_below_the_api(installation: Installation, box: Sandbox) -> None:
    visitor = Visitor(box.expose_port(3000).url)
    for path in ("/health", "/v1/projects/default/sandboxes", "/console"):
        key = f"Authorization: Bearer {installation.key}"
        assert visitor.get(path, key, host=f"127.0.0.1:{visitor.port}").code == "INVALID_TOKEN"
        assert visitor.get(path, key).text.startswith(f"{path} ")
    api = Visitor(installation.url)
    answer = api.get("/", host=visitor.host)
    assert (answer.status, json.loads(answer.body)["code"]) == (400, "HOST_REFUSED")


def test_websockets_carry_everything_both_ways(visitor: Visitor) -> None:
    with socket_to(visitor) as peer:
        peer.recv()
        for message in ("text", b"bytes", "ü" * 3000, bytes(65000)):
            peer.send(message)
            assert peer.recv() == message
        peer.close(4001, "done")
        assert peer.close_code == 4001


def test_refusals_are_json_with_the_code_that_says_why(box: Sandbox, visitor: Visitor) -> None:
    token = visitor.host.partition(".")[0].partition("-")[2]
    domain = visitor.host.partition(".")[2]
    wrong = [
        f"3000-aaaaaaaaaaaaaaaa.{domain}", f"3001-{token}.{domain}", f"03000-{token}.{domain}",
        f"99999-{token}.{domain}", f"3000-{token[:-1]}.{domain}",
        f"3000-{token}.{domain}.evil.example", f"evil.3000-{token}.{domain}",
        f"3000-{token}.evil.example", f"3000-{token}", f"{token}.{domain}", f"user@3000-{token}.{domain}", domain,
    ]  # fmt: skip
    for host in wrong:
        answer = visitor.get("/", host=host)
        assert (answer.status, answer.code) == (404, "INVALID_TOKEN"), host
    assert visitor.get("/", host=visitor.host.upper()).status == 200
    nobody = Visitor(box.expose_port(3999).url).get("/")
    assert (nobody.status, nobody.code, nobody.json()["admitted"]) == (502, "SERVICE_NOT_RESPONDING", "no")
    # The gateway's own port in there is no way around it.
    assert Visitor(box.expose_port(61001).url).get("/").code == "SERVICE_NOT_RESPONDING"


def test_revoking_cuts_at_once_what_is_open(box: Sandbox) -> None:
    """Reports 72 and 82."""
    visitor = Visitor(box.expose_port(3001).url)
    with socket_to(visitor) as peer, visitor.connect() as waiting, waiting.makefile("rb") as file:
        peer.recv()
        waiting.sendall(visitor.request("/slow"))
        peer.send("there")
        assert peer.recv() == "there"
        box.unexpose_port(3001)
        with pytest.raises(ConnectionClosed):
            peer.recv(timeout=2)
        assert read(file).code == "STALE_PREVIEW_URL"
    assert visitor.get("/").status == 410
    again = Visitor(box.expose_port(3001).url)
    assert again.host != visitor.host
    assert again.get("/").status == 200
    assert visitor.get("/").code == "STALE_PREVIEW_URL"


def test_a_sleeping_pet_is_woken_only_where_it_was_said(itx: Kennel) -> None:
    """Report 54: stale previews woke it."""
    pet = itx.sandboxes.get("/sandboxes/drowsy").create()
    quiet, loud = Visitor(pet.expose_port(3000).url), Visitor(pet.expose_port(3001, wake=True).url)
    assert quiet.get("/").code == "STALE_PREVIEW_URL"
    assert not pet.info().running
    # Awake, with nothing on the port: what runs in a sandbox ends with its sleep.
    assert loud.get("/").code == "SERVICE_NOT_RESPONDING"
    assert pet.info().running
    assert quiet.get("/").code == "SERVICE_NOT_RESPONDING"
    serving(pet)
    assert quiet.get("/").status == 200
    with socket_to(loud) as peer:
        peer.recv()
        pet.sleep()
        with pytest.raises(ConnectionClosed):
            peer.recv(timeout=2)
    assert quiet.get("/").code == "STALE_PREVIEW_URL"
    pet.destroy()
    for visitor in (quiet, loud):
        assert visitor.get("/").status == 410


def test_visits_keep_a_pet_awake_while_bytes_flow(itx: Kennel) -> None:
    pet = itx.sandboxes.get("/sandboxes/visited").create(sleep_after=2)
    serving(pet)
    visitor = Visitor(pet.expose_port(3000).url)
    with visitor.connect() as link, link.makefile("rb") as file:
        for _ in range(6):
            link.sendall(visitor.request("/"))
            assert read(file).status == 200
            time.sleep(0.5)
        assert pet.info().running
        deadline = time.monotonic() + 20
        while pet.info().running:
            assert time.monotonic() < deadline
            time.sleep(0.1)


@pytest.mark.full
def test_previews_outlast_the_services(own_installation: Installation) -> None:
    """Reports 71 and 72: previews vanished with a restart, or came back after they were revoked."""
    with own_installation.client() as itx:
        box = itx.sandboxes.get("/sandboxes/main").create()
        serving(box)
        visitor, gone = Visitor(box.expose_port(3000).url), Visitor(box.expose_port(3001).url)
        box.unexpose_port(3001)
        for service in ("gateway", "control"):
            own_installation.kill(service)
            answer = _settled(visitor)
            assert answer.status == 200, (service, answer)
            assert gone.get("/").code == "STALE_PREVIEW_URL", service
            assert visitor.get("/", host=f"3000-aaaaaaaaaaaaaaaa.localhost:{visitor.port}").code == "INVALID_TOKEN"
        own_installation.kill("node")
        own_installation.kill("gateway")
        assert _settled(visitor).status == 200
        box.unexpose_port(3000)
        assert visitor.get("/").code == "STALE_PREVIEW_URL"


def _settled(visitor: Visitor) -> Any:
    """The first answer that is not one of a gateway that is still being told."""
    deadline = time.monotonic() + 20
    while True:
        answer = visitor.get("/")
        if answer.status not in (0, 503) and answer.code != "STALE_PREVIEW_URL":
            return answer
        assert time.monotonic() < deadline, answer
        time.sleep(0.05)


def test_tunnels_are_previews_under_that_name(itx: Kennel) -> None:
    pet = itx.sandboxes.get("/sandboxes/tunnelled").create()
    first = pet.tunnels.get(3000, name="web")
    assert first == pet.tunnels.get(3000)
    info = pet.expose_port(3000, name="web")
    assert (first.url, first.id, first.name) == (info.url, f"3000-{info.token}", "web")
    assert first.hostname == f"{first.id}.localhost"
    assert first.created_at
    with pytest.raises(KennelError) as caught:
        pet.tunnels.get(3000, name="other")
    assert caught.value.code == "PORT_ALREADY_EXPOSED"
    assert pet.validate_port_token(3000, info.token)
    assert not pet.validate_port_token(3001, info.token)
    second = pet.tunnels.get(3001)
    assert [tunnel.port for tunnel in pet.tunnels.list()] == [3000, 3001]
    pet.tunnels.destroy(second)
    pet.tunnels.destroy(3001)
    assert pet.tunnels.list() == [first]
    assert not pet.info().running


def test_sockets_and_requests_by_the_sdk(box: Sandbox) -> None:
    with box.ws_connect(3000, "/live?x=1", subprotocols=["vite-hmr"], headers={"x-mine": "yes"}) as peer:
        told = str(peer.receive()).lower()
        assert peer.subprotocol == "vite-hmr"
        assert "x-mine: yes" in told
        assert "authorization" not in told
        for message in ("text", b"bytes", "ü" * 3000):
            peer.send(message)
            assert peer.receive() == message
    with pytest.raises(KennelError) as caught:
        box.ws_connect(3999)
    assert caught.value.code == "SERVICE_NOT_RESPONDING"
    assert box.container_fetch("http://anything.example/a?b=c", 3000).text.startswith("/a?b=c ")


def test_the_command_line_prints_the_address(installation: Installation, box: Sandbox) -> None:
    made = installation.cli("sandbox", "expose", "shown", "3003", "--title", "web")
    assert made.returncode == 0, made.stderr
    url = made.stdout.decode().strip()
    assert Visitor(url).get("/").status == 200
    listed = installation.cli("sandbox", "ports", "shown", "--json")
    assert {"port": 3003, "name": "web", "url": url}.items() <= {
        key: value for row in json.loads(listed.stdout) if row["port"] == 3003 for key, value in row.items()
    }.items()
    assert url in installation.cli("sandbox", "ports", "shown").stdout.decode()
    assert installation.cli("sandbox", "unexpose", "shown", "3003").returncode == 0
    assert Visitor(url).get("/").code == "STALE_PREVIEW_URL"
