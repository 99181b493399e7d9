"""Owns the rooms' routes: talk, direct execution and cleanup with the exact shapes of the first seed; list, settings.

Called by app.py; `room_people` and `room_events` are the rest. Invariants: a room belongs to the key's project; a
failed command is the seed's 500 with the typed error beside its text; unknown fields of a body are ignored.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, WithJsonSchema
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from kennel.api.access import InProject, allow_in_own
from kennel.api.answers import exec_result, json_response, now
from kennel.api.body import StrictRoute
from kennel.api.fields import INTEGRAL, NO_NUL, CommandText, Cursor
from kennel.api.hangup import unless_hung_up
from kennel.api.openapi import IN_PROJECT, WITH_BODY, answers, listing, ref
from kennel.api.room_access import OF_ROOM, PREFIX, Keeper, Looker, RoomBody, RoomId, Runner, room_id_of, speaker
from kennel.api.routes import room_events, room_people
from kennel.api.services import services_of
from kennel.domain.command import Command
from kennel.domain.room import SESSION
from kennel.domain.turn import MAX_TEXT, MAX_USER_ID
from kennel.wire.errors import KennelError

router = APIRouter(prefix="/api/rooms", tags=["rooms"], route_class=StrictRoute)
for part in (room_events, room_people):
    router.include_router(part.router)

Lister = Annotated[InProject, Depends(allow_in_own("read"))]


def _without_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("must not hold a NUL character")
    return text


def _said(text: Any) -> Any:
    if text == "":
        raise ValueError("Text cannot be empty")
    return text


def _name_or_nothing(value: Any) -> Any:
    return value if isinstance(value, str) and len(value) <= MAX_USER_ID else None


UserId = Annotated[
    str, StringConstraints(max_length=MAX_USER_ID), AfterValidator(_without_nul), Field(json_schema_extra=NO_NUL)
]


class RoomExec(RoomBody):
    """A command for the room's shell; `userId` says who runs it."""

    cmd: CommandText
    user_id: Annotated[str | None, BeforeValidator(_name_or_nothing), WithJsonSchema({})] = None


class RoomMessage(RoomBody):
    """Something said to the room and its model; `userId` is the speaker's name."""

    text: Annotated[
        str,
        StringConstraints(max_length=MAX_TEXT),
        BeforeValidator(_said),
        AfterValidator(_without_nul),
        Field(min_length=1, json_schema_extra=NO_NUL),
    ]
    user_id: UserId = ""


Quota = Annotated[int | None, Field(ge=1, le=100_000), INTEGRAL]


class RoomSettings(RoomBody):
    """A room's settings; what is left out stays, null goes back to the installation's own.

    `history` messages in an answer, `context` of them shown to the model, `maxRounds` times the model is asked in one
    turn, `instructions` added to its system text, quotas a minute (no higher than the installation's).
    """

    history: Annotated[int | None, Field(ge=1, le=200), INTEGRAL] = None
    context: Annotated[int | None, Field(ge=0, le=100), INTEGRAL] = None
    max_rounds: Annotated[int | None, Field(ge=1, le=8), INTEGRAL] = None
    instructions: (
        Annotated[
            str,
            StringConstraints(max_length=8192),
            AfterValidator(_without_nul),
            Field(json_schema_extra=NO_NUL),
        ]
        | None
    ) = None
    turns_per_minute: Quota = None
    commands_per_minute: Quota = None


class RoomChange(RoomBody):
    """Changes of a room; what is left out stays."""

    title: (
        Annotated[str, StringConstraints(max_length=200), AfterValidator(_without_nul), Field(json_schema_extra=NO_NUL)]
        | None
    ) = None
    settings: RoomSettings = RoomSettings()


class RawRoomPath:
    """Routes room requests by their undecoded path, so that `%2F` in an id stays inside its segment."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (raw := scope.get("raw_path", b"")).startswith(PREFIX.encode()):
            scope = {**scope, "path": raw.partition(b"?")[0].decode("latin-1")}
        await self._app(scope, receive, send)


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


@router.get("", responses=answers(200, listing("rooms", ref("RoomView"), cursor={"type": ["string", "null"]}), *OF_ROOM,
                                  "INVALID_PATH"))  # fmt: skip
async def list_rooms(
    request: Request, caller: Lister, limit: Annotated[int, Query(ge=1, le=100)] = 100, cursor: Cursor = None
) -> Response:
    """The project's rooms that are in use; give `cursor` back for the next page."""
    found, more = await services_of(request).rooms.list(caller.project, limit=limit, cursor=cursor)
    return json_response({"rooms": found, "cursor": more})


@router.get("/{roomId:segment}", responses=answers(200, ref("RoomTalk"), *OF_ROOM, "NOT_FOUND"))
async def show(request: Request, room_id: RoomId, caller: Looker) -> Response:
    """The room with its latest messages; 404 when nobody has used it, or not since its cleanup."""
    return json_response(await services_of(request).rooms.view(caller.project, room_id_of(room_id)))


@router.put("/{roomId:segment}", responses=answers(200, ref("RoomView"), *OF_ROOM, *WITH_BODY))
async def configure(request: Request, room_id: RoomId, body: RoomChange, caller: Keeper) -> Response:
    """Changes title and settings; opens the room when it is not in use."""
    changes = body.model_dump(by_alias=True, exclude_unset=True)
    rooms = services_of(request).rooms
    return json_response(await rooms.configure(caller.who, caller.project, room_id_of(room_id), changes))


_SAID = answers(
    200, ref("Reply"), *OF_ROOM, *WITH_BODY, "QUOTA_EXCEEDED", "OPERATION_INTERRUPTED", "MODEL_FAILED",
    "MODEL_NOT_CONFIGURED",
)  # fmt: skip


@router.post("/{roomId:segment}/message", responses=_SAID)
async def say(request: Request, room_id: RoomId, body: RoomMessage, caller: Runner) -> Response:
    """Says something and waits for the model's reply, in which the outputs of the commands it ran are.

    The message is kept before the model is asked; turns of a room run one after another. A caller that hangs up takes
    nothing from the others: the reply is in the room.
    """
    user_id = speaker(caller.who, body.user_id)
    work = services_of(request).rooms.say(caller.who, caller.project, room_id_of(room_id), body.text, user_id)
    return json_response(await unless_hung_up(request, work))


@router.post("/{roomId:segment}/sandbox/exec", responses=answers(200, _EXEC_SCHEMA, *IN_PROJECT, *WITH_BODY))
async def run(request: Request, room_id: RoomId, body: RoomExec, caller: Runner) -> Response:
    """Runs `cmd` in the room's shell, making the room's sandbox on first use; when its time is over, exit code 124."""
    room = room_id_of(room_id)
    command, started = Command(command=body.cmd, session_id=SESSION), now()
    user_id = speaker(caller.who, body.user_id)
    try:
        work = services_of(request).rooms.exec(caller.who, caller.project, room, body.cmd, user_id)
        outcome, oom_killed = await unless_hung_up(request, work)
    except KennelError as failure:
        if failure.code == "FORBIDDEN":
            raise
        return _execution_failed(failure)
    result = exec_result(command, outcome, oom_killed=oom_killed, started=started)
    return json_response({"result": result, "sandboxName": f"sandbox-{room}"})


@router.delete(
    "/{roomId:segment}",
    responses={
        **answers(200, _CLEANED, *WITH_BODY, *OF_ROOM),
        207: {"description": "not all was destroyed", "content": {"application/json": {"schema": _PARTLY}}},
    },
)
async def clean(request: Request, room_id: RoomId, caller: Keeper) -> Response:
    """Empties the room and destroys its sandbox and what runs in it; idempotent, and the same id works again."""
    room = room_id_of(room_id)
    errors = await services_of(request).rooms.cleanup(caller.who, caller.project, room)
    if errors:
        return json_response({"cleaned": True, "errors": list(errors)}, 207)
    return json_response({"cleaned": True, "roomId": room})
