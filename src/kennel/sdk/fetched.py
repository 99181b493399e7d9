"""Owns the answer of a server in a sandbox, and telling it from a refusal of Kennel's own.

Called by both halves of the SDK. Invariant: what the sandbox answers is never taken for an error of Kennel's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from kennel.sdk.answers import body_or_none
from kennel.wire.errors import from_wire

_FENCE = b"content-security-policy"


@dataclass(frozen=True, slots=True)
class Fetched:
    """A status, headers (lower case; those that were repeated are joined by ", ") and the whole body."""

    status: int
    headers: dict[str, str]
    content: bytes

    @property
    def ok(self) -> bool:
        """Whether the status is a success."""
        return 200 <= self.status < 300

    @property
    def text(self) -> str:
        """The body as UTF-8; what is none became U+FFFD."""
        return self.content.decode("utf-8", "replace")

    def json(self) -> Any:
        """The body as JSON; ValueError when it is none."""
        try:
            return msgspec.json.decode(self.content)
        except msgspec.DecodeError as fault:
            raise ValueError(str(fault)) from fault


def fetched(status: int, headers: Sequence[tuple[bytes, bytes]], content: bytes) -> Fetched:
    """The server's answer; raises when Kennel answered instead."""
    names = {name.lower() for name, _ in headers}
    if _FENCE not in names:
        raise from_wire(status, body_or_none(content))
    found: dict[str, str] = {}
    for name, value in headers:
        word, told = name.decode("latin-1").lower(), value.decode("latin-1")
        found[word] = f"{found[word]}, {told}" if word in found else told
    return Fetched(status, found, content)
