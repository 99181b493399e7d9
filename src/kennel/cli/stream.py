"""Owns `kennel stream …`: a project's streams from the command line.

Called by `__main__`. Invariant: nothing but `append` creates a stream.
"""

from __future__ import annotations

import sys
from typing import Annotated, Any

import msgspec
from cyclopts import App, Parameter

from kennel.cli.flags import DEFAULTS, Flags, misuse
from kennel.cli.output import printable, show_json

app = App(name="stream", help="List streams, append events of your own, export.")

Path = Annotated[str, Parameter(help="The stream's path, from its leading slash on.")]
Text = Annotated[str | None, Parameter(show_default=False, allow_leading_hyphen=True)]
MAX_STDIN = 4 * 1024 * 1024
"""What one batch may hold."""


@app.command
def append(
    path: Path,
    type: Annotated[str | None, Parameter(help="The event's type; without it, events are read from stdin.")] = None,
    /,
    *,
    payload: Text = None,
    metadata: Text = None,
    key: Text = None,
    offset: int | None = None,
    flags: Flags = DEFAULTS,
) -> None:
    """Append an event, or a batch from stdin (one JSON object a line), which lands whole or not at all.

    Parameters
    ----------
    payload: a JSON object.
    metadata: a JSON object.
    key: an idempotency key: an event that the stream has under it is returned instead.
    offset: the offset at which it must land.
    """
    from kennel.cli.telling import Teller

    events = [_event(type, payload, metadata, key, offset)] if type is not None else _lines()
    with flags.client() as itx:
        kept = itx.streams.get(path).append(events)
    if flags.json:
        show_json(kept)
    else:
        for event in kept:
            print(Teller({}).line(event))


@app.command(name="list")
def list_(prefix: Path = "/", /, *, flags: Flags = DEFAULTS) -> None:
    """List the streams at or below a path."""
    with flags.client() as itx:
        found = itx.streams.list(prefix)
    if flags.json:
        show_json(found)
    else:
        for path in found:
            print(printable(path))


@app.command
def export(path: Path, /, *, flags: Flags = DEFAULTS) -> None:
    """Write a whole stream to stdout as JSON lines, up to where it ends now."""
    with flags.client() as itx, itx.streams.get(path).export() as lines:
        for text in lines:
            sys.stdout.buffer.write(text)


def _event(type: str, payload: str | None, metadata: str | None, key: str | None, offset: int | None) -> dict[str, Any]:
    """One event from words."""
    given = {"payload": _object(payload, "--payload"), "metadata": _object(metadata, "--metadata")}
    return {"type": type, "idempotency_key": key, "offset": offset} | given


def _object(text: str | None, flag: str) -> dict[str, Any] | None:
    try:
        return None if text is None else msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeError) as failure:
        raise misuse(f"{flag} takes a JSON object: {failure}", hint="""{"like": "this"}""") from failure


def _lines() -> list[dict[str, Any]]:
    """A batch from stdin."""
    raw = sys.stdin.buffer.read(MAX_STDIN + 1)
    if len(raw) > MAX_STDIN:
        raise misuse(f"a batch has at most {MAX_STDIN} bytes")
    try:
        found = msgspec.json.Decoder(dict[str, Any]).decode_lines(raw)
    except (msgspec.MsgspecError, UnicodeError) as failure:
        raise misuse(f"stdin is not one JSON object a line: {failure}") from failure
    if not found:
        raise misuse("there is no event to append", hint="""kennel stream append /notes note --payload '{"a": 1}'""")
    return found
