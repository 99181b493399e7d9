"""Owns the routes of archives: a tree of a sandbox as one tar, both ways.

Called by app.py. Invariants: an archive that could not be finished breaks its connection; one that comes in is unpacked
inside the sandbox, never here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response
from starlette.types import Send

from kennel.api.answers import json_response, now
from kennel.api.body import StrictRoute
from kennel.api.body_stream import body_of, unread
from kennel.api.fields import ProjectName, SandboxName
from kennel.api.file_answer import SAFE_HEADERS, Streamed
from kennel.api.openapi import answers
from kennel.api.raw_path import FilePath, file_path
from kennel.api.routes.files import OF_FILES, AsUser, Keeper
from kennel.api.services import Files, files_of
from kennel.domain.names import path_of
from kennel.domain.principal import Principal
from kennel.wire.errors import KennelError

router = APIRouter(prefix="/v1/projects/{project}/sandboxes", tags=["files"], route_class=StrictRoute)

TAR = "application/x-tar"
_DOWN = answers(200, None, *OF_FILES)
_DOWN[200]["content"] = {TAR: {"schema": {"type": "string", "format": "binary"}}}
_BODY = {"requestBody": {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}}


class ArchiveAnswer(Streamed):
    """Streams a tree; what is wrong with it at the start is a typed answer."""

    def __init__(
        self, files: Files, who: Principal, project: str, box: str, where: bytes, gzip: bool, user: str | None
    ) -> None:
        super().__init__()
        self._source = (files, who, project, box, where)
        self._gzip = gzip
        self._user = user

    async def serve(self, send: Send) -> None:
        """Starts the packing, and sends it."""
        files, who, project, box, where = self._source
        async with files.pack(who, project, box, where, gzip=self._gzip, user=self._user) as pack:
            pieces: AsyncIterator[bytes] = aiter(pack)
            first = await anext(pieces, b"")
            await self.begin(send, 200, {**SAFE_HEADERS, "content-type": "application/gzip" if self._gzip else TAR})
            await self.rest(send, first, pieces)


@router.get("/{name}/archive/{path:anything}", responses=_DOWN)
async def pack(
    request: Request,
    project: ProjectName,
    name: SandboxName,
    path: FilePath,
    who: Keeper,
    gzip: Annotated[bool, Query(description="compressed")] = False,
    user: AsUser = None,
) -> Response:
    """The tree as tar, names relative to it; a single file as an archive of one. Links are entries, not followed."""
    return ArchiveAnswer(files_of(request), who, project, path_of(name), file_path(request), gzip, user)


@router.put(
    "/{name}/archive/{path:anything}",
    responses=answers(200, {"type": "object"}, *OF_FILES, "BODY_TOO_LARGE", "WAIT_TIMEOUT"),
    openapi_extra=_BODY,
)
async def unpack(
    request: Request, project: ProjectName, name: SandboxName, path: FilePath, who: Keeper, user: AsUser = None
) -> Response:
    """Unpacks the tar in the body (plain, gzip, bzip2 or xz) into the directory, which is made if it is missing.

    Entries belong to whoever unpacks; one that would land outside of the directory is refused. What was unpacked before
    a failure stays.
    """
    where = file_path(request)
    try:
        async with files_of(request).unpack(who, project, path_of(name), where, user=user) as upload:
            async for piece in body_of(request):
                await upload.write(piece)
            await upload.finish()
    except KennelError as failure:
        return unread(failure)
    return json_response({"success": True, "path": where.decode("utf-8", "replace"), "timestamp": now()})
