"""Owns how an event reads for people: a short name, a tone, and one line of what it says.

Called by the templates of the sandbox, room and stream pages. Invariant: an event of any shape has a line; what others
wrote is shown as what it is and never taken for Kennel's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kennel.api.console import text
from kennel.domain.event import Event, trusted

MAX_LINE = 200
_TONES = {
    "sandbox/started": "good", "sandbox/created": "good", "sandbox/workspace-restored": "good",
    "sandbox/destroyed": "bad", "sandbox/backup-failed": "bad", "sandbox/restore-failed": "bad",
    "sandbox/kill-requested": "warn", "sandbox/destroy-requested": "warn", "sandbox/create-abandoned": "bad",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Line:
    """An event as a row shows it; `tone` is `good`, `warn`, `bad` or empty; `foreign` when Kennel did not write it."""

    event: Event
    says: str
    tone: str
    foreign: bool


def line(event: Event) -> Line:
    """The row of an event."""
    own = trusted(event)
    says, tone = _says(event.type, event.payload), _TONES.get(event.type, "")
    if event.type == "sandbox/exec-finished" and event.payload.get("exitCode") != 0:
        tone = "warn"
    if event.type == "egress/recorded":
        tone = {"deny": "bad", "hold": "warn"}.get(str(event.payload.get("verdict")), "")
    return Line(event, says[:MAX_LINE], tone if own else "", not own)


def _says(kind: str, payload: Mapping[str, Any]) -> str:
    match kind:
        case "sandbox/exec-started" | "sandbox/process-started" | "room/command-started":
            return f"$ {payload.get('command', '')}"
        case "sandbox/backup-created" | "sandbox/point-taken" | "sandbox/directory-saved":
            return _kept(payload)
        case "room/message-said":
            return f"{payload.get('userId') or payload.get('role', '')}: {payload.get('text', '')}"
        case "sandbox/exec-finished":
            return _ended(payload)
        case "sandbox/configured":
            return ", ".join(_settings(payload))
        case "sandbox/create-requested" | "stream/child-stream-created" | "room/sandbox-assigned" | "room/cleaned":
            return str(payload.get("path") or payload.get("childPath") or "")
        case "egress/recorded":
            return _recorded(payload)
        case "room/shell-saved":
            return f"in {payload.get('cwd', '')}"
    words = [f"{name}: {value}" for name, value in payload.items() if isinstance(value, str | int | float | bool)]
    return " · ".join(words)


def _recorded(payload: Mapping[str, Any]) -> str:
    """A line of the audit: who wanted what, what became of it, by which rule."""
    what = payload.get("url") or f"{payload.get('host', '')}:{payload.get('port', '')}".strip(":")
    parts = [f"{payload.get('sandbox', '')} {payload.get('method', '')} {what}".strip()]
    if verdict := payload.get("verdict"):
        rule = payload.get("ruleKey")
        parts.insert(0, f"{verdict}{f' by {rule}' if rule else ''}")
    else:
        parts.insert(0, str(payload.get("kind", "")))
    if would := payload.get("would"):
        parts.append(f"would be: {would}")
    parts += [str(payload[name]) for name in ("status", "code", "secretPath") if payload.get(name)]
    return text.one_line(" · ".join(parts))


def _kept(payload: Mapping[str, Any]) -> str:
    """Files that were kept: what for, how much it added, under which id."""
    parts = [str(payload[name]) for name in ("dir", "name", "reason") if payload.get(name)]
    if isinstance(count := payload.get("bytes"), int):
        parts.append(text.size(count))
    return " · ".join([*parts, str(payload.get("backupId", ""))])


def _ended(payload: Mapping[str, Any]) -> str:
    if "error" in payload:
        return f"failed: {payload['error']}"
    parts = [f"exit code {payload.get('exitCode')}"]
    if payload.get("timedOut"):
        parts.append("time ran out")
    if isinstance(took := payload.get("durationMs"), int | float):
        parts.append(text.duration(took))
    if isinstance(count := payload.get("stdoutBytes"), int):
        parts.append(f"{text.size(count)} of output")
    return " · ".join(parts)


def _settings(payload: Mapping[str, Any]) -> list[str]:
    words = []
    env = payload.get("env")
    if isinstance(env, Mapping):
        words += [f"unset {name}" if value is None else f"set {name}" for name, value in env.items()]
    words += [f"{name}: {payload[name]}" for name in ("sleepAfter", "keepAlive") if name in payload]
    if "labels" in payload:
        words.append("labels")
    return words
