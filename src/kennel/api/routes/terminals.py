"""Owns the routes of terminals: the WebSocket that shows and drives one, listing, closing.

Called by app.py. Invariants: a terminal goes on without its socket; at most one socket drives, a new one takes over and
the one before is told; whoever watches has no keys. Who hears an onlooker out has no terminal to hand that on to.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request, WebSocket
from starlette.datastructures import QueryParams
from starlette.responses import Response
from starlette.websockets import WebSocketState

from kennel.api.access import allow, check
from kennel.api.answers import json_response
from kennel.api.body import StrictRoute
from kennel.api.failures import invalid
from kennel.api.fields import ProjectName, SandboxName
from kennel.api.openapi import IN_PROJECT, OF_NODE, OF_SANDBOX, answers, listing
from kennel.api.services import running_of
from kennel.api.sockets import Socket, accepted, refuse
from kennel.control.terminals import TerminalOptions
from kennel.domain.names import path_of
from kennel.domain.principal import Principal
from kennel.ports.guest import Guest
from kennel.ports.processes import Screen
from kennel.wire.errors import KennelError, error

router = APIRouter(
    prefix="/v1/projects/{project}/sandboxes/{name}/terminals", tags=["terminals"], route_class=StrictRoute
)

Reader = Annotated[Principal, Depends(allow("read"))]
Runner = Annotated[Principal, Depends(allow("exec"))]
TERMINAL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
TerminalInPath = Annotated[str, Path(alias="terminalId", pattern=f"^{TERMINAL.pattern}$")]
MAX_SIDE = 1000
AGAIN = 4000
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,31}(?::[0-9]{1,10})?")
_TERMINAL = {"type": "object", "required": ["id", "status"], "properties": {"id": {"type": "string"}}}
_OF_ALL = (*IN_PROJECT, *OF_SANDBOX, *OF_NODE)


@router.get("", responses=answers(200, listing("terminals", _TERMINAL), *_OF_ALL))
async def list_all(request: Request, project: ProjectName, name: SandboxName, _: Reader) -> Response:
    """The terminals that are open, and the last 25 that ended; a sleeping sandbox has none."""
    found = await running_of(request).terminals.list(project, path_of(name))
    return json_response({"terminals": [facts.to_wire() for facts in found]})


@router.delete("/{terminalId}", responses=answers(200, _TERMINAL, *_OF_ALL, "TERMINAL_NOT_FOUND"))
async def close(
    request: Request, project: ProjectName, name: SandboxName, terminal_id: TerminalInPath, _: Runner
) -> Response:
    """Hangs up on what runs on it."""
    return json_response((await running_of(request).terminals.close(project, path_of(name), terminal_id)).to_wire())


@router.websocket("/{terminal_id}")
async def show(websocket: WebSocket, project: str, name: str, terminal_id: str) -> None:
    """Shows a terminal, opening it (a shell, or `argv`) when there is none.

    Query: `cols`, `rows`, `since` (a position), `mode=drive|watch`, `argv` (repeated), `cwd`, `user`, `runtime`. Binary
    messages are the terminal's bytes both ways. Text from the client: `resize`; from the server: `ready` once what was
    kept is shown, `role`, `resize`, `truncated`, and at the end `exit` or `error`.
    """
    try:
        who = await check(websocket, "exec", project)
        await serve(websocket, who, project, name, terminal_id)
    except KennelError as failure:
        if websocket.client_state is not WebSocketState.CONNECTING:
            raise
        await refuse(websocket.scope, websocket.send, failure)


async def serve(
    websocket: WebSocket, who: Principal, project: str, name: str, terminal_id: str, *, seconds: float | None = None
) -> None:
    """The whole of one socket; after `seconds` it closes with AGAIN, which says to come back with the cursor."""
    try:
        terminals = running_of(websocket).terminals
        asked = _asked(websocket, terminal_id)
        # Attached before the handshake is answered: whoever comes later takes over, and a refusal is an HTTP answer.
        async with terminals.attach(
            who, project, path_of(name), terminal_id, asked.options, since=asked.since, drive=asked.drive,
            runtime=asked.runtime,
        ) as (guest, screen), accepted(websocket) as socket:  # fmt: skip
            await _converse(socket, screen, _listen(socket, guest, screen), seconds)
    except KennelError as failure:
        if websocket.client_state is not WebSocketState.CONNECTING:
            raise
        await refuse(websocket.scope, websocket.send, failure)


async def watch(websocket: WebSocket, project: str, name: str, terminal_id: str, *, seconds: float) -> None:
    """The whole of an onlooker's socket, whatever `mode` it asks for: what they send is read and forgotten."""
    try:
        terminals = running_of(websocket).terminals
        asked = _asked(websocket, terminal_id)
        async with terminals.watch(
            project, path_of(name), terminal_id, since=asked.since, runtime=asked.runtime
        ) as screen, accepted(websocket) as socket:  # fmt: skip
            await _converse(socket, screen, _ignore(socket), seconds)
    except KennelError as failure:
        if websocket.client_state is not WebSocketState.CONNECTING:
            raise
        await refuse(websocket.scope, websocket.send, failure)


def _asked(websocket: WebSocket, terminal_id: str) -> Asked:
    if not TERMINAL.fullmatch(terminal_id):
        raise invalid({"terminalId": [f"like {TERMINAL.pattern}"]})
    return Asked(websocket.query_params)


class Asked:
    """The query of a terminal's socket; VALIDATION_FAILED."""

    def __init__(self, query: QueryParams) -> None:
        mode, user, cwd = query.get("mode", "drive"), query.get("user"), query.get("cwd", "/workspace")
        if mode not in ("drive", "watch"):
            raise invalid({"mode": ["'drive' or 'watch'"]})
        if user is not None and not _USER.fullmatch(user):
            raise invalid({"user": ["a name, a uid, or uid:gid"]})
        if not cwd.startswith("/") or "\0" in cwd or len(cwd) > 4096:
            raise invalid({"cwd": ["an absolute path"]})
        argv = tuple(query.getlist("argv"))
        if len(argv) > 256 or any("\0" in word for word in argv) or (argv and not argv[0]):
            raise invalid({"argv": ["at most 256 words, the first of them a program"]})
        self.drive = mode == "drive"
        self.since = _number(query, "since", None, 2**53)
        self.runtime = query.get("runtime")
        columns, rows = _number(query, "cols", 80, MAX_SIDE), _number(query, "rows", 24, MAX_SIDE)
        self.options = TerminalOptions(
            argv=argv or None, cwd=cwd, user=user, columns=max(1, columns or 80), rows=max(1, rows or 24)
        )


def _number(query: QueryParams, name: str, default: int | None, most: int) -> int | None:
    text = query.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > 16 or int(text) > most:
        raise invalid({name: [f"a whole number up to {most}"]})
    return int(text)


async def _converse(socket: Socket, screen: Screen, heard: Coroutine[Any, Any, None], seconds: float | None) -> None:
    """Both directions at once, for so long, then AGAIN."""
    try:
        async with asyncio.timeout(seconds):
            await _both(_tell(socket, screen), heard)
    except TimeoutError as late:
        if isinstance(late, KennelError):
            raise
        await socket.close(AGAIN, "come back with the cursor")


async def _both(told: Coroutine[Any, Any, None], heard: Coroutine[Any, Any, None]) -> None:
    """The first to end ends both."""
    telling, listening = asyncio.create_task(told), asyncio.create_task(heard)
    try:
        done, _ = await asyncio.wait({telling, listening}, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in (telling, listening):
            task.cancel()
        await asyncio.gather(telling, listening, return_exceptions=True)


async def _tell(socket: Socket, screen: Screen) -> None:
    facts = screen.facts
    ready = {
        "type": "ready",
        "terminalId": facts.id,
        "runtime": facts.runtime,
        "role": "drive" if screen.drives else "watch",
        "cols": facts.columns,
        "rows": facts.rows,
    }
    at, replay = screen.at, facts.last
    if screen.missed:
        await socket.send({"type": "truncated", "bytes": screen.missed})
    told = at >= replay
    if told:
        await socket.send({**ready, "cursor": at})
    async for piece in screen:
        if isinstance(piece, bytes):
            at += len(piece)
        elif piece["type"] == "truncated":
            at += piece["bytes"]
        await socket.send(piece)
        if not told and at >= replay:
            told = True
            await socket.send({**ready, "cursor": at})
    ending = await screen.ending()
    if ending.exit is not None:
        await socket.send({"type": "exit", **ending.exit.to_wire(), "cursor": at})


async def _listen(socket: Socket, guest: Guest, screen: Screen) -> None:
    while True:
        message = await socket.receive()
        if isinstance(message, bytes):
            if message:
                await screen.write(message)
        else:
            await _obey(guest, screen, message)


async def _ignore(socket: Socket) -> None:
    """Until the onlooker leaves."""
    while True:
        await socket.receive()


async def _obey(guest: Guest, screen: Screen, words: dict[str, Any]) -> None:
    columns, rows = words.get("cols"), words.get("rows")
    if words.get("type") != "resize":
        raise error("VALIDATION_FAILED", "a client says 'resize'")
    if not all(isinstance(side, int) and 1 <= side <= MAX_SIDE for side in (columns, rows)):
        raise error("VALIDATION_FAILED", f"cols and rows are whole numbers from 1 to {MAX_SIDE}")
    await guest.terminals.resize(screen.facts.id, int(columns or 0), int(rows or 0))
