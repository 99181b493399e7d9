"""Owns the routes of git in a sandbox.

Called by app.py. Invariant: an address with a password in it never comes back in an answer; a caller that hangs up ends
the git that ran for it.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from pydantic import Field, StringConstraints
from starlette.responses import Response

from kennel.api.access import allow
from kennel.api.answers import json_response, now
from kennel.api.body import StrictRoute
from kennel.api.fields import INTEGRAL, Argument, Model, ProjectName, SandboxName
from kennel.api.hangup import unless_hung_up
from kennel.api.openapi import IN_PROJECT, OF_EXEC, OF_NODE, OF_SANDBOX, WITH_BODY, answers
from kennel.api.services import Git, git_of
from kennel.control.git import Clone, Place, check_directory
from kennel.domain.git import MAX_URL
from kennel.domain.names import path_of
from kennel.domain.principal import Principal

router = APIRouter(prefix="/v1/projects/{project}/sandboxes/{name}/git", tags=["git"], route_class=StrictRoute)

Runner = Annotated[Principal, Depends(allow("exec"))]
Word = Annotated[Argument, StringConstraints(min_length=1, max_length=4096)]
Ref = Annotated[Argument, StringConstraints(min_length=1, max_length=255)]
Milliseconds = Annotated[int, Field(ge=1, le=24 * 3600 * 1000), INTEGRAL]
_DONE = answers(
    200, {"type": "object"}, *IN_PROJECT, *OF_SANDBOX, *OF_NODE, *OF_EXEC, *WITH_BODY, "INVALID_GIT_URL",
    "INVALID_PATH", "GIT_AUTH_FAILED", "GIT_REPOSITORY_NOT_FOUND", "GIT_BRANCH_NOT_FOUND", "GIT_NETWORK_ERROR",
    "GIT_CLONE_FAILED", "GIT_CHECKOUT_FAILED", "GIT_OPERATION_FAILED",
)  # fmt: skip


class Credentials(Model):
    """For a remote that asks; they are used once and kept nowhere."""

    username: Word | None = None
    password: Word | None = None


class CheckoutRequest(Credentials):
    """What to clone; `timeout` is milliseconds, `targetDir` /workspace/NAME without one."""

    url: Annotated[Argument, StringConstraints(min_length=1, max_length=MAX_URL)]
    branch: Ref | None = None
    target_dir: Word | None = None
    depth: Annotated[int, Field(ge=1, le=2**31 - 1), INTEGRAL] | None = None
    timeout: Milliseconds = 600_000


class InRepository(Model):
    """A repository inside the sandbox."""

    directory: Word = "/workspace"

    def where(self) -> str:
        """Its absolute path."""
        return check_directory(self.directory)


class DiffRequest(InRepository):
    """Of the work tree, the index (`staged`), or since `ref`."""

    staged: bool = False
    ref: Ref | None = None


class CommitRequest(InRepository):
    """Of `paths`, or of everything (`all`), or of what is staged."""

    message: Annotated[str, StringConstraints(min_length=1, max_length=65536)]
    paths: Annotated[list[Word], Field(min_length=1, max_length=1000)] | None = None
    all: bool = True


class PushRequest(InRepository, Credentials):
    """A branch, HEAD's without one, to `remote`."""

    remote: Annotated[Argument, StringConstraints(min_length=1, max_length=MAX_URL, pattern="^[^-]")] = "origin"
    branch: Ref | None = None
    timeout: Milliseconds = 600_000


class SwitchRequest(InRepository):
    """Another branch; with `create` a new one."""

    branch: Ref
    create: bool = False


def _asked(request: Request, who: Principal, project: str, name: str) -> tuple[Git, Place]:
    return git_of(request), Place(who, project, path_of(name))


async def _answer(request: Request, work: Coroutine[Any, Any, dict[str, Any]]) -> Response:
    return json_response({**await unless_hung_up(request, work), "timestamp": now()})


@router.post("/checkout", responses=_DONE)
async def checkout(
    request: Request, project: ProjectName, name: SandboxName, body: CheckoutRequest, who: Runner
) -> Response:
    """Clones a repository inside the sandbox; credentials in `url` or beside it end up in no file."""
    git, place = _asked(request, who, project, name)
    target = None if body.target_dir is None else check_directory(body.target_dir)
    asked = Clone(body.url, body.branch, target, body.depth, body.timeout, body.username, body.password)
    return await _answer(request, git.checkout(place, asked))


@router.post("/status", responses=_DONE)
async def status(
    request: Request, project: ProjectName, name: SandboxName, body: InRepository, who: Runner
) -> Response:
    """Branch, commit, and git's two letters for each file that is not as it was committed."""
    git, place = _asked(request, who, project, name)
    return await _answer(request, git.status(place, body.where()))


@router.post("/diff", responses=_DONE)
async def diff(request: Request, project: ProjectName, name: SandboxName, body: DiffRequest, who: Runner) -> Response:
    """What changed, as a patch of at most 16 MiB (`truncated`)."""
    git, place = _asked(request, who, project, name)
    return await _answer(request, git.diff(place, body.where(), staged=body.staged, ref=body.ref))


@router.post("/commit", responses=_DONE)
async def commit(
    request: Request, project: ProjectName, name: SandboxName, body: CommitRequest, who: Runner
) -> Response:
    """Commits; `output` is the new commit's id."""
    git, place = _asked(request, who, project, name)
    return await _answer(request, git.commit(place, body.where(), body.message, paths=body.paths, everything=body.all))


@router.post("/push", responses=_DONE)
async def push(request: Request, project: ProjectName, name: SandboxName, body: PushRequest, who: Runner) -> Response:
    """Pushes; `output` is what git said."""
    git, place = _asked(request, who, project, name)
    work = git.push(
        place, body.where(), remote=body.remote, branch=body.branch, username=body.username, password=body.password,
        timeout_ms=body.timeout,
    )  # fmt: skip
    return await _answer(request, work)


@router.post("/branches", responses=_DONE)
async def branches(
    request: Request, project: ProjectName, name: SandboxName, body: InRepository, who: Runner
) -> Response:
    """Local and remote branches, and the current one."""
    git, place = _asked(request, who, project, name)
    return await _answer(request, git.branches(place, body.where()))


@router.post("/switch", responses=_DONE)
async def switch(
    request: Request, project: ProjectName, name: SandboxName, body: SwitchRequest, who: Runner
) -> Response:
    """Checks another branch out."""
    git, place = _asked(request, who, project, name)
    return await _answer(request, git.switch(place, body.where(), body.branch, create=body.create))
