"""Owns the rooms' routes, with the exact shapes of the first seed: direct execution and cleanup.

Called by app.py. Invariants: a room belongs to the key's project; a failure after validation is the seed's 500 with the
typed error beside its text; a room id is one raw path segment, decoded once.
"""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import unquote_to_bytes

from fastapi import APIRouter, Depends, Path, Request
from pydantic import BaseModel, ConfigDict
from starlette.convertors import Convertor, register_url_convertor
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from kennel.api.access import InProject, allow_in_own
from kennel.api.answers import exec_result, json_response, now
from kennel.api.body import StrictRoute
from kennel.api.fields import CommandText
from kennel.api.hangup import unless_hung_up
from kennel.api.openapi import IN_PROJECT, WITH_BODY, answers, ref
from kennel.api.services import services_of
from kennel.domain.command import Command
from kennel.domain.room import MAX_ROOM_ID, SESSION, check_room_id
from kennel.wire.errors import KennelError, error

PREFIX = "/api/rooms/"


class _Segment(Convertor[str]):
    """One path segment, also an empty one: its complaint is the room id's, not an unknown route's."""

    regex = "[^/]*"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("segment", _Segment())

router = APIRouter(prefix="/api/rooms", tags=["rooms"], route_class=StrictRoute)

RoomId = Annotated[
    str,
    Path(
        alias="roomId",
        description=f"1 to {MAX_ROOM_ID} characters, percent-encoded, no control characters",
        json_schema_extra={"minLength": 1, "maxLength": MAX_ROOM_ID, "pattern": r"^[^\u0000-\u001f\u007f-\u009f]+$"},
    ),
]


Runner = Annotated[InProject, Depends(allow_in_own("exec"))]
Keeper = Annotated[InProject, Depends(allow_in_own("lifecycle"))]


class RoomExec(BaseModel):
    """A command for the room's shell; other fields are ignored, as the seed does."""

    model_config = ConfigDict(strict=True)

    cmd: CommandText


class RawRoomPath:
    """Routes room requests by their undecoded path, so that `%2F` in an id stays inside its segment."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (raw := scope.get("raw_path", b"")).startswith(PREFIX.encode()):
            scope = {**scope, "path": raw.partition(b"?")[0].decode("latin-1")}
        await self._app(scope, receive, send)


def _room_id(raw: str) -> str:
    """The room id of an undecoded segment; VALIDATION_FAILED when it is none."""
    try:
        return check_room_id(unquote_to_bytes(raw.encode("latin-1")).decode())
    except UnicodeError:
        raise error("VALIDATION_FAILED", "invalid request", details={"roomId": ["not UTF-8"]}) from None


def _execution_failed(failure: KennelError) -> Response:
    """The seed's 500 with our code, hint and the rest beside it."""
    body: dict[str, Any] = {**failure.to_wire(), "error": f"sandbox execution failed: {failure.message}"}
    return json_response(body, 500)


_EXEC_SCHEMA = {
    "type": "object",
    "required": ["result", "sandboxName"],
    "properties": {"result": ref("ExecResult"), "sandboxName": {"type": "string"}},
}
_CLEANED = {
    "type": "object",
    "required": ["cleaned", "roomId"],
    "properties": {"cleaned": {"const": True}, "roomId": {"type": "string"}},
}
_PARTLY = {
    "type": "object",
    "required": ["cleaned", "errors"],
    "properties": {"cleaned": {"const": True}, "errors": {"type": "array", "items": {"type": "string"}}},
}


@router.post("/{roomId:segment}/sandbox/exec", responses=answers(200, _EXEC_SCHEMA, *IN_PROJECT, *WITH_BODY))
async def run(request: Request, room_id: RoomId, body: RoomExec, caller: Runner) -> Response:
    """Runs `cmd` in the room's shell, making the room's sandbox on first use; 120 seconds, then exit code 124."""
    room = _room_id(room_id)
    command, started = Command(command=body.cmd, session_id=SESSION), now()
    try:
        outcome, oom_killed = await unless_hung_up(
            request, services_of(request).rooms.exec(caller.who, caller.project, room, body.cmd)
        )
    except KennelError as failure:
        return _execution_failed(failure)
    result = exec_result(command, outcome, oom_killed=oom_killed, started=started)
    return json_response({"result": result, "sandboxName": f"sandbox-{room}"})


@router.delete(
    "/{roomId:segment}",
    responses={
        **answers(200, _CLEANED, *IN_PROJECT, *WITH_BODY, "RESOURCE_BUSY"),
        207: {"description": "not all was destroyed", "content": {"application/json": {"schema": _PARTLY}}},
    },
)
async def clean(request: Request, room_id: RoomId, caller: Keeper) -> Response:
    """Destroys the room's sandbox and what runs in it; idempotent, and the same id works again afterwards."""
    room = _room_id(room_id)
    errors = await services_of(request).rooms.cleanup(caller.who, caller.project, room)
    if errors:
        return json_response({"cleaned": True, "errors": list(errors)}, 207)
    return json_response({"cleaned": True, "roomId": room})
