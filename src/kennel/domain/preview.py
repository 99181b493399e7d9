"""Owns how a preview is addressed: the label of its host name, where all of them live, and what crosses to it and back.

Called by the gateway (every request of a visitor), control (new tokens) and the API (URLs). Invariant: a label is one
DNS label of lower case; a key, a cookie or a field of Kennel's own never crosses, in either direction.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass

Header = tuple[bytes, bytes]

_ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"
LETTERS = 16
"""Of 32 kinds: 80 bits."""
TOKEN = r"[a-z2-7]{16}"
_LABEL = re.compile(rf"([1-9][0-9]{{0,4}})-({TOKEN})")
_BASE = re.compile(r"(https?)://\*\.([a-z0-9](?:[a-z0-9.-]{0,180}[a-z0-9])?)(:[0-9]{1,5})?/?")
_KEY = re.compile(rb"kn_[A-Za-z0-9_-]{20}")
OWN_COOKIE = b"kennel-"
"""How the names of Kennel's own cookies begin."""
_OWN_FIELDS = (b"x-kennel-", b"x-forwarded-", b"cf-aig-")
_FORWARDING = frozenset((b"forwarded", b"x-real-ip"))
# A page of one preview must not empty the browser of what its neighbours, the console among them, have put there.
_KEPT_OUT = frozenset((b"clear-site-data",))


def new_token() -> str:
    """What a preview's label holds beside the port; nobody guesses it."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(LETTERS))


@dataclass(frozen=True, slots=True)
class Base:
    """Where previews live, as visitors see it: `http://*.localhost:8788`."""

    scheme: str
    domain: str
    port: str

    @classmethod
    def parse(cls, text: str) -> Base:
        """ValueError when it is not scheme, `*.` and a domain of lower case, with a port at most."""
        found = _BASE.fullmatch(text)
        if found is None or ".." in found[2]:
            raise ValueError(f"'{text}' is no place for previews; write it like 'https://*.preview.example.com'")
        return cls(found[1], found[2], found[3] or "")

    def url(self, port: int, token: str) -> str:
        """One preview's address."""
        return f"{self.scheme}://{port}-{token}.{self.domain}{self.port}/"

    def label_of(self, host: bytes) -> tuple[int, str] | None:
        """Port and token that a Host field names; None when it names no preview of this place.

        Its port is not looked at: a forwarded or tunnelled listener has another one than its own.
        """
        name, colon, port = host.decode("latin-1").lower().partition(":")
        if colon and not (port.isascii() and port.isdigit() and len(port) <= 5):
            return None
        label, _, domain = name.partition(".")
        found = _LABEL.fullmatch(label)
        if found is None or domain != self.domain or int(found[1]) > 65535:
            return None
        return int(found[1]), found[2]


def inward(headers: list[Header]) -> list[Header]:
    """A visitor's fields as the server in the sandbox gets them, without those that say who forwarded."""
    found: list[Header] = []
    for name, value in headers:
        if name.startswith(_OWN_FIELDS) or name in _FORWARDING:
            continue
        if name == b"authorization" and _KEY.search(value):
            continue
        if name == b"cookie":
            value = _without(value, b";", OWN_COOKIE)
        elif name == b"sec-websocket-protocol":
            value = _without(value, b",", b"kennel.")
        if value or name not in (b"cookie", b"sec-websocket-protocol"):
            found.append((name, value))
    return found


def _without(value: bytes, mark: bytes, prefix: bytes) -> bytes:
    words = [word.strip() for word in value.split(mark)]
    return (mark + b" ").join(word for word in words if word and not word.lower().startswith(prefix))


def outward(headers: list[Header]) -> list[Header]:
    """A server's fields as the visitor gets them; the address is a capability, so it is told to nobody else."""
    found: list[Header] = []
    for name, value in headers:
        if name.startswith(_OWN_FIELDS) or name in _KEPT_OUT:
            continue
        if name == b"set-cookie":
            if value.lstrip().lower().startswith(OWN_COOKIE):
                continue
            value = _for_this_host(value)
        found.append((name, value))
    if all(name != b"referrer-policy" for name, _ in found):
        found.append((b"referrer-policy", b"same-origin"))
    return found


def _for_this_host(cookie: bytes) -> bytes:
    """A cookie for the whole domain would reach every other preview: it stays with its own host."""
    parts = cookie.split(b";")
    return b";".join(
        part for at, part in enumerate(parts) if at == 0 or part.partition(b"=")[0].strip().lower() != b"domain"
    )
