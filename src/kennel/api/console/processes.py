"""Owns the processes' page of a sandbox and the page of one: start, look, signal, end, its log live.

Called by console/app.py; the log is put on the page by static/log.js. Invariants: looking at the list wakes nothing;
what a process wrote is text, on the page and on its way there; a list that did not change is not replaced under the
reader.
"""

from __future__ import annotations

import hashlib
import re
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack
from typing import Any

from starlette.responses import Response
from starlette.routing import BaseRoute

from kennel.api.console import live
from kennel.api.console.forms import checked
from kennel.api.console.sandbox import frame, path
from kennel.api.console.text import Output
from kennel.api.console.visit import Visit, get, post
from kennel.api.event_stream import EventStream
from kennel.api.log_messages import Held
from kennel.api.routes.exec import ExecRequest, command_of
from kennel.api.routes.processes import PROCESS_PATTERN, ProcessRequest
from kennel.api.services import running_of
from kennel.control.processes import Processes
from kennel.domain.command import DEFAULT_CWD
from kennel.domain.process import LogPiece, ProcessFacts
from kennel.domain.signals import signal_number
from kennel.ports.processes import Log
from kennel.wire.errors import KennelError, error

SIGNALS = ("TERM", "INT", "HUP", "QUIT", "USR1", "USR2", "STOP", "CONT", "KILL")
SHOWN = 256 * 1024
"""Bytes of a log's end that a page begins with; the rest comes by the API."""
_ID = re.compile(PROCESS_PATTERN)


def _processes(visit: Visit) -> Processes:
    return running_of(visit.request).processes


def _id(visit: Visit) -> str:
    found: str = visit.request.path_params["process"]
    if not _ID.fullmatch(found):
        raise error("PROCESS_NOT_FOUND", "There is no process of this name.")
    return found


def mark(found: Sequence[ProcessFacts]) -> str:
    """Changes with what the list shows."""
    words = "\n".join(f"{each.runtime} {each.id} {each.state} {each.exit}" for each in found)
    return hashlib.sha256(words.encode("utf-8", "surrogatepass")).hexdigest()[:16]


async def _list(visit: Visit) -> dict[str, Any]:
    found = await _processes(visit).list(visit.project, path(visit))
    found.sort(key=lambda each: (each.state != "running", -each.began))
    rows = [(each, each.to_wire()) for each in found]
    return {"rows": rows, "mark": mark(found), "signals": SIGNALS, "name": visit.request.path_params["name"]}


@get("/sandboxes/{name}/processes")
async def page(visit: Visit) -> Response:
    """The page."""
    shown = await frame(visit)
    return visit.page("processes.html", **shown, **await _list(visit))


@get("/sandboxes/{name}/processes-rows")
async def rows(visit: Visit) -> Response:
    """The list alone, which the page asks for again and again."""
    await frame(visit)
    found = await _list(visit)
    if visit.request.query_params.get("seen") == found["mark"]:
        return Response(status_code=204)
    return visit.piece("process-rows.html", **found)


def _back(visit: Visit, notice: str, *more: str) -> Response:
    return visit.go(visit.url("sandboxes", visit.request.path_params["name"], "processes", *more), notice)


@post("/sandboxes/{name}/processes", "exec")
async def start(visit: Visit) -> Response:
    """Starts one, waking the sandbox if it sleeps, and shows it."""
    form = visit.form
    words = {
        "command": form.text("command"),
        "cwd": form.text("cwd").strip() or DEFAULT_CWD,
        "id": form.text("id").strip() or None,
        "keepAwake": form.flag("keepAwake"),
    }
    body = checked(ProcessRequest, words)
    command = command_of(ExecRequest(command=body.command, cwd=body.cwd))
    facts = await _processes(visit).start(
        visit.who, visit.project, path(visit), command, process_id=body.id, stdin=False, keep_awake=body.keep_awake
    )
    return _back(visit, f"{facts.id} runs.", facts.id)


@get("/sandboxes/{name}/processes/{process}", "exec")
async def one(visit: Visit) -> Response:
    """One process and the end of its log."""
    shown, name = await frame(visit), _id(visit)
    async with _processes(visit).log(visit.who, visit.project, path(visit), name, 0, follow=False, runtime=None) as log:
        pieces, at, missed = await _tail(log)
        facts = log.facts
    return visit.page(
        "process.html", one=facts, told=facts.to_wire(), pieces=pieces, at=at, missed=missed, signals=SIGNALS, **shown
    )


async def _tail(log: Log) -> tuple[list[tuple[str, str]], int, int]:
    """The last SHOWN bytes as (stream, text), the position after them, and how many bytes came before."""
    kept: deque[LogPiece] = deque()
    held, at, missed = 0, log.facts.first, 0
    async for piece in log:
        at, missed = piece.next, missed + piece.missed
        if piece.stream is not None:
            kept.append(piece)
            held += len(piece.data)
        while held > SHOWN and len(kept) > 1:
            gone = len(kept.popleft().data)
            held, missed = held - gone, missed + gone
    streams = {"stdout": Output(), "stderr": Output()}
    return [(str(each.stream), streams[str(each.stream)].take(each.data)) for each in kept], at, missed


@get("/sandboxes/{name}/processes/{process}/log", "exec")
async def follow(visit: Visit) -> Response:
    """Its log, live, from a position on; then how it ended."""
    name, stack = _id(visit), AsyncExitStack()
    runtime = visit.request.query_params.get("runtime", "")[:64] or None
    log = await stack.enter_async_context(
        _processes(visit).log(
            visit.who, visit.project, path(visit), name, live.since(visit), follow=True, runtime=runtime
        )
    )
    return EventStream(Held(live.messages(_told(log), _sent), stack))


async def _told(log: Log) -> AsyncGenerator[tuple[str, dict[str, Any], int | None], None]:
    streams = {"stdout": Output(), "stderr": Output()}
    try:
        async for piece in log:
            if piece.stream is None:
                yield "missed", {"bytes": piece.missed}, piece.at
            elif words := streams[piece.stream].take(piece.data):
                # Going on from here would lose what has only begun, on either stream.
                whole = not any(each.holds for each in streams.values())
                yield "piece", {"stream": piece.stream, "text": words}, piece.next if whole else None
    except KennelError as failure:
        yield "over", {"said": f"{failure} ({failure.code})"}, None
        return
    facts = log.facts
    if facts.state != "running":
        yield "over", {"said": ended(facts)}, facts.last


def _sent(item: tuple[str, dict[str, Any], int | None]) -> bytes:
    kind, words, at = item
    return live.sent(words, event=kind, last_id=at)


def ended(facts: ProcessFacts) -> str:
    """How it ended, in a few words."""
    if facts.error is not None:
        return f"failed: {facts.error[1]}"
    if facts.exit is None:
        return "ended"
    after = " after its time ran out" if facts.exit.timed_out else ""
    return f"ended by {facts.exit.signal}{after}" if facts.exit.signal else f"ended with exit code {facts.exit.code}"


@post("/sandboxes/{name}/processes/{process}/signal", "exec")
async def signal(visit: Visit) -> Response:
    """Signals every process of it."""
    word = visit.form.text("signal")
    await _processes(visit).signal(visit.project, path(visit), _id(visit), signal_number(word))
    return _after(visit, f"{_id(visit)} was sent {word}.")


@post("/sandboxes/{name}/processes/{process}/kill", "exec")
async def kill(visit: Visit) -> Response:
    """Ends all of it, first asking it to."""
    facts = await _processes(visit).kill(visit.project, path(visit), _id(visit), grace_ms=None)
    return _after(visit, f"{facts.id} {ended(facts)}.")


def _after(visit: Visit, notice: str) -> Response:
    return _back(visit, notice, *([_id(visit)] if visit.form.flag("here") else []))


routes: list[BaseRoute] = [page, rows, start, one, follow, signal, kill]
