"""Owns how an event reads as one line: when, who asked, what for, and what came of it.

Called by `kennel logs` and `kennel stream`. Invariant: one event is one line, whatever a sandbox or a
caller wrote in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from kennel.cli.output import printable
from kennel.wire.errors import Forbidden

if TYPE_CHECKING:
    from kennel import Event, Kennel

KEY_WIDTH = 24
MAX_TOLD = 300
"""Characters of an event's payload on its line; `--json` has all of it."""


def key_names(itx: Kennel) -> dict[str, str]:
    """Keys' names by id, as far as this key may know them."""
    try:
        return {key.id: key.name for key in itx.keys.list()}
    except Forbidden:
        return {}


class Teller:
    """Makes lines of events, given the names of keys by id."""

    def __init__(self, names: dict[str, str]) -> None:
        self._who = {key: f"{key} ({name})" for key, name in names.items()}
        self._width = max((len(who) for who in self._who.values()), default=KEY_WIDTH)

    def line(self, event: Event) -> str:
        """`OFFSET  TIME  WHO  TYPE  WHAT`; WHO is the key's id and name, `system` when Kennel acted by itself."""
        key = event.source.key_id or "-"
        who = f"{self._who.get(key, key):<{self._width}}"
        parts = (f"{event.offset:>5}", event.created_at, who, f"{event.type:<24}", told(event))
        return printable("  ".join(parts).rstrip())


def told(event: Event) -> str:
    """What an event says beside its type."""
    payload = event.payload
    if event.type == "sandbox/exec-started":
        text = f"{_short(payload)} $ {payload.get('command', '')}"
    elif event.type == "sandbox/exec-finished":
        text = f"{_short(payload)} {_outcome(payload)}"
    else:
        text = " ".join(f"{name}={_value(value)}" for name, value in payload.items())
    return text if len(text) <= MAX_TOLD else text[: MAX_TOLD - 1] + "…"


def _short(payload: dict[str, Any]) -> str:
    return f"[{str(payload.get('execId', '?'))[:6]}]"


def _value(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _outcome(payload: dict[str, Any]) -> str:
    """How a command ended."""
    parts = []
    if payload.get("error"):
        parts.append(f"error {payload['error']}")
    if payload.get("timedOut"):
        parts.append("timed out")
    if payload.get("exitCode") is not None:
        parts.append(f"exit {payload['exitCode']}")
    if payload.get("signal"):
        parts.append(str(payload["signal"]))
    if isinstance(payload.get("durationMs"), int | float):
        parts.append(f"{payload['durationMs']:.0f} ms")
    if payload.get("stdoutBytes") is not None:
        parts.append(f"{payload['stdoutBytes']}+{payload.get('stderrBytes', 0)} bytes")
    return ", ".join(parts)
