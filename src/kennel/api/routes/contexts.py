"""Owns the routes of code contexts: make, list, look, end, run a cell, interrupt.

Called by app.py. Invariant: a cell that raised is a result, as a command's non-zero exit is; an error is what kept the
cell from its end.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request
from pydantic import Field, StringConstraints
from starlette.responses import Response

from kennel.api.access import allow
from kennel.api.answers import json_response
from kennel.api.body import StrictRoute
from kennel.api.code_messages import FAREWELL, Cell
from kennel.api.event_stream import EventStream
from kennel.api.fields import INTEGRAL, AbsolutePath, Environment, Model, ProjectName, SandboxName
from kennel.api.hangup import unless_hung_up
from kennel.api.last_event import last_event_id
from kennel.api.openapi import IN_PROJECT, OF_NODE, OF_SANDBOX, WITH_BODY, answers, listing
from kennel.api.routes.exec import MAX_LINGER_MS, MAX_TIMEOUT_MS, wants_events
from kennel.api.services import running_of
from kennel.domain.code import CONTEXT_ID, LANGUAGE_NAMES, LANGUAGES, CellCode, NewContext, language_of
from kennel.domain.command import DEFAULT_CWD
from kennel.domain.names import path_of
from kennel.domain.principal import Principal
from kennel.wire.errors import KennelError

router = APIRouter(
    prefix="/v1/projects/{project}/sandboxes/{name}/contexts", tags=["contexts"], route_class=StrictRoute
)

MAX_CODE = 1024 * 1024
"""Characters of one cell."""
Reader = Annotated[Principal, Depends(allow("read"))]
Runner = Annotated[Principal, Depends(allow("exec"))]
RunId = Annotated[str, Path(alias="runId", pattern=r"^[0-9a-f]{16}$")]
RUN_HEADER = "kennel-run-id"
"""Names the run of a cell before its turn has come, which may be after hours."""
ContextInPath = Annotated[str, Path(alias="contextId", pattern=rf"^({'|'.join(LANGUAGES)}|{CONTEXT_ID})$")]

_FACTS: dict[str, Any] = {
    "type": "object",
    "required": ["id", "language", "cwd", "status", "createdAt", "lastUsed", "executionCount", "ended"],
    "properties": {
        "id": {"type": "string"},
        "language": {"enum": list(LANGUAGES)},
        "cwd": {"type": "string"},
        "status": {"enum": ["starting", "idle", "busy", "ended"]},
        "createdAt": {"type": "string", "format": "date-time"},
        "lastUsed": {"type": "string", "format": "date-time"},
        "executionCount": {"type": "integer"},
        "ended": {"type": ["object", "null"], "description": "how its program ended: reason, exitCode, signal"},
    },
}
_EXECUTION: dict[str, Any] = {
    "type": "object",
    "required": ["contextId", "executionCount", "status", "logs", "results", "error", "truncated"],
    "properties": {
        "contextId": {"type": "string"},
        "executionCount": {"type": "integer"},
        "status": {"enum": ["ok", "error"]},
        "logs": {"type": "object", "description": "stdout and stderr, each a list of pieces"},
        "results": {"type": "array", "items": {"type": "object"}},
        "error": {"type": ["object", "null"], "description": "name, value and traceback of what the cell raised"},
        "timedOut": {"type": "boolean"},
        "interrupted": {"type": "boolean"},
        "truncated": {"type": "boolean", "description": "more was said than is kept: 16 MiB of text, 24 of results"},
        "droppedBytes": {"type": "integer"},
        "durationMs": {"type": "number"},
    },
}
_OF_CONTEXT = (*IN_PROJECT, *OF_SANDBOX, *OF_NODE, "CONTEXT_NOT_FOUND", "CONTEXT_TERMINATED", "INTERPRETER_NOT_READY",
               "CODE_EXECUTION_ERROR", "RESOURCE_BUSY", "PROCESS_SPAWN_FAILED")  # fmt: skip
_OF_LANGUAGE = ("PYTHON_NOT_AVAILABLE", "JAVASCRIPT_NOT_AVAILABLE", "NOT_SUPPORTED", "INVALID_PROCESS_CWD",
                "INVALID_COMMAND")  # fmt: skip


class CreateContext(Model):
    """A new context. `python` is an interpreter in the sandbox, such as `/workspace/.venv/bin/python`."""

    language: Annotated[str, Field(max_length=40, json_schema_extra={"enum": list(LANGUAGE_NAMES)})] = "python"
    cwd: AbsolutePath = DEFAULT_CWD
    env: Environment = {}
    python: AbsolutePath | None = None


class RunCode(Model):
    """A cell; when its `timeout` (milliseconds) runs out it is interrupted, and the context goes on.

    `env` are variables for this cell alone: what they were is put back at its end; one that is null is not given.
    Of a stream: `linger` is how many milliseconds it may run on without a connection.
    """

    code: Annotated[str, StringConstraints(max_length=MAX_CODE)]
    env: Environment = {}
    linger: Annotated[int, Field(ge=0, le=MAX_LINGER_MS), INTEGRAL] = 0
    timeout: Annotated[int, Field(ge=1, le=MAX_TIMEOUT_MS), INTEGRAL] | None = None


@router.post("", status_code=201, responses=answers(201, _FACTS, *_OF_CONTEXT, *_OF_LANGUAGE, *WITH_BODY))
async def create(
    request: Request, project: ProjectName, name: SandboxName, who: Runner, body: CreateContext | None = None
) -> Response:
    """Starts a program that keeps a language's state from cell to cell, waking the sandbox if it sleeps."""
    given = body or CreateContext()
    env = {key: value for key, value in given.env.items() if value is not None}
    asked = NewContext(language_of(given.language), given.cwd, env, given.python)
    work = running_of(request).interpreter.create(who, project, path_of(name), asked)
    return json_response((await unless_hung_up(request, work)).to_wire(), 201)


@router.get("", responses=answers(200, listing("contexts", _FACTS), *_OF_CONTEXT))
async def list_all(request: Request, project: ProjectName, name: SandboxName, _: Reader) -> Response:
    """Those that run and the last 64 that ended; a sleeping sandbox has none."""
    found = await running_of(request).interpreter.list(project, path_of(name))
    return json_response({"contexts": [facts.to_wire() for facts in found]})


@router.get("/{contextId}", responses=answers(200, _FACTS, *_OF_CONTEXT))
async def show(
    request: Request, project: ProjectName, name: SandboxName, context_id: ContextInPath, _: Reader
) -> Response:
    """One; a language's name means its default context."""
    return json_response((await running_of(request).interpreter.get(project, path_of(name), context_id)).to_wire())


@router.delete("/{contextId}", status_code=204, responses=answers(204, None, *_OF_CONTEXT, *WITH_BODY))
async def delete(
    request: Request, project: ProjectName, name: SandboxName, context_id: ContextInPath, who: Runner
) -> Response:
    """Ends it and all it started; what it held in memory is lost."""
    await running_of(request).interpreter.delete(who, project, path_of(name), context_id)
    return Response(status_code=204)


_RUN = answers(200, _EXECUTION, *_OF_CONTEXT, *_OF_LANGUAGE, *WITH_BODY)
_RUN[200]["content"]["text/event-stream"] = {"schema": {"type": "string"}}


@router.post("/{contextId}/run", responses=_RUN)
async def run(
    request: Request, project: ProjectName, name: SandboxName, context_id: ContextInPath, body: RunCode, who: Runner
) -> Response:
    """Runs a cell after those before it; a language's name means its default context, made on first use.

    With `Accept: text/event-stream` its events come while it runs: `start`, `stdout`, `stderr`, `result`, `error`,
    `clear`, then `end` or `failure`, each with a number as its id. Hanging up interrupts it, at once or after `linger`;
    before that `GET …/run/{runId}` with `Last-Event-ID` goes on reading. `runId` is in the header `kennel-run-id`, too.
    """
    asked = CellCode(body.code, body.timeout, {key: value for key, value in body.env.items() if value is not None})
    linger = body.linger / 1000 if wants_events(request) else 0.0
    work = running_of(request).interpreter.run(who, project, path_of(name), context_id, asked, linger=linger)
    stream = await unless_hung_up(request, work)
    cell = Cell(stream.read())
    await unless_hung_up(request, cell.begin())
    if wants_events(request):
        return EventStream(cell.messages(), farewell=FAREWELL, headers={RUN_HEADER: stream.id})
    return json_response(await unless_hung_up(request, cell.execution()))


_OF_RUN = (*IN_PROJECT, *OF_SANDBOX, "COMMAND_NOT_FOUND")
_EVENTS = answers(200, None, *_OF_RUN)
_EVENTS[200]["content"] = {"text/event-stream": {"schema": {"type": "string"}}}


@router.get("/{contextId}/run/{runId}", responses=_EVENTS)
async def follow(
    request: Request, project: ProjectName, name: SandboxName, context_id: ContextInPath, run_id: RunId, _: Runner
) -> Response:
    """Goes on reading a cell's events after `Last-Event-ID`; whoever read before is cut off.

    `truncated` stands where events are no longer kept.
    """
    stream = running_of(request).interpreter.cells.find(project, path_of(name), f"{context_id}/{run_id}")
    return EventStream(Cell(stream.read(last_event_id(request))).messages(), farewell=FAREWELL)


@router.delete("/{contextId}/run/{runId}", status_code=204, responses=answers(204, None, *_OF_RUN))
async def cancel(
    request: Request, project: ProjectName, name: SandboxName, context_id: ContextInPath, run_id: RunId, _: Runner
) -> Response:
    """Interrupts the cell and keeps nothing of it; a second time changes nothing."""
    try:
        running_of(request).interpreter.cells.find(project, path_of(name), f"{context_id}/{run_id}").give_up()
    except KennelError as failure:
        if failure.code != "COMMAND_NOT_FOUND":
            raise
    return Response(status_code=204)


@router.post(
    "/{contextId}/interrupt",
    responses=answers(
        200,
        {"type": "object", "required": ["interrupted"], "properties": {"interrupted": {"type": "boolean"}}},
        *_OF_CONTEXT,
        *WITH_BODY,
    ),
)
async def interrupt(
    request: Request, project: ProjectName, name: SandboxName, context_id: ContextInPath, _: Runner
) -> Response:
    """Interrupts the cell that runs in it; false when none did."""
    done = await running_of(request).interpreter.interrupt(project, path_of(name), context_id)
    return json_response({"interrupted": done})
