"""Owns the routes of commands that are followed: return to one, its end on demand, and the WebSocket with live input.

Called by app.py. Invariants: whoever leaves the socket ends the command; a stream's reader can be replaced, never
doubled.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Request, WebSocket
from pydantic import ValidationError
from starlette.responses import Response

from kennel.api.access import allow, check
from kennel.api.body import StrictRoute
from kennel.api.event_stream import EventStream
from kennel.api.exec_messages import FAREWELL, STDIN, exec_frame, exec_messages
from kennel.api.failures import field_messages, invalid
from kennel.api.fields import ProjectName, SandboxName
from kennel.api.last_event import last_event_id
from kennel.api.openapi import IN_PROJECT, OF_SANDBOX, answers
from kennel.api.routes.exec import ExecRequest, command_of
from kennel.api.services import running_of
from kennel.api.sockets import Socket, accepted, refuse
from kennel.control.exec_stream import ExecStream
from kennel.domain.names import path_of
from kennel.domain.principal import Principal
from kennel.domain.signals import signal_number
from kennel.wire.errors import KennelError, error

router = APIRouter(prefix="/v1/projects/{project}/sandboxes/{name}/exec", tags=["exec"], route_class=StrictRoute)

Runner = Annotated[Principal, Depends(allow("exec"))]
ExecId = Annotated[str, Path(alias="execId", pattern=r"^[0-9a-f]{16}$")]
FIRST_WORDS = 10.0
"""Seconds for the command to arrive on a socket that was accepted."""
_OF_STREAM = (*IN_PROJECT, *OF_SANDBOX, "COMMAND_NOT_FOUND")
_EVENTS = answers(200, None, *_OF_STREAM)
_EVENTS[200]["content"] = {"text/event-stream": {"schema": {"type": "string"}}}


@router.get("/{execId}", responses=_EVENTS)
async def follow(
    request: Request,
    project: ProjectName,
    name: SandboxName,
    exec_id: ExecId,
    _: Runner,
    encoding: Literal["utf8", "base64"] = "utf8",
) -> Response:
    """Goes on reading a command's events after `Last-Event-ID`; whoever read before is cut off.

    `truncated` stands where events are no longer kept.
    """
    stream = running_of(request).commands.find(project, path_of(name), exec_id)
    return EventStream(exec_messages(stream.read(last_event_id(request)), encoding), farewell=FAREWELL)


@router.delete("/{execId}", status_code=204, responses=answers(204, None, *_OF_STREAM))
async def cancel(request: Request, project: ProjectName, name: SandboxName, exec_id: ExecId, _: Runner) -> Response:
    """Kills the command and all it started; a second time changes nothing."""
    try:
        running_of(request).commands.find(project, path_of(name), exec_id).give_up()
    except KennelError as failure:
        if failure.code != "COMMAND_NOT_FOUND":
            raise
    return Response(status_code=204)


@router.websocket("")
async def interact(websocket: WebSocket, project: str, name: str) -> None:
    """A command with live input: the request as JSON text first, then binary messages both ways.

    The first byte of a binary message is its stream: 0 standard input, 1 standard output, 2 standard error. Text from
    the client: `{"type": "eof"}`, `{"type": "signal", "signal": "SIGINT"}`. Text from the server: `start`, then at the
    end `exit` or `error`.
    """
    try:
        who = await check(websocket, "exec", project)
        commands = running_of(websocket).commands
    except KennelError as failure:
        await refuse(websocket.scope, websocket.send, failure)
        return
    async with accepted(websocket) as socket:
        body = await _request(socket)
        stream = await commands.open(who, project, path_of(name), command_of(body), text=False, interactive=True)
        try:
            await _converse(socket, stream)
        finally:
            stream.give_up()


async def _request(socket: Socket) -> ExecRequest:
    try:
        async with asyncio.timeout(FIRST_WORDS):
            words = await socket.receive()
    except TimeoutError:
        raise error("WAIT_TIMEOUT", "no command came", admitted="no") from None
    try:
        return ExecRequest.model_validate(words)
    except ValidationError as fault:
        raise invalid(field_messages(fault.errors())) from None


async def _converse(socket: Socket, stream: ExecStream) -> None:
    """Both directions at once; the first to end ends both."""
    listening = asyncio.create_task(_listen(socket, stream))
    telling = asyncio.create_task(_tell(socket, stream))
    try:
        done, _ = await asyncio.wait({listening, telling}, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in (listening, telling):
            task.cancel()
        await asyncio.gather(listening, telling, return_exceptions=True)


async def _tell(socket: Socket, stream: ExecStream) -> None:
    events = stream.read()
    try:
        async for event in events:
            await socket.send(exec_frame(event))
    finally:
        await events.aclose()  # type: ignore[attr-defined]


async def _listen(socket: Socket, stream: ExecStream) -> None:
    """Input until the socket closes, which raises Left."""
    run = stream.run
    while True:
        message = await socket.receive()
        if run is None:
            raise error("VALIDATION_FAILED", "the command has not begun")
        if isinstance(message, bytes):
            if message[:1] != STDIN:
                raise error("VALIDATION_FAILED", "a client's binary message begins with a zero byte")
            if len(message) > 1:
                await run.write(message[1:])
        else:
            await _obey(run, message)


async def _obey(run: Any, words: dict[str, Any]) -> None:
    kind = words.get("type")
    if kind == "eof":
        await run.close_stdin()
    elif kind == "signal":
        await run.signal(signal_number(words.get("signal")))
    else:
        raise error("VALIDATION_FAILED", "a client says 'eof' or 'signal'")
