"""Owns what a caller may do: one dependency per scope, checked before a body is looked at.

Called by every route. Invariant: a project that is not the key's and a project that does not exist answer alike.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from fastapi import Request
from starlette.requests import HTTPConnection

from kennel.api.fields import IDEMPOTENCY_KEY, ProjectName
from kennel.api.gate import PRINCIPAL
from kennel.api.services import services_of
from kennel.domain.principal import DEFAULT_PROJECT, Principal
from kennel.wire.errors import KennelError, error


class InProject(NamedTuple):
    """A caller and the project that the request means."""

    who: Principal
    project: str


def caller(request: HTTPConnection) -> Principal:
    """Whoever the gate let in."""
    principal: Principal = request.scope[PRINCIPAL]
    return principal


async def check(request: HTTPConnection, scope: str, project: str) -> Principal:
    """The caller, if it may use `scope` in this project; FORBIDDEN, PROJECT_NOT_FOUND."""
    who = caller(request)
    missing = error("PROJECT_NOT_FOUND", "no such project")
    if who.project is not None and who.project != project:
        raise missing
    if not who.may(scope, project):
        raise error("FORBIDDEN", f"this key lacks the scope '{scope}'")
    try:
        await services_of(request).projects.require(project)
    except KennelError as failure:
        raise missing if failure.code == "PROJECT_NOT_FOUND" else failure from None
    return who


def allow(scope: str) -> Callable[[Request, str], Coroutine[Any, Any, Principal]]:
    """A dependency: the caller, if it may use `scope` in the path's project."""

    async def allowed(request: Request, project: ProjectName) -> Principal:
        return await check(request, scope, project)

    return allowed


def allow_in_own(scope: str) -> Callable[[Request], Coroutine[Any, Any, InProject]]:
    """A dependency: the caller in its key's project (`default` for an installation key), if it may use `scope`."""

    async def allowed(request: Request) -> InProject:
        project = caller(request).project or DEFAULT_PROJECT
        return InProject(await check(request, scope, project), project)

    return allowed


async def administrator(request: Request) -> Principal:
    """A dependency: the caller, if its key is one of the installation with scope `admin`."""
    who = caller(request)
    if not who.admin:
        raise error("FORBIDDEN", "this takes an admin key of the installation")
    return who


async def key_holder(request: Request) -> Principal:
    """A dependency: the caller, if its key may manage keys: `admin`, of its project or of the installation."""
    who = caller(request)
    if "admin" not in who.scopes:
        raise error("FORBIDDEN", "this key lacks the scope 'admin'")
    return who


def request_id(request: Request) -> str | None:
    """The caller's Idempotency-Key: 1–128 visible ASCII characters; VALIDATION_FAILED otherwise."""
    values = request.headers.getlist("idempotency-key")
    if not values:
        return None
    if len(values) == 1 and IDEMPOTENCY_KEY.fullmatch(values[0]):
        return values[0]
    message = "1 to 128 visible ASCII characters, once"
    raise error("VALIDATION_FAILED", "invalid request", details={"Idempotency-Key": [message]})
