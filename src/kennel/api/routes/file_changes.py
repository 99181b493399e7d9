"""Owns the routes that change trees of files: mkdir, move, copy, chmod, link, and many such steps in one call.

Called by app.py. Invariant: a path is given as text or, when it is not UTF-8, in base64; a batch answers step by step,
and a failed step ends it unless the caller said otherwise.
"""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from pydantic import ConfigDict, Field, StringConstraints
from starlette.responses import Response

from kennel.api.answers import json_response, now
from kennel.api.body import StrictRoute
from kennel.api.failures import invalid
from kennel.api.fields import AbsolutePath, Argument, Model, ProjectName, SandboxName, User
from kennel.api.hangup import unless_hung_up
from kennel.api.openapi import WITH_BODY, answers
from kennel.api.routes.files import OF_FILES, Keeper, content_of
from kennel.api.services import Files, files_of
from kennel.domain.file import WriteOptions, path_from, to_wire
from kennel.domain.names import path_of
from kennel.domain.principal import Principal
from kennel.wire.errors import KennelError, error

router = APIRouter(prefix="/v1/projects/{project}/sandboxes", tags=["files"], route_class=StrictRoute)

PathBytes = Annotated[str, StringConstraints(min_length=1, max_length=8192)]
LinkText = Annotated[Argument, StringConstraints(min_length=1, max_length=1000)]
Octal = Annotated[str, StringConstraints(pattern="^[0-7]{1,4}$")]
MAX_STEPS = 1000
MAX_BATCH_READ = 16 * 1024 * 1024
"""Bytes of files that the steps of one batch may read together."""
_DONE = answers(200, {"type": "object"}, *OF_FILES, *WITH_BODY)


def _one_of(name: str) -> dict[str, Any]:
    """The part of a schema that asks for a path, as text or in base64."""
    return {
        "oneOf": [
            {"required": [key], "properties": {key: {"not": {"type": "null"}}}} for key in (name, f"{name}Base64")
        ]
    }


class OnePath(Model):
    """A path, as text or in base64."""

    model_config = ConfigDict(json_schema_extra=_one_of("path"))

    path: AbsolutePath | None = None
    path_base64: PathBytes | None = None
    user: User | None = None

    def where(self) -> bytes:
        """Its bytes."""
        return path_from(self.path, self.path_base64)


class MakeDirectory(OnePath):
    """A new directory."""

    recursive: bool = False
    mode: Octal | None = None


class ChangeMode(OnePath):
    """Permission bits, octal."""

    mode: Octal


class Link(OnePath):
    """A new symbolic link to `target`."""

    target: LinkText


class TwoPaths(OnePath):
    """From `path` to `to`; with `into` an existing directory is what it goes into."""

    model_config = ConfigDict(json_schema_extra={"allOf": [_one_of("path"), _one_of("to")]})

    to: AbsolutePath | None = None
    to_base64: PathBytes | None = None
    into: bool = False
    overwrite: bool = True

    def options(self) -> dict[str, Any]:
        """The guest's words for it."""
        return {"to": path_from(self.to, self.to_base64), "into": self.into, "overwrite": self.overwrite}


class CopyPaths(TwoPaths):
    """A copy; a directory with all below it only when `recursive`."""

    recursive: bool = False

    def options(self) -> dict[str, Any]:
        """The guest's words for it."""
        return {**super().options(), "recursive": self.recursive}


class Step(TwoPaths):
    """One step of a batch; which fields count is the operation's to say, and what is wrong with them its result."""

    model_config = ConfigDict(json_schema_extra={})

    op: Literal["stat", "exists", "read", "write", "delete", "mkdir", "move", "copy", "chmod", "link"]
    recursive: bool = False
    mode: Octal | None = None
    content: str | None = None
    encoding: Literal["auto", "utf8", "base64"] = "auto"
    target: LinkText | None = None


class Batch(Model):
    """Steps, in order."""

    operations: Annotated[list[Step], Field(max_length=MAX_STEPS)]
    go_on: bool = False


def _told(where: bytes, found: tuple[bytes, Any]) -> dict[str, Any]:
    place, facts = found
    told: dict[str, Any] = {"success": True, "path": where.decode("utf-8", "replace"), "timestamp": now()}
    if place != where:
        told["newPath"] = place.decode("utf-8", "replace")
    if facts is not None:
        told["file"] = to_wire(place, facts)
    return told


async def _change(
    request: Request, project: str, name: str, who: Principal, verb: str, body: OnePath, options: dict[str, Any]
) -> Response:
    where = body.where()
    work = files_of(request).change(who, project, path_of(name), verb, where, options, body.user)
    return json_response(_told(where, await unless_hung_up(request, work)))


def _mode(text: str | None) -> int | None:
    return None if text is None else int(text, 8)


@router.post("/{name}/files:mkdir", responses=_DONE)
async def mkdir(
    request: Request, project: ProjectName, name: SandboxName, body: MakeDirectory, who: Keeper
) -> Response:
    """Makes a directory; with `recursive` its parents too, and an existing one is fine."""
    options = {"recursive": body.recursive, "mode": _mode(body.mode)}
    return await _change(request, project, name, who, "mkdir", body, options)


@router.post("/{name}/files:move", responses=_DONE)
async def move(request: Request, project: ProjectName, name: SandboxName, body: TwoPaths, who: Keeper) -> Response:
    """Moves or renames, onto another file system by copying; `newPath` is where it lies now."""
    return await _change(request, project, name, who, "move", body, body.options())


@router.post("/{name}/files:copy", responses=_DONE)
async def copy(request: Request, project: ProjectName, name: SandboxName, body: CopyPaths, who: Keeper) -> Response:
    """Copies with modes, times and owners; links are copied as links."""
    return await _change(request, project, name, who, "copy", body, body.options())


@router.post("/{name}/files:chmod", responses=_DONE)
async def chmod(request: Request, project: ProjectName, name: SandboxName, body: ChangeMode, who: Keeper) -> Response:
    """Sets permission bits."""
    return await _change(request, project, name, who, "chmod", body, {"mode": _mode(body.mode)})


@router.post("/{name}/files:link", responses=_DONE)
async def link(request: Request, project: ProjectName, name: SandboxName, body: Link, who: Keeper) -> Response:
    """Makes a symbolic link."""
    return await _change(request, project, name, who, "link", body, {"target": body.target})


@router.post("/{name}/files:batch", responses=_DONE)
async def batch(request: Request, project: ProjectName, name: SandboxName, body: Batch, who: Keeper) -> Response:
    """Does the steps in order; `results` has one entry for each that was tried, `{"success": false, "error"}` for a
    failed one, after which the rest is left undone unless `goOn` is set."""
    work = _steps(files_of(request), who, project, path_of(name), body)
    return json_response({"results": await unless_hung_up(request, work)})


async def _steps(files: Files, who: Principal, project: str, box: str, body: Batch) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = []
    budget = MAX_BATCH_READ
    for step in body.operations:
        try:
            told = await _step(files, who, project, box, step, budget)
        except KennelError as failure:
            results.append({"success": False, "op": step.op, "error": failure.to_wire()})
            if not body.go_on or failure.status >= 502:
                break
            continue
        if step.op == "read":
            budget -= told["size"]
        results.append({"success": True, "op": step.op, **told})
    return results


async def _step(files: Files, who: Principal, project: str, box: str, step: Step, budget: int) -> dict[str, Any]:
    where = step.where()
    if step.op == "exists":
        return {"exists": await _exists(files, who, project, box, where, step.user)}
    if step.op == "stat":
        return {"file": to_wire(where, await files.stat(who, project, box, where, user=step.user))}
    if step.op == "read":
        return await _read(files, who, project, box, step, where, budget)
    if step.op == "write":
        options = WriteOptions(mode=_mode(step.mode), exclusive=not step.overwrite, user=step.user)
        async with files.write(who, project, box, where, options) as upload:
            await upload.write(_content(step))
            facts, created = await upload.finish()
        return {"file": to_wire(where, facts), "created": created}
    return _told(where, await files.change(who, project, box, step.op, where, _options(step), step.user))


def _options(step: Step) -> dict[str, Any]:
    if step.op in ("move", "copy"):
        return {**step.options(), **({"recursive": step.recursive} if step.op == "copy" else {})}
    if step.op == "delete":
        return {"recursive": step.recursive}
    if step.op == "link":
        return {"target": step.target}
    return {"mode": _mode(step.mode), **({"recursive": step.recursive} if step.op == "mkdir" else {})}


def _content(step: Step) -> bytes:
    if step.content is None:
        raise invalid({"content": ["is needed"]})
    if step.encoding != "base64":
        return step.content.encode()
    try:
        return base64.b64decode(step.content, validate=True)
    except (binascii.Error, ValueError):
        raise invalid({"content": ["not base64"]}) from None


async def _exists(files: Files, who: Principal, project: str, box: str, where: bytes, user: str | None) -> bool:
    try:
        await files.stat(who, project, box, where, user=user)
    except KennelError as failure:
        if failure.code not in ("FILE_NOT_FOUND", "NOT_DIRECTORY"):
            raise
        return False
    return True


async def _read(
    files: Files, who: Principal, project: str, box: str, step: Step, where: bytes, budget: int
) -> dict[str, Any]:
    content = bytearray()
    async with files.read(who, project, box, where, user=step.user) as download:
        async for piece in download:
            content += piece
            if len(content) > budget:
                details = {"maxSize": MAX_BATCH_READ, "errno": "EFBIG"}
                raise error("FILE_TOO_LARGE", f"a batch reads at most {MAX_BATCH_READ} bytes", details=details)
    return {"path": where.decode("utf-8", "replace"), **content_of(where, bytes(content), step.encoding)}
