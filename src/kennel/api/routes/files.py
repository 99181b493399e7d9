"""Owns the routes of files: one file's bytes in and out, what it is, what a directory holds, its removal.

Called by app.py. Invariants: bytes stream through, whatever their number; a caller that leaves an upload leaves the old
file; every failure has Linux's name for it in `details.errno`.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import Response, StreamingResponse

from kennel.api.access import allow
from kennel.api.answers import json_response, now
from kennel.api.body import StrictRoute
from kennel.api.body_stream import body_of, decoded, unread
from kennel.api.fields import ProjectName, SandboxName, User
from kennel.api.file_answer import SAFE_HEADERS, FileAnswer, range_holds, unchanged, validators, wanted_range
from kennel.api.hangup import unless_hung_up
from kennel.api.openapi import IN_PROJECT, OF_NODE, OF_SANDBOX, Responses, answers
from kennel.api.raw_path import FilePath, file_path
from kennel.api.services import Files, files_of
from kennel.domain.file import FileFacts, WriteOptions, to_wire
from kennel.domain.media_type import is_text, looks_textual, media_type
from kennel.domain.names import path_of
from kennel.domain.principal import Principal
from kennel.wire.errors import KennelError, error

router = APIRouter(prefix="/v1/projects/{project}/sandboxes", tags=["files"], route_class=StrictRoute)

Keeper = Annotated[Principal, Depends(allow("files"))]
AsUser = Annotated[User | None, Query(description="whose rights count; root's without it")]
OF_FILES = (
    *IN_PROJECT, *OF_SANDBOX, *OF_NODE, "FILE_NOT_FOUND", "FILE_EXISTS", "FILE_TOO_LARGE", "FILESYSTEM_ERROR",
    "IS_DIRECTORY", "NOT_DIRECTORY", "PERMISSION_DENIED", "READ_ONLY", "NAME_TOO_LONG", "TOO_MANY_FILES",
    "TOO_MANY_LINKS", "PATH_TOO_LONG", "INVALID_PATH", "INVALID_USER", "RESOURCE_BUSY", "NOT_SUPPORTED", "NOT_FOUND",
)  # fmt: skip
MAX_TEXT = 32 * 1024 * 1024
"""Bytes of a file that come as one JSON answer; anything larger streams."""
MAX_PAGE = 10_000
PAGE = 1000
LINES = "application/x-ndjson"
_CURSOR = "^(?:[A-Za-z0-9_-]{4})*(?:[A-Za-z0-9_-]{2}==|[A-Za-z0-9_-]{3}=)?$"
_encoder = msgspec.json.Encoder()


def _read_answers() -> Responses:
    found = answers(200, {"type": "object"}, *OF_FILES, "RANGE_NOT_SATISFIABLE")
    found[200]["content"]["application/octet-stream"] = {"schema": {"type": "string", "format": "binary"}}
    found[200]["content"][LINES] = {"schema": {"type": "string"}}
    found[200]["content"]["*/*"] = {"schema": {"type": "string"}}
    found[206] = {"description": "the range"}
    found[304] = {"description": "the caller's copy is this content"}
    return found


@router.get("/{name}/files/{path:anything}", responses=_read_answers())
async def read(
    request: Request,
    project: ProjectName,
    name: SandboxName,
    path: FilePath,
    who: Keeper,
    stat: Annotated[str | None, Query(description="what it is, as JSON; `lstat` for a link itself")] = None,
    list_: Annotated[str | None, Query(alias="list", description="what the directory holds")] = None,
    recursive: Annotated[str | None, Query(description="and what is below it")] = None,
    hidden: Annotated[bool, Query(description="also names with a leading dot")] = False,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = PAGE,
    cursor: Annotated[str | None, Query(max_length=8192, pattern=_CURSOR)] = None,
    encoding: Annotated[Literal["auto", "utf8", "base64"] | None, Query(description="content in JSON")] = None,
    user: AsUser = None,
) -> Response:
    """The file's bytes (ranges, ETag), or with `stat`, `list`, `recursive` or `encoding` JSON about it.

    A listing is sorted and comes in pages of `limit`; with `Accept: application/x-ndjson` it comes whole, an entry a
    line in no order, and ends with `{"end": true}`.
    """
    files, box, where = files_of(request), path_of(name), file_path(request)
    if stat is not None:
        facts = await files.stat(who, project, box, where, follow=stat != "lstat", user=user)
        return json_response(to_wire(where, facts))
    if list_ is not None or recursive is not None:
        options = {"recursive": recursive is not None, "hidden": hidden, "user": user}
        if LINES in request.headers.get("accept", ""):
            return await _lines(files, who, project, box, where, options)
        after = _from_cursor(cursor)
        page = _page(files, who, project, box, where, {**options, "limit": limit, "after": after})
        return json_response(await unless_hung_up(request, page))
    if encoding is not None:
        whole = _whole(files, who, project, box, where, encoding, user)
        return json_response(await unless_hung_up(request, whole))
    return await _bytes(request, files, who, project, box, where, user)


async def _bytes(
    request: Request, files: Files, who: Principal, project: str, box: str, where: bytes, user: str | None
) -> Response:
    wanted = wanted_range(request.headers.get("range"))
    conditions = ("if-none-match", "if-modified-since", "if-range")
    if any(header in request.headers for header in conditions):
        facts = await files.stat(who, project, box, where, user=user)
        if facts.type == "file" and unchanged(request, facts):
            return Response(status_code=304, headers=validators(facts))
        wanted = wanted if range_holds(request, facts) else None
    return FileAnswer(
        where,
        lambda start, count: files.read(who, project, box, where, start=start, count=count, user=user),
        wanted,
    )


@router.head("/{name}/files/{path:anything}", include_in_schema=False)
async def head(
    request: Request, project: ProjectName, name: SandboxName, path: FilePath, who: Keeper, user: AsUser = None
) -> Response:
    """What a GET would say before its bytes; the media type is that of the name."""
    where = file_path(request)
    facts = await files_of(request).stat(who, project, path_of(name), where, user=user)
    _require_file(where, facts)
    headers = {**SAFE_HEADERS, **validators(facts), "content-type": media_type(where, b"\0")}
    response = Response(status_code=200, headers=headers)
    response.headers["content-length"] = str(facts.size or 0)
    return response


def _require_file(where: bytes, facts: FileFacts) -> None:
    if facts.type == "directory":
        raise error("IS_DIRECTORY", "this is a directory", details={"errno": "EISDIR"})
    if facts.type != "file":
        raise error("FILESYSTEM_ERROR", "this is not a regular file", details={"errno": "ENOTSUP"})


async def _whole(
    files: Files, who: Principal, project: str, box: str, where: bytes, encoding: str, user: str | None
) -> dict[str, Any]:
    """A file as one JSON answer; FILE_TOO_LARGE over MAX_TEXT."""
    async with files.read(who, project, box, where, user=user) as download:
        if (download.count or 0) > MAX_TEXT:
            raise _too_large(download.count)
        content = bytearray()
        async for piece in download:
            content += piece
            if len(content) > MAX_TEXT:
                raise _too_large(None)
    return {"path": where.decode("utf-8", "replace"), "success": True, "timestamp": now(), **content_of(
        where, bytes(content), encoding
    )}  # fmt: skip


def content_of(where: bytes, content: bytes, encoding: str) -> dict[str, Any]:
    """A file's content in JSON: text when it is text (`auto`) or has to be (`utf8`), else base64."""
    kind = media_type(where, content[:512])
    text = encoding == "utf8" or (encoding == "auto" and is_text(kind))
    told: dict[str, Any] = {"mimeType": kind, "size": len(content), "isBinary": not is_text(kind), "lossy": False}
    if text and (encoding == "utf8" or looks_textual(content)):
        shown = content.decode("utf-8", "replace")
        return {**told, "encoding": "utf-8", "content": shown, "lossy": shown.encode() != content}
    return {**told, "encoding": "base64", "content": base64.b64encode(content).decode()}


def _too_large(actual: int | None) -> Exception:
    details = {"maxSize": MAX_TEXT, "actualSize": actual, "errno": "EFBIG"}
    return error("FILE_TOO_LARGE", f"over {MAX_TEXT} bytes a file can only be streamed", details=details)


def _from_cursor(cursor: str | None) -> bytes | None:
    return None if cursor is None else base64.b64decode(cursor.encode(), altchars=b"-_")


async def _page(
    files: Files, who: Principal, project: str, box: str, where: bytes, options: dict[str, Any]
) -> dict[str, Any]:
    found: list[dict[str, Any]] = []
    last = b""
    async with files.list(who, project, box, where, **options) as listing:
        async for batch in listing:
            for entry in batch:
                found.append(to_wire(_join(where, entry.name), entry.facts, entry.name))
                last = entry.name
    told: dict[str, Any] = {
        "path": where.decode("utf-8", "replace"), "files": found, "count": len(found),
        "unreadable": listing.unreadable, "cursor": None,
    }  # fmt: skip
    if listing.more:
        told["cursor"] = base64.urlsafe_b64encode(last).decode()
    return told


def _join(where: bytes, name: bytes) -> bytes:
    return where.rstrip(b"/") + b"/" + name


async def _lines(
    files: Files, who: Principal, project: str, box: str, where: bytes, options: dict[str, Any]
) -> Response:
    lines = _line_batches(files, who, project, box, where, options)
    first = await anext(lines)  # what is wrong with the path is an answer of its own

    async def whole() -> AsyncIterator[bytes]:
        try:
            yield first
            async for batch in lines:
                yield batch
        finally:
            await lines.aclose()

    return StreamingResponse(whole(), media_type=LINES)


async def _line_batches(
    files: Files, who: Principal, project: str, box: str, where: bytes, options: dict[str, Any]
) -> Any:
    count = 0
    async with files.list(who, project, box, where, **options) as listing:
        async for batch in listing:
            count += len(batch)
            if batch:
                rows = [to_wire(_join(where, entry.name), entry.facts, entry.name) for entry in batch]
                yield b"".join(_encoder.encode(row) + b"\n" for row in rows)
    yield _encoder.encode({"end": True, "count": count, "unreadable": listing.unreadable}) + b"\n"


_BODY = {"requestBody": {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}}
_MODE = Query(pattern="^[0-7]{1,4}$", description="octal; the old file's mode, or 644, without it")


@router.put(
    "/{name}/files/{path:anything}",
    responses=answers(200, {"type": "object"}, *OF_FILES, "BODY_TOO_LARGE", "WAIT_TIMEOUT"),
    openapi_extra=_BODY,
)
async def write(
    request: Request,
    project: ProjectName,
    name: SandboxName,
    path: FilePath,
    who: Keeper,
    mode: Annotated[str | None, _MODE] = None,
    exclusive: Annotated[bool, Query(description="FILE_EXISTS when there is one")] = False,
    parents: Annotated[bool, Query(description="make missing directories")] = True,
    encoding: Annotated[Literal["base64"] | None, Query(description="the body is base64 text")] = None,
    user: AsUser = None,
) -> Response:
    """Replaces the file by the body, of any length; whole or not at all, with the old file's mode and owner."""
    where = file_path(request)
    options = WriteOptions(mode=None if mode is None else int(mode, 8), exclusive=exclusive, parents=parents, user=user)
    try:
        async with files_of(request).write(who, project, path_of(name), where, options) as upload:
            pieces = body_of(request)
            async for piece in decoded(pieces) if encoding else pieces:
                await upload.write(piece)
            facts, created = await upload.finish()
    except KennelError as failure:
        return unread(failure)
    return json_response({**to_wire(where, facts), "created": created, "success": True, "timestamp": now()})


@router.delete("/{name}/files/{path:anything}", status_code=204, responses=answers(204, None, *OF_FILES, "WAIT_TIMEOUT",
    "BODY_TOO_LARGE"))  # fmt: skip
async def delete(
    request: Request,
    project: ProjectName,
    name: SandboxName,
    path: FilePath,
    who: Keeper,
    recursive: Annotated[bool, Query(description="a directory, with all below it")] = False,
    user: AsUser = None,
) -> Response:
    """Removes a file, a link (not what it points to) or, with `recursive`, a directory."""
    where = file_path(request)
    work = files_of(request).change(who, project, path_of(name), "delete", where, {"recursive": recursive}, user)
    await unless_hung_up(request, work)
    return Response(status_code=204)
