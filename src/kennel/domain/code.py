"""Owns what a code context and a cell's events are, and how the wire shows them; no I/O.

Called by relay, control and the API. Invariants: an id names the run of the sandbox it belongs to, so that one that
ended with its run is told from one that never was; formats nobody has a field for stay under their MIME type.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from kennel.domain.command import DEFAULT_CWD
from kennel.wire.errors import KennelError, error

Language = Literal["python", "javascript", "typescript"]
ContextState = Literal["starting", "idle", "busy", "ended"]
EventKind = Literal["start", "stdout", "stderr", "result", "error", "clear", "end", "failure"]

LANGUAGES: tuple[Language, ...] = ("python", "javascript", "typescript")
_ALIASES: dict[str, Language] = {"python3": "python", "js": "javascript", "node": "javascript", "ts": "typescript"}
LANGUAGE_NAMES = (*LANGUAGES, *_ALIASES)
"""What a language may be called."""
CONTEXT_ID = r"c-[0-9a-f]{8}-[0-9a-f]{12}"
_CONTEXT = re.compile(CONTEXT_ID)
FIELDS = {
    "text/plain": "text",
    "text/html": "html",
    "text/markdown": "markdown",
    "text/latex": "latex",
    "image/png": "png",
    "image/jpeg": "jpeg",
    "image/svg+xml": "svg",
    "application/json": "json",
    "application/javascript": "javascript",
    "application/pdf": "pdf",
}
"""MIME types that have a field of their own in a result; images are base64 but for SVG."""
_CHARTS = ((re.compile(r"application/vnd\.plotly\.v\d+\+json"), "plotly"),
           (re.compile(r"application/vnd\.vegalite\.v\d+(\.\d+)*(\+json)?"), "vegalite"),
           (re.compile(r"application/vnd\.vega\.v\d+(\.\d+)*(\+json)?"), "vega"),
           (re.compile(r"application/vnd\.kennel\.chart\+json"), None))  # fmt: skip


@dataclass(frozen=True, slots=True)
class NewContext:
    """What a context is made of; `python` is an interpreter inside the sandbox, of its virtual environment mostly."""

    language: Language = "python"
    cwd: str = DEFAULT_CWD
    env: dict[str, str] = field(default_factory=dict)
    python: str | None = None


@dataclass(frozen=True, slots=True)
class ContextFacts:
    """A context; times are milliseconds since 1970, `ended` says how its program ended."""

    id: str
    language: Language
    cwd: str
    state: ContextState
    created: int
    used: int
    execution_count: int
    ended: dict[str, Any] | None = None

    def to_wire(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "id": self.id,
            "language": self.language,
            "cwd": self.cwd,
            "status": self.state,
            "createdAt": _time(self.created),
            "lastUsed": _time(self.used),
            "executionCount": self.execution_count,
            "ended": self.ended,
        }


@dataclass(frozen=True, slots=True)
class CellCode:
    """A cell as it is asked for; the variables in `env` are for it alone."""

    code: str
    timeout_ms: int | None = None
    env: dict[str, str] = field(default_factory=dict)


def language_of(text: str) -> Language:
    """The language of a name or its alias; VALIDATION_FAILED."""
    known = _ALIASES.get(text)
    for language in LANGUAGES:
        if text == language or known == language:
            return language
    raise error(
        "VALIDATION_FAILED",
        f"{text[:40]!r} is no language of a code context",
        details={"language": [f"one of {', '.join(LANGUAGES)}"]},
    )


def prefix_of(runtime: str) -> str:
    """What the ids of contexts in this run of a sandbox begin with."""
    return f"c-{runtime[:8]}-"


def check_run(context_id: str, runtime: str | None) -> None:
    """CONTEXT_TERMINATED for a context of another run than this one (None: it sleeps); CONTEXT_NOT_FOUND for none."""
    if _CONTEXT.fullmatch(context_id) is None:
        raise not_found(context_id)
    if runtime is None or not context_id.startswith(prefix_of(runtime)):
        raise error(
            "CONTEXT_TERMINATED",
            "the context has ended: its sandbox was stopped since",
            details={"contextId": context_id, "reason": "stopped"},
            hint="make a new context; its variables are gone, files in /workspace are not",
            admitted="no",
        )


def not_found(context_id: str) -> KennelError:
    """There is no such context."""
    return error(
        "CONTEXT_NOT_FOUND", "there is no such context", details={"contextId": context_id[:200]}, admitted="no"
    )


def result_body(data: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A result as JSON: known formats by their short names, charts as data, the rest under `data`."""
    body: dict[str, Any] = {}
    rest: dict[str, Any] = {}
    for mime, value in data.items():
        chart = _chart(mime, value)
        if chart is not None:
            body["chart"] = chart
        elif mime in FIELDS and (mime == "application/json" or isinstance(value, str)):
            body[FIELDS[mime]] = value
        else:
            rest[mime] = value
    return body | ({"data": rest} if rest else {}) | {name: value for name, value in more.items() if value is not None}


def _chart(mime: str, value: Any) -> Any:
    for pattern, kind in _CHARTS:
        if pattern.fullmatch(mime) and isinstance(value, dict):
            return value if kind is None else {"type": kind, "spec": value}
    return None


def _time(milliseconds: int) -> str:
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
