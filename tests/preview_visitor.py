"""Owns a visitor of previews for tests: bytes to the preview listener as they are, answers read to their end.

Used by tests/flow and tests/attack. Invariant: nothing is resolved: `*.localhost` is known to browsers only, so the
address in a preview's URL becomes the Host field and the connection goes to loopback.
"""

from __future__ import annotations

import json
import socket
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

SERVER = r"""
import base64, hashlib, http.server, socket, struct, sys, threading, time
MAGIC = b'258EAFA5-E914-47DA-95CA-C5AB0DC85B11'
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def answer(self, body, *headers, status=200):
        self.send_response(status)
        for name, value in headers: self.send_header(name, value)
        self.send_header('content-length', str(len(body))); self.end_headers(); self.wfile.write(body)
    def do_GET(self):
        if 'sec-websocket-key' in self.headers: self.echo()
        elif self.path.startswith('/redirect'): self.answer(b'', ('location', 'https://elsewhere.example/'), status=307)
        elif self.path.startswith('/events'):
            self.send_response(200); self.send_header('content-type', 'text/event-stream'); self.end_headers()
            for n in range(3): self.wfile.write(b'data: %d\n\n' % n); self.wfile.flush(); time.sleep(0.3)
            self.close_connection = True
        elif self.path.startswith('/large'):
            self.send_response(200); self.send_header('content-length', str(64 << 20)); self.end_headers()
            for _ in range(64): self.wfile.write(bytes(1 << 20))
        elif self.path.startswith('/slow'): time.sleep(30)
        else:
            cookies = ('set-cookie', 'kennel-session=x'), ('set-cookie', 'own=1; Domain=localhost; Path=/')
            told = '%s %s\n' % (self.path, self.client_address[1])
            self.answer((told + str(self.headers)).encode(), *cookies, ('x-kennel-preview', 'no'))
    def do_POST(self):
        size = 0
        if self.headers.get('transfer-encoding') == 'chunked':
            while True:
                left = int(self.rfile.readline(), 16)
                size += len(self.rfile.read(left)); self.rfile.readline()
                if not left: break
        else:
            left = int(self.headers['content-length'])
            while left: got = self.rfile.read(min(left, 65536)); left -= len(got); size += len(got)
        self.answer(b'%d' % size)
    def echo(self):
        key = base64.b64encode(hashlib.sha1(self.headers['sec-websocket-key'].encode() + MAGIC).digest())
        out = b'HTTP/1.1 101 ok\r\nupgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-accept: ' + key
        if 'vite-hmr' in self.headers.get('sec-websocket-protocol', ''): out += b'\r\nsec-websocket-protocol: vite-hmr'
        self.wfile.write(out + b'\r\n\r\n')
        told = str(self.headers).encode()
        self.wfile.write(b'\x81\x7e' + struct.pack('!H', len(told)) + told); self.wfile.flush()
        while len(start := self.rfile.read(2)) == 2:
            size = start[1] & 127
            if size == 126: size = struct.unpack('!H', self.rfile.read(2))[0]
            mask, data = self.rfile.read(4), self.rfile.read(size)
            data = bytes(b ^ mask[i % 4] for i, b in enumerate(data))
            length = bytes((len(data),)) if len(data) < 126 else b'\x7e' + struct.pack('!H', len(data))
            self.wfile.write(bytes((start[0],)) + length + data); self.wfile.flush()
            if start[0] & 15 == 8: break
        self.close_connection = True
    def log_message(self, *words): pass
class V6(http.server.ThreadingHTTPServer): address_family = socket.AF_INET6
for port, kind, place in ((3001, V6, '::1'), (3002, http.server.ThreadingHTTPServer, '0.0.0.0'), (3003, V6, '::')):
    threading.Thread(target=kind((place, port), H).serve_forever, daemon=True).start()
http.server.ThreadingHTTPServer(('127.0.0.1', 3000), H).serve_forever()
"""
"""A server on every kind of address: echoes heads over HTTP and messages over WebSockets."""


@dataclass
class Answer:
    """What came back: status 0 when nothing did."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def code(self) -> str:
        """The code of a refusal of the gateway's own, or empty."""
        if dict(self.headers).get("x-kennel-preview") != "no":
            return ""
        return str(self.json()["code"])

    def json(self) -> Any:
        return json.loads(self.body)

    def all(self, name: str) -> list[str]:
        return [value for one, value in self.headers if one == name]


class Visitor:
    """Somebody at one preview's address."""

    def __init__(self, url: str | None) -> None:
        assert url is not None
        parts = urlsplit(url)
        assert parts.port is not None
        self.host, self.port = parts.netloc, parts.port

    def connect(self, timeout: float = 20) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout)

    def request(self, target: str = "/", *fields: str, method: str = "GET", host: str | None = None) -> bytes:
        """A request's head."""
        lines = [f"{method} {target} HTTP/1.1", f"Host: {self.host if host is None else host}", *fields]
        return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"

    def get(self, target: str = "/", *fields: str, **words: Any) -> Answer:
        return self.raw(self.request(target, *fields, **words))

    def raw(self, data: bytes) -> Answer:
        """Sends bytes as they are on a connection of its own, and reads one answer."""
        with self.connect() as link:
            link.sendall(data)
            with link.makefile("rb") as file:
                return read(file)


def read(file: Any) -> Answer:
    """One answer from a connection."""
    with suppress(ConnectionError):
        start = file.readline()
        if start:
            headers = []
            while line := file.readline().strip():
                name, _, value = line.decode("latin-1").partition(":")
                headers.append((name.lower(), value.strip()))
            return Answer(int(start.split(b" ")[1]), headers, _body(file, dict(headers)))
    return Answer(0, [], b"")


def _body(file: Any, headers: dict[str, str]) -> bytes:
    if headers.get("transfer-encoding") == "chunked":
        parts = []
        while size := int(file.readline(), 16):
            parts.append(file.read(size))
            file.readline()
        file.readline()
        return b"".join(parts)
    return bytes(file.read(int(headers.get("content-length", 0))))
