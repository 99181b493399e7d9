"""Owns the shapes of code contexts for programs: contexts, cells' events, results, what a cell raised.

Called by both halves of the SDK. Invariant: what a server adds is ignored; a format that was not produced is None.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Any

import msgspec

from kennel.sdk.answers import Shape, decoded
from kennel.sdk.messages import Message
from kennel.wire.errors import error, from_wire

_FORMATS = ("text", "html", "markdown", "latex", "png", "jpeg", "svg", "pdf", "json", "javascript", "chart")


class CodeContextInfo(Shape):
    """A context. `status` is `starting`, `idle`, `busy` or `ended`; times are ISO 8601 in UTC."""

    id: str
    language: str
    cwd: str = ""
    status: str = ""
    created_at: str | None = None
    last_used: str | None = None
    execution_count: int = 0
    ended: dict[str, Any] | None = None


class ContextList(Shape):
    contexts: list[CodeContextInfo]


class Interrupted(Shape):
    interrupted: bool


class CodeResult(Shape):
    """Something a cell shows, in one or more formats; `main` is the value of its last expression.

    `png`, `jpeg` and `pdf` are base64 (`image()` has the bytes); `chart` is a chart's data; `data` holds other MIME
    types; `omitted` names the formats of a result that was too large to be kept.
    """

    main: bool = False
    text: str | None = None
    html: str | None = None
    markdown: str | None = None
    latex: str | None = None
    png: str | None = None
    jpeg: str | None = None
    svg: str | None = None
    pdf: str | None = None
    json: Any = None
    javascript: str | None = None
    chart: dict[str, Any] | None = None
    data: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    display_id: str | None = None
    update: bool = False
    omitted: list[str] = []

    def formats(self) -> list[str]:
        """The names of the formats it has."""
        return [name for name in _FORMATS if getattr(self, name) is not None] + sorted(self.data)

    def image(self) -> bytes:
        """The bytes of its PNG or JPEG; LookupError without one."""
        text = self.png or self.jpeg
        if text is None:
            raise error("NOT_FOUND", "this result is no PNG and no JPEG")
        try:
            return base64.b64decode("".join(text.split()), validate=True)
        except (binascii.Error, ValueError) as failure:
            raise error("PROTOCOL_VIOLATION", "the image is not base64") from failure


class CodeError(Shape):
    """What a cell raised; `traceback` is a list of lines."""

    name: str
    value: str
    traceback: list[str] = []


class Logs(Shape):
    """What a cell printed, in pieces."""

    stdout: list[str] = []
    stderr: list[str] = []


class Execution(Shape):
    """A cell at its end; one that raised has `error` and is no exception here."""

    context_id: str = ""
    execution_count: int = 0
    status: str = "ok"
    logs: Logs = msgspec.field(default_factory=Logs)
    results: list[CodeResult] = []
    error: CodeError | None = None
    timed_out: bool = False
    interrupted: bool = False
    truncated: bool = False
    dropped_bytes: int = 0
    duration_ms: float = 0.0

    @property
    def text(self) -> str | None:
        """The text of its last expression's value."""
        return next((result.text for result in self.results if result.main), None)

    @property
    def stdout(self) -> str:
        """All it printed."""
        return "".join(self.logs.stdout)

    @property
    def stderr(self) -> str:
        """All it printed to standard error."""
        return "".join(self.logs.stderr)


class CodeEvent(Shape):
    """One event of a cell: `start`, `stdout` or `stderr` with `text`, `result`, `error`, `clear`, `end`.

    `truncated` stands where events before `sequence` are no longer kept for a connection that was made again.
    """

    type: str
    sequence: int
    text: str = ""
    result: CodeResult | None = None
    error: CodeError | None = None
    end: Execution | None = None


def code_event(message: Message) -> CodeEvent:
    """What a message says; raises when it is the failure that ended the cell."""
    kind, number = message.event, int(message.id or 0)
    if kind == "failure":
        raise from_wire(500, decoded(message.data, dict[str, Any]))
    if kind in ("stdout", "stderr"):
        return CodeEvent(type=kind, sequence=number, text=decoded(message.data, _Text).text)
    if kind == "result":
        return CodeEvent(type=kind, sequence=number, result=decoded(message.data, CodeResult))
    if kind == "error":
        return CodeEvent(type=kind, sequence=number, error=decoded(message.data, CodeError))
    if kind in ("start", "end"):
        return CodeEvent(type=kind, sequence=number, end=decoded(message.data, Execution))
    return CodeEvent(type=kind, sequence=number)


class _Text(Shape):
    text: str


class Gathered:
    """A cell's events on their way to one Execution; whoever asked hears of each as it comes."""

    def __init__(self, told: dict[str, Callable[[Any], Any] | None]) -> None:
        self._told = told
        self._context = ""
        self._lossy = False
        self.execution = Execution()

    def take(self, event: CodeEvent) -> None:
        """One more."""
        found = self.execution
        if event.type == "start" and event.end is not None:
            self._context = event.end.context_id
        elif event.type in ("stdout", "stderr"):
            (found.logs.stdout if event.type == "stdout" else found.logs.stderr).append(event.text)
            self._tell(event.type, event.text)
        elif event.result is not None:
            found.results.append(event.result)
            self._tell("result", event.result)
        elif event.error is not None:
            found.error = event.error
            self._tell("error", event.error)
        elif event.type == "truncated":
            self._lossy = True
        elif event.end is not None:
            event.end.truncated = event.end.truncated or self._lossy
            event.end.logs, event.end.results, event.end.error = found.logs, found.results, found.error
            event.end.context_id = self._context
            self.execution = event.end

    def _tell(self, kind: str, value: Any) -> None:
        listener = self._told.get(kind)
        if listener is not None:
            listener(value)
