"""Owns the page of keys: making one, whose token is shown once, and revoking.

Called by console/app.py. Invariant: a token stands in the one answer that made it, and nowhere else: not in an address,
not in a session, not in a later page.
"""

from __future__ import annotations

from starlette.responses import Response

from kennel.api.console.forms import checked
from kennel.api.console.trouble import fields
from kennel.api.console.visit import Visit, get, post
from kennel.api.routes.keys import CreateKey
from kennel.domain.principal import SCOPES
from kennel.wire.errors import KennelError

WHAT = {
    "read": "look at everything but secrets", "exec": "run commands, use rooms", "files": "read and write files",
    "lifecycle": "create, sleep, destroy, configure", "secrets": "set and delete secrets",
    "policy": "egress rules and approvals", "admin": "all of it, and keys",
}  # fmt: skip


async def _show(visit: Visit, status: int = 200, token: str = "", failure: KennelError | None = None) -> Response:
    everything = visit.who.admin and visit.request.query_params.get("all") == "1"
    keys = await visit.services.keys.list(visit.who, None if everything else visit.project)
    return visit.page(
        "keys.html", status, keys=keys, shown=token, scopes=[(one, WHAT[one]) for one in SCOPES], typed=visit.form,
        errors=fields(failure) if failure is not None else {}, everything=everything,
    )  # fmt: skip


@get("/keys", "admin")
async def page(visit: Visit) -> Response:
    """The page."""
    return await _show(visit)


@post("/keys", "admin")
async def create(visit: Visit) -> Response:
    """Makes a key and shows its token, once."""
    try:
        body = checked(CreateKey, {"scopes": visit.form.all("scope"), "name": visit.form.text("name").strip()})
        reach = None if visit.form.text("reach") == "installation" else visit.project
        token, _ = await visit.services.keys.create(
            visit.who, project=reach, scopes=list(dict.fromkeys(body.scopes)), name=body.name
        )
    except KennelError as failure:
        if not fields(failure):
            raise
        return await _show(visit, failure.status, failure=failure)
    return await _show(visit, token=token)


@post("/keys/{key}/revoke", "admin")
async def revoke(visit: Visit) -> Response:
    """Ends a key."""
    await visit.services.keys.revoke(visit.who, visit.request.path_params["key"][:64])
    return visit.go(visit.url("keys"), "The key was revoked.")


routes = [page, create, revoke]
