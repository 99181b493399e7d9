"""Ports through the whole installation: previews' records, and the proxy for HTTP, streams and WebSockets."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import httpx2
import pytest

from installation import Installation
from kennel import Kennel, KennelError, Sandbox

SERVER = r"""
import http.server, time
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def answer(self, body, *headers, status=200):
        self.send_response(status)
        for name, value in headers: self.send_header(name, value)
        self.send_header('content-length', str(len(body))); self.end_headers(); self.wfile.write(body)
    def do_GET(self):
        if self.path.startswith('/redirect'): self.answer(b'', ('location', 'https://elsewhere.example/'), status=302)
        elif self.path.startswith('/events'):
            self.send_response(200); self.send_header('content-type', 'text/event-stream'); self.end_headers()
            for n in range(3): self.wfile.write(b'data: %d\n\n' % n); self.wfile.flush(); time.sleep(0.3)
            self.close_connection = True
        elif self.path.startswith('/broken'): self.wfile.write(b'nonsense\r\n\r\n'); self.close_connection = True
        elif self.path.startswith('/missing'): self.answer(b'{"error": "mine", "code": "NOT_FOUND"}', status=404)
        else:
            cookies = ('set-cookie', 'kennel-session=x'), ('set-cookie', 'own=1')
            self.answer((self.path + '\n' + str(self.headers)).encode(), *cookies)
    def do_POST(self):
        left, size = int(self.headers['content-length']), 0
        while left: got = self.rfile.read(min(left, 65536)); left -= len(got); size += len(got)
        self.answer(b'%d' % size)
    def log_message(self, *words): pass
class V6(http.server.ThreadingHTTPServer): address_family = __import__('socket').AF_INET6
import threading
threading.Thread(target=V6(('::1', 3001), H).serve_forever, daemon=True).start()
http.server.ThreadingHTTPServer(('127.0.0.1', 3000), H).serve_forever()
"""

ECHO = r"""
import base64, hashlib, socket, struct
MAGIC = b'258EAFA5-E914-47DA-95CA-C5AB0DC85B11'
def serve(file):
    head = {}
    file.readline()
    while (line := file.readline().strip()):
        name, _, value = line.decode().partition(': ')
        head[name.lower()] = value
    if 'sec-websocket-key' not in head: return
    key = base64.b64encode(hashlib.sha1(head['sec-websocket-key'].encode() + MAGIC).digest())
    wanted = head.get('sec-websocket-protocol', '')
    file.write(b'HTTP/1.1 101 ok\r\nupgrade: websocket\r\nconnection: upgrade\r\n')
    if 'vite-hmr' in wanted: file.write(b'sec-websocket-protocol: vite-hmr\r\n')
    file.write(b'sec-websocket-accept: ' + key + b'\r\n\r\n')
    told = (head['host'] + '|' + head.get('authorization', 'no key') + '|' + wanted).encode()
    file.write(bytes((0x81, len(told))) + told); file.flush()
    while len(start := file.read(2)) == 2:
        size = start[1] & 127
        if size == 126: size = struct.unpack('!H', file.read(2))[0]
        mask, data = file.read(4), file.read(size)
        data = bytes(b ^ mask[i % 4] for i, b in enumerate(data))
        length = bytes((len(data),)) if len(data) < 126 else b'\x7e' + struct.pack('!H', len(data))
        file.write(bytes((start[0],)) + length + data); file.flush()
        if start[0] & 15 == 8: return
listener = socket.create_server(('127.0.0.1', 3002))
while True:
    peer, _ = listener.accept()
    with peer, peer.makefile('rwb') as file: serve(file)
"""


@pytest.fixture(scope="module")
def box(installation: Installation) -> Iterator[Sandbox]:
    with installation.client() as itx:
        box = itx.sandboxes.get("/sandboxes/ports").create()
        box.start_process(argv=["python3", "-c", SERVER])
        box.start_process(argv=["python3", "-c", ECHO])
        for port in (3000, 3001, 3002):
            box.wait_for_port(port, 20)
        yield box


@pytest.fixture
def http(installation: Installation, box: Sandbox) -> Iterator[httpx2.Client]:
    base = f"{installation.url}/v1/projects/default/sandboxes/ports/proxy/"
    with httpx2.Client(base_url=base, headers={"authorization": f"Bearer {installation.key}"}, timeout=20) as client:
        yield client


def test_a_request_passes_without_key_and_own_cookies(http: httpx2.Client) -> None:
    answer = http.get("3000/a%2Fb%20c?x=%26&y", headers={"cookie": "kennel-session-1=secret; own=2", "x-mine": "yes"})
    assert answer.status_code == 200
    path, _, head = answer.text.partition("\n")
    assert path == "/a%2Fb%20c?x=%26&y"
    assert "authorization" not in head.lower()
    assert "secret" not in head
    assert "own=2" in head
    assert "x-mine: yes" in head.lower()
    assert answer.headers.get_list("set-cookie") == ["own=1"]
    assert "sandbox" in answer.headers["content-security-policy"]


def test_both_loopbacks_are_reached(box: Sandbox) -> None:
    assert box.fetch(3000, "/v4").text.startswith("/v4\n")
    assert box.fetch(3001, "/v6").text.startswith("/v6\n")


def test_redirects_and_errors_are_the_servers_own(box: Sandbox) -> None:
    """Report 74: the proxy followed redirects."""
    moved = box.fetch(3000, "/redirect")
    assert (moved.status, moved.headers["location"]) == (302, "https://elsewhere.example/")
    missing = box.fetch(3000, "/missing")
    assert (missing.status, missing.json()["error"]) == (404, "mine")


def test_nothing_there_and_nonsense_are_told_apart_from_the_servers_words(box: Sandbox) -> None:
    for port, path, admitted in ((3999, "/", "no"), (3000, "/broken", "yes")):
        with pytest.raises(KennelError) as caught:
            box.fetch(port, path)
        assert (caught.value.code, caught.value.status, caught.value.admitted) == (
            "SERVICE_NOT_RESPONDING",
            502,
            admitted,
        )


def test_events_come_as_they_are_sent(http: httpx2.Client) -> None:
    """Report 77: events were held back."""
    times = []
    with http.stream("GET", "3000/events") as answer:
        for line in answer.iter_lines():
            if line.startswith("data"):
                times.append(time.monotonic())
    assert len(times) == 3
    assert times[2] - times[0] > 0.4


def test_a_large_upload_streams(http: httpx2.Client, installation: Installation) -> None:
    pieces = (bytes(1024 * 1024) for _ in range(64))
    answer = http.post("3000/up", content=pieces, headers={"content-length": str(64 * 1024 * 1024)})
    assert answer.text == str(64 * 1024 * 1024)


@pytest.mark.parametrize("path", ["3000/../../../../keys", "0/", "65536/", "x/", "3000\\"])
def test_ports_and_paths_that_are_none(http: httpx2.Client, path: str) -> None:
    assert http.get(path).status_code in (400, 404)


def test_websockets_pass_with_the_same_host_and_their_own_subprotocol(installation: Installation, box: Sandbox) -> None:
    """Report 75 (hot reload): WebSocket and plain requests were shown different hosts."""
    from websockets.sync.client import connect

    base = installation.url.replace("http", "ws")
    words = ["vite-hmr", "kennel.v1", f"kennel.key.{installation.key}"]
    with connect(f"{base}/v1/projects/default/sandboxes/ports/proxy/3002/hmr", subprotocols=words) as peer:  # type: ignore[arg-type]
        host, key, offered = str(peer.recv()).split("|")
        assert host == base.removeprefix("ws://")
        assert (key, offered, peer.subprotocol) == ("no key", "vite-hmr", "vite-hmr")
        for message in ("text", b"bytes", "ü" * 3000):
            peer.send(message)
            assert peer.recv() == message
        peer.close(4001, "done")
    plain = box.fetch(3000, "/")
    assert f"host: {host}" in plain.text.lower()


def test_a_socket_that_nobody_answers_is_refused_as_http(installation: Installation, box: Sandbox) -> None:
    from websockets.exceptions import InvalidStatus
    from websockets.sync.client import connect

    for port in (3999, 3000):
        url = f"{installation.url.replace('http', 'ws')}/v1/projects/default/sandboxes/ports/proxy/{port}/"
        with pytest.raises(InvalidStatus) as caught:
            connect(url, additional_headers={"authorization": f"Bearer {installation.key}"})
        assert json.loads(caught.value.response.body)["code"] == "SERVICE_NOT_RESPONDING"


def test_previews_are_records_that_wake_nothing(itx: Kennel) -> None:
    """Reports 71, 72 and 82: previews vanished with a restart, and could be used after they were revoked."""
    pet = itx.sandboxes.get("/sandboxes/previews").create()
    first = pet.expose_port(8080, name="web")
    assert first == pet.expose_port(8080, name="web")
    assert len(first.token) * 5 >= 80
    assert first.proxy_path.endswith("/sandboxes/previews/proxy/8080/")
    pet.expose_port(9090, wake=True)
    assert [info.port for info in pet.get_exposed_ports()] == [8080, 9090]
    assert pet.is_port_exposed(8080)
    pet.unexpose_port(8080)
    pet.unexpose_port(8080)
    assert [info.port for info in pet.get_exposed_ports()] == [9090]
    assert pet.expose_port(8080).token != first.token
    assert not pet.info().running
