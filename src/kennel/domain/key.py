"""Owns API keys: how a token is made and recognised, what its events say, and the fold of them.

Called by control/keys.py. Invariant: a token exists in the caller's hands alone; the log holds its SHA-256, which no
view shows; a revoked key stays revoked.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

import msgspec

from kennel.domain.event import Event, trusted
from kennel.domain.principal import SCOPES, Principal
from kennel.wire.errors import error

STREAM = "/keys"
CREATED, REVOKED = "key/created", "key/revoked"
PREFIX = "kn_"
MAX_TOKEN = 256
MAX_NAME = 100
_SHA256 = re.compile(r"[0-9a-f]{64}")


class KeyView(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A key as lists show it; `project` is None for one of the whole installation. Times are ISO 8601 in UTC."""

    id: str
    name: str
    project: str | None
    scopes: list[str]
    created_at: str
    revoked_at: str | None = None


class KeyRing:
    """Every key there ever was by id, (hash, id) by hash, and the holders of those in force by id."""

    def __init__(self) -> None:
        self.views: dict[str, KeyView] = {}
        self.hashes: dict[str, tuple[str, str]] = {}
        self.principals: dict[str, Principal] = {}


def digest(token: str) -> str:
    """The hex SHA-256 by which a token is known."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def check_digest(value: str) -> str:
    """The digest itself when it is a hex SHA-256 in lower case."""
    if not _SHA256.fullmatch(value):
        raise error("VALIDATION_FAILED", "not a hex SHA-256", details={"sha256": ["must be 64 lower-case hex digits"]})
    return value


def check_scopes(scopes: Sequence[str]) -> list[str]:
    """The scopes in their canonical order, each once; VALIDATION_FAILED for an unknown one or none."""
    unknown = sorted({s if isinstance(s, str) else type(s).__name__ for s in scopes if s not in SCOPES})
    if unknown or not scopes:
        told = f"unknown: {', '.join(unknown)[:200]}" if unknown else "at least one is needed"
        raise error("VALIDATION_FAILED", "invalid scopes", details={"scopes": [told, f"known: {', '.join(SCOPES)}"]})
    return [s for s in SCOPES if s in scopes]


def check_name(name: str) -> str:
    """The name itself when it has 1 to MAX_NAME printable characters."""
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME or not name.isprintable():
        raise error(
            "VALIDATION_FAILED", "invalid key name", details={"name": [f"1 to {MAX_NAME} printable characters"]}
        )
    return name


def evolve(ring: KeyRing, event: Event) -> KeyRing:
    """The ring after one event; what Kennel has not stamped changes nothing. Works in place."""
    if not trusted(event):
        return ring
    if event.type == CREATED:
        view = KeyView(
            id=event.payload["keyId"],
            name=event.payload["name"],
            project=event.payload["project"],
            scopes=event.payload["scopes"],
            created_at=event.created_at,
        )
        ring.views[view.id] = view
        ring.hashes[event.payload["sha256"]] = (event.payload["sha256"], view.id)
        ring.principals[view.id] = Principal(view.id, view.project, frozenset(view.scopes))
    elif event.type == REVOKED and event.payload["keyId"] in ring.principals:
        key_id = event.payload["keyId"]
        ring.views[key_id] = msgspec.structs.replace(ring.views[key_id], revoked_at=event.created_at)
        del ring.principals[key_id]
    return ring
