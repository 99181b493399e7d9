"""Owns `POST …/exec`: one command in, its whole result out.

Called by app.py. Invariants: exactly one of `command` and `argv`; a caller that hangs up ends the command.
"""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Any, Literal, Self

from fastapi import APIRouter, Depends, Request
from pydantic import ConfigDict, Field, StringConstraints, model_validator
from starlette.responses import Response

from kennel.api.access import allow
from kennel.api.answers import exec_result, json_response, now
from kennel.api.body import MAX_EXEC_BODY, MAX_STDIN, StrictRoute
from kennel.api.event_stream import EventStream
from kennel.api.exec_messages import FAREWELL, exec_messages
from kennel.api.failures import invalid
from kennel.api.fields import (
    INTEGRAL,
    MAX_ARGUMENT,
    MAX_ARGUMENTS,
    NO_NUL,
    AbsolutePath,
    Argument,
    CommandText,
    Environment,
    Model,
    ProjectName,
    SandboxName,
    SessionId,
    User,
)
from kennel.api.hangup import unless_hung_up
from kennel.api.openapi import IN_PROJECT, OF_EXEC, OF_NODE, OF_SANDBOX, WITH_BODY, answers, ref
from kennel.api.services import running_of, services_of
from kennel.control.followed import MAX_LINGER
from kennel.domain.command import DEFAULT_MAX_BYTES, Command
from kennel.domain.names import path_of
from kennel.domain.principal import Principal

router = APIRouter(prefix="/v1/projects/{project}/sandboxes", tags=["exec"], route_class=StrictRoute)

Runner = Annotated[Principal, Depends(allow("exec"))]

MAX_TIMEOUT_MS = 24 * 3600 * 1000
MAX_LINGER_MS = round(MAX_LINGER * 1000)


PROGRAM: dict[str, Any] = {"prefixItems": [{"type": "string", "minLength": 1, "maxLength": MAX_ARGUMENT, **NO_NUL}]}


def given(name: str) -> dict[str, Any]:
    """The part of a schema that asks for a field which is not null."""
    return {"required": [name], "properties": {name: {"not": {"type": "null"}}}}


class ExecRequest(Model):
    """A command: `command` by a shell or `argv` without one. `timeout` is milliseconds; null means no limit.

    Without `cwd` it runs in /workspace, in a session where its shell is. A variable of `env` that is null is not given.

    Of a stream: `linger` is how many milliseconds it may run on without a connection; `maxBytes` does not count.
    """

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [given("command"), given("argv")]},
    )

    command: CommandText | None = None
    argv: (
        Annotated[list[Argument], Field(min_length=1, max_length=4096, fail_fast=True, json_schema_extra=PROGRAM)]
        | None
    ) = None
    cwd: AbsolutePath | None = None
    env: Environment = {}
    stdin: Annotated[str, StringConstraints(max_length=MAX_EXEC_BODY)] = ""
    stdin_encoding: Literal["utf8", "base64"] = "utf8"
    timeout: Annotated[int, Field(ge=1, le=MAX_TIMEOUT_MS), INTEGRAL] | None = None
    user: User | None = None
    session_id: SessionId | None = None
    encoding: Literal["utf8", "base64"] = "utf8"
    max_bytes: Annotated[int, Field(ge=0, le=DEFAULT_MAX_BYTES), INTEGRAL] = DEFAULT_MAX_BYTES
    linger: Annotated[int, Field(ge=0, le=MAX_LINGER_MS), INTEGRAL] = 0

    @model_validator(mode="after")
    def _one_of(self) -> Self:
        if (self.command is None) == (self.argv is None):
            raise ValueError("exactly one of 'command' and 'argv' is needed")
        return self


def _stdin(body: ExecRequest) -> bytes:
    """Standard input as bytes; VALIDATION_FAILED when it is not base64 or too large."""
    if not body.stdin:
        return b""
    try:
        data = body.stdin.encode() if body.stdin_encoding == "utf8" else base64.b64decode(body.stdin, validate=True)
    except (binascii.Error, ValueError):
        raise invalid({"stdin": ["not base64"]}) from None
    if len(data) > MAX_STDIN:
        raise invalid({"stdin": [f"has at most {MAX_STDIN} bytes"]})
    return data


def command_of(body: ExecRequest) -> Command:
    """What the guest is to run; VALIDATION_FAILED for what cannot be run."""
    env = {name: value for name, value in body.env.items() if value is not None}
    words = [body.command] if body.command is not None else (body.argv or [])
    if len(words) + len(env) > 1 and _bytes(words, env) > MAX_ARGUMENTS:
        raise invalid({"body": [f"arguments and environment together have at most {MAX_ARGUMENTS} bytes"]})
    if body.argv is not None and not body.argv[0]:
        raise invalid({"argv.0": ["cannot be empty"]})
    return Command(
        command=body.command,
        argv=None if body.argv is None else tuple(body.argv),
        cwd=body.cwd,
        env=env,
        stdin=_stdin(body),
        timeout_ms=body.timeout,
        user=body.user,
        session_id=body.session_id,
        max_bytes=body.max_bytes,
    )


def _bytes(words: list[str], env: dict[str, str]) -> int:
    return sum(len(word.encode()) + 1 for word in words) + sum(
        len(name.encode()) + len(value.encode()) + 2 for name, value in env.items()
    )


_EXEC = answers(200, ref("ExecResult"), *IN_PROJECT, *OF_SANDBOX, *OF_NODE, *OF_EXEC, *WITH_BODY)
_EXEC[200]["content"]["text/event-stream"] = {"schema": {"type": "string"}}


def wants_events(request: Request) -> bool:
    """Whether the caller asks for Server-Sent Events."""
    return "text/event-stream" in request.headers.get("accept", "")


async def begin_stream(
    request: Request, project: str, path: str, body: ExecRequest, command: Command, who: Principal
) -> Response:
    """Starts a command and answers with its events."""
    work = running_of(request).commands.open(
        who, project, path, command, linger=body.linger / 1000, text=body.encoding == "utf8"
    )
    stream = await unless_hung_up(request, work)
    return EventStream(exec_messages(stream.read(), body.encoding), farewell=FAREWELL)


@router.post(
    "/{name}/exec",
    responses=_EXEC,
)
async def run(request: Request, project: ProjectName, name: SandboxName, body: ExecRequest, who: Runner) -> Response:
    """Runs a command to its end, waking the sandbox if it sleeps; a non-zero exit is a result, not an error.

    With `Accept: text/event-stream` its output comes while it runs: `start`, `stdout` and `stderr`, then `exit` or
    `error`, each with a number as its id. Hanging up kills it, at once or after `linger`; before that
    `GET …/exec/{execId}` with `Last-Event-ID` goes on reading.
    """
    command, started = command_of(body), now()
    if wants_events(request):
        return await begin_stream(request, project, path_of(name), body, command, who)
    work = services_of(request).sandboxes.exec(who, project, path_of(name), command)
    outcome, oom_killed = await unless_hung_up(request, work)
    return json_response(exec_result(command, outcome, oom_killed=oom_killed, started=started, encoding=body.encoding))
