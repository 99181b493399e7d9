"""Owns a websocket echo server's handshake for egress tests."""

from __future__ import annotations

import base64
import hashlib
import socket

from egress_world import Heard

KEY = base64.b64encode(b"0123456789abcdef").decode()
_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def websocket_echo(heard: Heard, link: socket.socket) -> None:
    """Takes an upgrade and sends every byte back."""
    request = heard.read_request(link) or b""
    key = next(line.split(b": ")[1] for line in request.split(b"\r\n") if line.startswith(b"sec-websocket-key"))
    accept = base64.b64encode(hashlib.sha1(key + _GUID.encode()).digest()).decode()
    lines = ["HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade"]
    link.sendall("\r\n".join([*lines, f"Sec-WebSocket-Accept: {accept}", "", ""]).encode())
    while data := link.recv(65536):
        link.sendall(data)
