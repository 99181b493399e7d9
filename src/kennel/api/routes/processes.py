"""Owns the routes of background processes: start, look, read, write, wait, signal, end.

Called by app.py. Invariants: looking and ending wake nothing; ending what has ended is no error; a wait that is left
changes nothing for its process.
"""

from __future__ import annotations

import base64
import binascii
from contextlib import AsyncExitStack
from typing import Annotated, Any, Literal, Self

from fastapi import APIRouter, Depends, Path, Query, Request
from pydantic import ConfigDict, Field, PlainValidator, StringConstraints, WithJsonSchema, model_validator
from starlette.responses import Response

from kennel.api.access import allow
from kennel.api.answers import json_response
from kennel.api.body import MAX_BODY, StrictRoute
from kennel.api.event_stream import EventStream
from kennel.api.exec_messages import FAREWELL
from kennel.api.failures import invalid
from kennel.api.fields import (
    INTEGRAL,
    AbsolutePath,
    Argument,
    CommandText,
    Environment,
    Model,
    ProjectName,
    SandboxName,
    User,
)
from kennel.api.hangup import unless_hung_up
from kennel.api.last_event import last_event_id
from kennel.api.log_messages import Held, log_messages, whole_log
from kennel.api.openapi import IN_PROJECT, OF_EXEC, OF_NODE, OF_SANDBOX, WITH_BODY, Responses, answers, listing
from kennel.api.routes.exec import MAX_TIMEOUT_MS, PROGRAM, ExecRequest, command_of, given
from kennel.api.services import running_of
from kennel.domain.command import DEFAULT_CWD
from kennel.domain.names import path_of
from kennel.domain.principal import Principal
from kennel.domain.signals import LAST, NAMES, signal_number
from kennel.wire.errors import KennelError

router = APIRouter(
    prefix="/v1/projects/{project}/sandboxes/{name}/processes", tags=["processes"], route_class=StrictRoute
)

Reader = Annotated[Principal, Depends(allow("read"))]
Runner = Annotated[Principal, Depends(allow("exec"))]
PROCESS_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$"
ProcessId = Annotated[str, StringConstraints(pattern=PROCESS_PATTERN)]
ProcessInPath = Annotated[str, Path(alias="processId", pattern=PROCESS_PATTERN)]
Runtime = Annotated[str | None, Query(max_length=64, description="the run of the sandbox that the process belongs to")]
Grace = Annotated[int | None, Query(alias="graceMs", ge=0, le=300_000)]
MAX_WAIT_MS = 600_000
DEFAULT_WAIT_MS = 60_000
TimeoutMs = Annotated[int, Query(alias="timeoutMs", ge=1, le=MAX_WAIT_MS)]

_PROCESS = {"type": "object", "required": ["id", "status"], "properties": {"id": {"type": "string"}}}
_ONE = ("PROCESS_NOT_FOUND", "STALE_PROCESS_HANDLE", "RESOURCE_BUSY")
_OF_ALL = (*IN_PROJECT, *OF_SANDBOX, *OF_NODE)


class ProcessRequest(Model):
    """A program for the background: `timeout` is milliseconds; `stdin` keeps its input open for `…/stdin`."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [given("command"), given("argv")]})

    id: ProcessId | None = None
    command: CommandText | None = None
    argv: (
        Annotated[list[Argument], Field(min_length=1, max_length=4096, fail_fast=True, json_schema_extra=PROGRAM)]
        | None
    ) = None
    cwd: AbsolutePath = DEFAULT_CWD
    env: Environment = {}
    timeout: Annotated[int, Field(ge=1, le=MAX_TIMEOUT_MS), INTEGRAL] | None = None
    user: User | None = None
    stdin: bool = False
    keep_awake: bool = False

    @model_validator(mode="after")
    def _one_of(self) -> Self:
        if (self.command is None) == (self.argv is None):
            raise ValueError("exactly one of 'command' and 'argv' is needed")
        return self


class InputRequest(Model):
    """Bytes for standard input; `eof` ends it after them."""

    data: Annotated[str, StringConstraints(max_length=MAX_BODY)] = ""
    encoding: Literal["utf8", "base64"] = "utf8"
    eof: bool = False


def _signal(value: Any) -> int:
    try:
        return signal_number(int(value) if isinstance(value, float) and value.is_integer() else value)
    except KennelError as refused:
        raise ValueError(refused.details["signal"][0]) from None


_NUMBER = {"type": "integer", "minimum": 1, "maximum": LAST}
SignalNumber = Annotated[
    int, PlainValidator(_signal), WithJsonSchema({"anyOf": [{"type": "string", "enum": list(NAMES)}, _NUMBER]})
]


class SignalRequest(Model):
    """A signal by its name (`SIGINT`, `INT`) or number."""

    signal: SignalNumber


@router.post(
    "", status_code=201, responses=answers(201, _PROCESS, *_OF_ALL, *OF_EXEC, *WITH_BODY, "PROCESS_ALREADY_EXISTS")
)
async def start(
    request: Request, project: ProjectName, name: SandboxName, body: ProcessRequest, who: Runner
) -> Response:
    """Starts a process that outlives this request, waking the sandbox if it sleeps; answers when it runs."""
    command = command_of(
        ExecRequest(
            command=body.command, argv=body.argv, cwd=body.cwd, env=body.env, timeout=body.timeout, user=body.user
        )
    )
    facts = await running_of(request).processes.start(
        who, project, path_of(name), command, process_id=body.id, stdin=body.stdin, keep_awake=body.keep_awake
    )
    return json_response(facts.to_wire(), 201)


@router.get("", responses=answers(200, listing("processes", _PROCESS), *_OF_ALL))
async def list_all(request: Request, project: ProjectName, name: SandboxName, _: Reader) -> Response:
    """The processes that run, and the last 64 that ended; a sleeping sandbox has none."""
    found = await running_of(request).processes.list(project, path_of(name))
    return json_response({"processes": [facts.to_wire() for facts in found]})


_KILLED = {"type": "object", "required": ["killed"], "properties": {"killed": {"type": "integer"}}}


@router.delete("", responses=answers(200, _KILLED, *_OF_ALL))
async def kill_all(
    request: Request, project: ProjectName, name: SandboxName, _: Runner, grace: Grace = None
) -> Response:
    """Ends every process and answers when they are gone."""
    killed = await running_of(request).processes.kill_all(project, path_of(name), grace_ms=grace)
    return json_response({"killed": killed})


@router.get("/{processId}", responses=answers(200, _PROCESS, *_OF_ALL, *_ONE))
async def show(
    request: Request, project: ProjectName, name: SandboxName, process_id: ProcessInPath, _: Reader,
    runtime: Runtime = None,
) -> Response:  # fmt: skip
    """What a process is and how it is."""
    facts = await running_of(request).processes.get(project, path_of(name), process_id, runtime)
    return json_response(facts.to_wire())


@router.delete("/{processId}", responses=answers(200, _PROCESS, *_OF_ALL, *_ONE))
async def kill(
    request: Request, project: ProjectName, name: SandboxName, process_id: ProcessInPath, _: Runner,
    runtime: Runtime = None, grace: Grace = None,
) -> Response:  # fmt: skip
    """Asks the whole tree to end, kills what is left after `graceMs` (5000), and answers when it is gone.

    One that has ended stays as it is.
    """
    work = running_of(request).processes.kill(project, path_of(name), process_id, grace_ms=grace, runtime=runtime)
    return json_response((await work).to_wire())


@router.post(
    "/{processId}/signal", responses=answers(200, _PROCESS, *_OF_ALL, *_ONE, *WITH_BODY)
)  # fmt: skip
async def signal(
    request: Request, project: ProjectName, name: SandboxName, process_id: ProcessInPath, body: SignalRequest,
    _: Runner, runtime: Runtime = None,
) -> Response:  # fmt: skip
    """Signals every process of it; nothing happens to one that has ended."""
    facts = await running_of(request).processes.signal(project, path_of(name), process_id, body.signal, runtime)
    return json_response(facts.to_wire())


_TAKEN = {"type": "object", "required": ["bytes"], "properties": {"bytes": {"type": "integer"}}}


@router.post(
    "/{processId}/stdin",
    responses=answers(200, _TAKEN, *_OF_ALL, *_ONE, *WITH_BODY, "PROCESS_EXITED", "OPERATION_INTERRUPTED"),
)
async def feed(
    request: Request, project: ProjectName, name: SandboxName, process_id: ProcessInPath, body: InputRequest,
    _: Runner, runtime: Runtime = None,
) -> Response:  # fmt: skip
    """Writes to its standard input and answers when it has read that; only for one that was started with `stdin`."""
    try:
        data = body.data.encode() if body.encoding == "utf8" else base64.b64decode(body.data, validate=True)
    except (binascii.Error, ValueError):
        raise invalid({"data": ["not base64"]}) from None
    work = running_of(request).processes.feed(
        project, path_of(name), process_id, data, eof=body.eof, runtime=runtime
    )  # fmt: skip
    return json_response({"bytes": await unless_hung_up(request, work)})


_LOGS: Responses = answers(200, {"type": "object"}, *_OF_ALL, *_ONE)
_LOGS[200]["content"]["text/event-stream"] = {"schema": {"type": "string"}}


@router.get("/{processId}/logs", responses=_LOGS)
async def logs(
    request: Request, project: ProjectName, name: SandboxName, process_id: ProcessInPath, who: Runner,
    since: Annotated[int, Query(ge=0, le=2**53)] = 0, follow: bool = False,
    encoding: Literal["utf8", "base64"] = "utf8", runtime: Runtime = None,
) -> Response:  # fmt: skip
    """What is kept of its output (1 MiB) after the position `since`; with `follow` events until it ends.

    An event's id is a position: `Last-Event-ID` goes on from it. `truncated` stands for bytes that are gone.
    """
    begin = last_event_id(request) or since
    stack = AsyncExitStack()
    log = await stack.enter_async_context(
        running_of(request).processes.log(
            who, project, path_of(name), process_id, begin, follow=follow, runtime=runtime
        )
    )
    if follow or "text/event-stream" in request.headers.get("accept", ""):
        return EventStream(Held(log_messages(log, encoding, follow), stack), farewell=FAREWELL)
    async with stack:
        return json_response(await whole_log(log, encoding))


class Wanted:
    """What a wait is for, from the query; exactly one of exit, log, pattern and port."""

    def __init__(
        self,
        exit: Annotated[str | None, Query(description="its end")] = None,
        log: Annotated[str | None, Query(max_length=1000, description="a line with this text")] = None,
        pattern: Annotated[str | None, Query(max_length=1000, description="a line with this pattern")] = None,
        stream: Annotated[Literal["stdout", "stderr"] | None, Query()] = None,
        since: Annotated[int, Query(ge=0, le=2**53)] = 0,
        port: Annotated[int | None, Query(ge=1, le=65535)] = None,
        mode: Annotated[Literal["tcp", "http"], Query()] = "tcp",
        path: Annotated[str, Query(max_length=2000)] = "/",
        status: Annotated[str | None, Query(pattern=r"^[1-5][0-9]{2}(?:-[1-5][0-9]{2})?$")] = None,
        interval: Annotated[int, Query(alias="intervalMs", ge=10, le=60_000)] = 100,
    ) -> None:
        self.words: dict[str, Any]
        if sum(one is not None for one in (exit, log, pattern, port)) != 1:
            raise invalid({"query": ["exactly one of 'exit', 'log', 'pattern' and 'port' is needed"]})
        if exit is not None:
            self.words = {"for": "exit"}
        elif port is not None:
            low, _, high = (status or "200-399").partition("-")
            self.words = {"for": "port", "port": port, "mode": mode, "interval_ms": interval}
            if mode == "http":
                self.words |= {"path": path, "low": int(low), "high": int(high or low)}
        else:
            named = {"text": log, "pattern": pattern, "stream": stream}
            self.words = {"for": "log", "since": since} | {k: v for k, v in named.items() if v is not None}


@router.get(
    "/{processId}/wait",
    responses=answers(
        200, {"type": "object"}, *_OF_ALL, *_ONE, "PROCESS_WAIT_TIMEOUT", "PROCESS_READY_TIMEOUT",
        "PROCESS_EXITED_BEFORE_READY",
    ),
)  # fmt: skip
async def wait(
    request: Request, project: ProjectName, name: SandboxName, process_id: ProcessInPath, who: Runner,
    wanted: Annotated[Wanted, Depends()], timeout_ms: TimeoutMs = DEFAULT_WAIT_MS, runtime: Runtime = None,
) -> Response:  # fmt: skip
    """Waits for its end (`exit`), a line (`log`, `pattern`; what was written before counts) or a `port`.

    One that ends first answers PROCESS_EXITED_BEFORE_READY at once. A pattern is searched in linear time: no back
    references, no looking around.
    """
    work = running_of(request).processes.wait(
        who, project, path_of(name), process_id, wanted.words, timeout=timeout_ms / 1000, runtime=runtime
    )
    return json_response(await unless_hung_up(request, work))
