"""Owns the page of secrets: which there are, where each may go, how it was used; storing and removing.

Called by console/app.py. Invariant: a secret's value is in the form that stores it and in no page, address or notice.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
from starlette.responses import Response
from starlette.routing import BaseRoute

from kennel.api.body import read_json
from kennel.api.console.forms import checked
from kennel.api.console.trouble import fields
from kennel.api.console.visit import Visit, get, post
from kennel.api.failures import invalid
from kennel.api.routes.secrets import PutSecret
from kennel.api.services import egress_of
from kennel.wire.egress import Pin
from kennel.wire.errors import KennelError

PREFIX = "/secrets/"


async def _show(visit: Visit, status: int = 200, failure: KennelError | None = None) -> Response:
    found = await egress_of(visit.request).secrets.list(visit.project)
    last = {one.path: datetime.fromtimestamp(one.last_used_at / 1000, UTC).isoformat()
            for one in found if one.last_used_at}  # fmt: skip
    return visit.page(
        "secrets.html", status, secrets=found, last=last, typed=visit.form, failure=failure,
        errors=fields(failure) if failure is not None else {},
    )  # fmt: skip


@get("/secrets", "secrets")
async def page(visit: Visit) -> Response:
    """The page."""
    return await _show(visit)


def _words(text: str) -> list[str]:
    return [word for word in text.replace(",", " ").split() if word]


def _material(visit: Visit) -> Any:
    """What is stored: the text, or the object that it says when it is said to be JSON."""
    typed = visit.form.text("value")
    if not visit.form.flag("json"):
        return typed
    try:
        value = read_json(typed.encode())
    except (ValueError, UnicodeError):
        value = None
    if not isinstance(value, dict):
        raise invalid({"material": ["not a JSON object"]})
    return value


@post("/secrets", "secrets")
async def store(visit: Visit) -> Response:
    """Stores or replaces a secret."""
    form = visit.form
    try:
        words: dict[str, Any] = {"material": _material(visit), "origins": _words(form.text("origins"))}
        words |= {name: found for name in ("methods", "headers") if (found := _words(form.text(name)))}
        if form.text("pathPrefix").strip():
            words["pathPrefix"] = form.text("pathPrefix").strip()
        body = checked(PutSecret, words)
        pin = msgspec.convert({k: v for k, v in body.model_dump(by_alias=True).items() if k != "material" and v}, Pin)
        name = form.text("name").strip().removeprefix(PREFIX)
        view = await egress_of(visit.request).secrets.put(visit.who, visit.project, PREFIX + name, body.material, pin)
    except KennelError as failure:
        return await _show(visit, failure.status, failure)
    return visit.go(visit.url("secrets"), f"{view.path} is stored.")


@post("/secrets/remove", "secrets")
async def remove(visit: Visit) -> Response:
    """Forgets a secret."""
    where = visit.form.text("path")
    await egress_of(visit.request).secrets.remove(visit.who, visit.project, where)
    return visit.go(visit.url("secrets"), f"{where} is gone: requests that name it are refused.")


routes: list[BaseRoute] = [page, store, remove]
