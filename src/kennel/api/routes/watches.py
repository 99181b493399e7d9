"""Owns the routes of watching: a tree's events as they happen, and what changed since a version.

Called by app.py. Invariants: the answer begins once the watch is in place, so that nothing after it is missed; what the
sandbox lost is said as an event `overflow`.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from kennel.api.answers import json_response
from kennel.api.body import StrictRoute
from kennel.api.event_stream import EventStream, message
from kennel.api.fields import AbsolutePath, ProjectName, SandboxName
from kennel.api.hangup import unless_hung_up
from kennel.api.openapi import answers
from kennel.api.routes.files import OF_FILES, AsUser, Keeper
from kennel.api.services import Files, files_of
from kennel.domain.command import DEFAULT_CWD
from kennel.domain.file import WatchEvent, WatchOptions, name_fields, path_from
from kennel.domain.names import path_of
from kennel.domain.principal import Principal
from kennel.wire.errors import KennelError

router = APIRouter(prefix="/v1/projects/{project}/sandboxes/{name}", tags=["files"], route_class=StrictRoute)

PathText = Annotated[AbsolutePath, Query(description="the directory")]
PathBytes = Annotated[str | None, Query(alias="pathBase64", max_length=8192, description="the same, not UTF-8")]
Patterns = Annotated[str | None, Query(max_length=1024, description="patterns of *, ** and ?, with commas between")]
_STREAM = answers(200, None, *OF_FILES, "WATCH_START_ERROR")
_STREAM[200]["content"] = {"text/event-stream": {"schema": {"type": "object"}}}
_encoder = msgspec.json.Encoder()


def _options(recursive: bool, include: str | None, exclude: str | None, user: str | None) -> WatchOptions:
    return WatchOptions(recursive, _patterns(include), _patterns(exclude), user)


def _patterns(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(word for word in text.split(",") if word.strip("/"))


def _where(path: str, encoded: str | None) -> bytes:
    return path_from(path, None) if encoded is None else path_from(None, encoded)


class WatchAnswer(Response):
    """Server-Sent Events of one watch; what it cannot begin for is a typed answer."""

    def __init__(
        self, files: Files, who: Principal, project: str, box: str, where: bytes, options: WatchOptions
    ) -> None:
        super().__init__()
        self._asked = (who, project, box, where, options)
        self._files = files

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._files.watch(*self._asked) as watch:
            await EventStream(_messages(self._asked[3], watch))(scope, receive, send)


async def _messages(where: bytes, watch: Any) -> AsyncIterator[bytes]:
    head = {"watchId": secrets.token_hex(8), **name_fields("path", where)}
    yield message(_encoder.encode(head), event="watching")
    try:
        async for batch in watch:
            for event in batch:
                yield message(_encoder.encode(_told(event)), event="event")
    except KennelError as failure:
        yield message(_encoder.encode(failure.to_wire()), event="error")
        return
    yield message(_encoder.encode({"reason": watch.reason}), event="stopped")


def _told(event: WatchEvent) -> dict[str, Any]:
    moment = datetime.fromtimestamp(min(event.at_ms, 253_402_300_799_000) / 1000, UTC)
    return {
        "eventType": event.kind, **name_fields("path", event.path), "isDirectory": event.is_directory,
        "timestamp": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
    }  # fmt: skip


@router.get("/watch", responses=_STREAM)
async def watch(
    request: Request,
    project: ProjectName,
    name: SandboxName,
    who: Keeper,
    path: PathText = DEFAULT_CWD,
    path_base64: PathBytes = None,
    recursive: bool = True,
    include: Patterns = None,
    exclude: Patterns = None,
    user: AsUser = None,
) -> Response:
    """Server-Sent Events: `watching`, then `event` for each change, merged over 75 ms by path.

    With `include` only of what it names, never of what `exclude` names.

    `eventType` is create, modify, delete, move_from, move_to, attrib, or overflow: some were lost, look again. Without
    `exclude` that is .git, node_modules and .DS_Store. The stream ends with `stopped` or `error`.
    """
    where, options = _where(path, path_base64), _options(recursive, include, exclude, user)
    return WatchAnswer(files_of(request), who, project, path_of(name), where, options)


@router.get("/changes", responses=answers(200, {"type": "object"}, *OF_FILES, "WATCH_START_ERROR"))
async def changes(
    request: Request,
    project: ProjectName,
    name: SandboxName,
    who: Keeper,
    path: PathText = DEFAULT_CWD,
    path_base64: PathBytes = None,
    since: Annotated[str | None, Query(max_length=100, pattern="^[0-9a-f]{1,32}:[0-9]{1,18}$")] = None,
    recursive: bool = True,
    include: Patterns = None,
    exclude: Patterns = None,
    user: AsUser = None,
) -> Response:
    """The paths that changed since a `version`; without one, the version to ask from. Kept ten minutes between calls.

    `status` is unchanged, changed, or resync: the changes are not known any more (`reason`), look again.
    """
    where, options = _where(path, path_base64), _options(recursive, include, exclude, user)
    work = files_of(request).changes(who, project, path_of(name), where, options, since)
    report = await unless_hung_up(request, work)
    told: dict[str, Any] = {
        "success": True, "status": report.status, "version": report.version,
        "paths": [found.decode("utf-8", "replace") for found in report.paths],
    }  # fmt: skip
    return json_response(told if report.reason is None else {**told, "reason": report.reason})
