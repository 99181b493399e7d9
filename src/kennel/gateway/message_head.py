"""Owns the heads that the gateway writes itself, never copies: to hosts and back to sandboxes.

Called by the exchange. Invariant: hop-by-hop fields and fields that `Connection` names end here; framing is the
gateway's; fields of the platform that came from a sandbox are dropped.
"""

from __future__ import annotations

import base64
import hashlib
import re

Header = tuple[bytes, bytes]

_HOP = frozenset(
    b"connection keep-alive proxy-connection proxy-authenticate proxy-authorization te trailer transfer-encoding"
    b" upgrade host content-length expect http2-settings alt-svc".split()
)
_WEBSOCKET_REQUEST = frozenset((b"sec-websocket-key", b"sec-websocket-version", b"sec-websocket-accept"))
_DROPPED_ON_SWITCH = frozenset(
    b"location content-location refresh sec-websocket-extensions sec-websocket-accept content-type"
    b" content-encoding".split()
)
_PLATFORM = (b"x-kennel-", b"cf-aig-")
_NONE: frozenset[bytes] = frozenset()
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_UNPRINTABLE = re.compile(rb"[^\t\x20-\x7e\x80-\xff]")


def named_by_connection(headers: list[Header]) -> frozenset[bytes]:
    """The fields that a Connection field names: they end at this hop."""
    named = [value for name, value in headers if name == b"connection"]
    if not named:
        return _NONE
    return frozenset(token.strip().lower() for value in named for token in value.split(b","))


def forwarded(headers: list[Header]) -> list[Header]:
    """The fields of a request that go on, without host and framing."""
    ended = named_by_connection(headers)
    kept = [header for header in headers if header[0] not in _HOP and not header[0].startswith(_PLATFORM)]
    return [header for header in kept if header[0] not in ended] if ended else kept


def request_head(method: str, target: str, host: str, headers: list[Header], framing: bytes) -> bytes:
    """The head of a request; `framing` is a field line or empty."""
    lines = [f"{method} {target} HTTP/1.1\r\nhost: {host}\r\n".encode("latin-1"), framing]
    lines += [b"%s: %s\r\n" % header for header in headers]
    lines.append(b"\r\n")
    head = b"".join(lines)
    expected = len(headers) + 3 + (1 if framing else 0)
    if head.count(b"\n") != expected or head.count(b"\r") != expected:
        raise ValueError("a head with line breaks inside its fields")
    return head


def response_fields(headers: list[Header]) -> list[Header]:
    """The fields of a response that go back."""
    ended = named_by_connection(headers)
    kept = [header for header in headers if header[0] not in _HOP]
    return [header for header in kept if header[0] not in ended] if ended else kept


def response_head(status: int, reason: bytes, headers: list[Header], framing: bytes) -> bytes:
    """The head of a response; ValueError when a field would end its line, or the head, too early."""
    lines = [b"HTTP/1.1 %d %b\r\n" % (status, _UNPRINTABLE.sub(b"", reason)[:200])]
    lines += [b"%b: %b\r\n" % header for header in headers]
    lines += [framing, b"\r\n"]
    head = b"".join(lines)
    if head.count(b"\n") != len(headers) + 2 + framing.count(b"\n"):
        raise ValueError("a field with a line break")
    return head


def refusal_head(status: int, length: int, *, keep: bool) -> bytes:
    """The head of the gateway's own answer to a request that does not leave."""
    framing = b"content-length: %d\r\nconnection: %s\r\n" % (length, b"keep-alive" if keep else b"close")
    fields = [
        (b"content-type", b"application/json"),
        (b"cache-control", b"no-store"),
        (b"x-kennel-egress", b"denied"),
    ]
    return response_head(status, b"Refused", fields, framing)


def websocket_request(headers: list[Header], key: bytes) -> list[Header]:
    """The fields of an upgrade request that go on, with the sandbox's own key and no extensions dropped."""
    kept = [header for header in headers if header[0] not in _WEBSOCKET_REQUEST]
    return [
        (b"connection", b"Upgrade"),
        (b"upgrade", b"websocket"),
        (b"sec-websocket-key", key),
        (b"sec-websocket-version", b"13"),
        *kept,
    ]


def accept_value(key: bytes) -> bytes:
    """What a server must answer to a websocket key."""
    return base64.b64encode(hashlib.sha1(key + _GUID, usedforsecurity=False).digest())


def websocket_response(
    headers: list[Header], key: bytes, offered: list[Header], secret_protocol: bool
) -> list[Header] | None:
    """The fields of a 101, or None when it does not accept this key or names what was not offered.

    A subprotocol is returned only when exactly that one was offered, never one that carried a secret.
    """
    accepts = [value for name, value in headers if name == b"sec-websocket-accept"]
    upgrades = [value.lower() for name, value in headers if name == b"upgrade"]
    if accepts != [accept_value(key)] or upgrades != [b"websocket"]:
        return None
    asked = {p.strip() for name, value in offered if name == b"sec-websocket-protocol" for p in value.split(b",")}
    chosen = [value for name, value in headers if name == b"sec-websocket-protocol"]
    if len(chosen) > 1 or (chosen and chosen[0] not in asked and not secret_protocol):
        return None
    extensions = {n for n, _ in offered if n == b"sec-websocket-extensions"}
    kept = []
    for header in response_fields(headers):
        if header[0] == b"sec-websocket-protocol" and secret_protocol:
            continue
        asked_extension = header[0] == b"sec-websocket-extensions" and extensions
        if asked_extension or header[0] not in _DROPPED_ON_SWITCH:
            kept.append(header)
    mine = [
        (b"connection", b"Upgrade"),
        (b"upgrade", b"websocket"),
        (b"sec-websocket-accept", accept_value(key)),
    ]
    return mine + kept
