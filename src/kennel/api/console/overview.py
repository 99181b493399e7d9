"""Owns the overview: the project's sandboxes with their figures, searched and filtered, and the form for a new one.

Called by console/app.py. Invariants: looking at it wakes nothing; a form sent twice makes one sandbox; the models and
rules of the JSON API decide what a new one may be.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from starlette.responses import Response

from kennel.api.console.forms import Form, assignments, checked
from kennel.api.console.images import image_names
from kennel.api.console.trouble import fields
from kennel.api.console.visit import Visit, get, post
from kennel.api.failures import invalid
from kennel.api.routes.sandboxes import CreateSandbox
from kennel.api.usage import Figures
from kennel.domain.create_options import CreateOptions
from kennel.domain.creation import ISOLATIONS
from kennel.domain.instance_type import DEFAULT, INSTANCE_TYPES
from kennel.domain.names import PREFIX, claimable_name, path_of
from kennel.wire.errors import KennelError
from kennel.wire.results import SandboxView

STATUSES = ("running", "stopped", "created", "creating", "destroyed")
PAGE = 100
MAX_SCANNED = 5000
"""Rows that a search by name looks at; the list says so when there are more."""


@dataclass(frozen=True, slots=True)
class Filter:
    """What the list is narrowed to; words of the address."""

    words: str = ""
    status: str = ""
    label: str = ""
    cursor: str = ""

    def address(self, **changes: str) -> str:
        """The query of this filter, with changes; empty words are left out."""
        given = {"q": self.words, "status": self.status, "label": self.label, "cursor": self.cursor, **changes}
        return urlencode({name: value for name, value in given.items() if value})

    @property
    def narrows(self) -> bool:
        return bool(self.words or self.status or self.label)


def _filter(visit: Visit) -> Filter:
    asked = visit.request.query_params
    status = asked.get("status", "")
    return Filter(
        words=asked.get("q", "")[:64].strip().lower(),
        status=status if status in STATUSES else "",
        label=asked.get("label", "")[:321].strip(),
        cursor=asked.get("cursor", "")[:1024],
    )


def _label(text: str) -> dict[str, str | None] | None:
    name, equals, value = text.partition("=")
    return {name: value if equals else None} if name else None


async def _page(visit: Visit, asked: Filter) -> tuple[list[SandboxView], str | None]:
    """The rows that fit, a page of them, and the cursor of the next page."""
    found: list[SandboxView] = []
    cursor: str | None = asked.cursor or None
    for _ in range(MAX_SCANNED // PAGE):
        views, cursor = await visit.services.sandboxes.list(
            visit.project, status=asked.status or None, label=_label(asked.label), limit=PAGE, cursor=cursor
        )
        found += [view for view in views if asked.words in view.name]
        if cursor is None or len(found) >= PAGE:
            break
    more = cursor if len(found) <= PAGE else found[PAGE - 1].path
    return found[:PAGE], more


async def figures(visit: Visit, views: Sequence[SandboxView]) -> dict[str, Figures] | None:
    """What those that run use now; None where this installation does not count it."""
    usage = visit.request.app.state.usage
    return await usage.of(views) if usage is not None else None


async def _list(visit: Visit) -> dict[str, Any]:
    asked = _filter(visit)
    views, more = await _page(visit, asked)
    return {"asked": asked, "views": views, "more": more, "figures": await figures(visit, views)}


@get("/sandboxes")
async def overview(visit: Visit) -> Response:
    """The page."""
    form = await _form(visit, Form()) if visit.may("lifecycle") else None
    return visit.page("overview.html", statuses=STATUSES, form=form, **await _list(visit))


@get("/sandboxes-rows")
async def rows(visit: Visit) -> Response:
    """The list alone, which the page asks for again and again."""
    return visit.piece("rows.html", **await _list(visit))


async def _form(visit: Visit, form: Form, failure: KennelError | None = None) -> dict[str, Any]:
    """What the form shows: its choices, what was typed, what was wrong."""
    try:
        images = await image_names(visit)
    except KennelError:
        images = []  # the node is away; the create itself will say so
    return {
        "types": list(INSTANCE_TYPES.values()),
        "default_type": DEFAULT,
        "images": images or ["host"],
        "isolations": ISOLATIONS,
        "request": form.text("request") or secrets.token_urlsafe(16),
        "typed": form,
        "failure": failure,
        "errors": fields(failure) if failure is not None else {},
        "open": failure is not None,
    }


def _options(form: Form) -> tuple[str, CreateOptions]:
    """The path and options that a form asks for; VALIDATION_FAILED by field."""
    name = form.text("name").strip()
    if not name:
        raise invalid({"path": ["give it a name"]})
    words: dict[str, Any] = {
        "path": PREFIX + name,
        "instanceType": form.text("instanceType", DEFAULT),
        "image": form.text("image", "host"),
        "isolation": form.text("isolation", ISOLATIONS[0]),
        "persist": form.text("persist", "workspace"),
        "keepAlive": form.flag("keepAlive"),
        "env": assignments("env", form.text("env")),
        "labels": assignments("labels", form.text("labels")),
    }
    if form.text("sleepAfter").strip():
        words["sleepAfter"] = form.text("sleepAfter").strip()
    body = checked(CreateSandbox, words)
    return path_of(claimable_name(body.path)), CreateOptions(**body.model_dump(exclude={"path", "leave_out"}))


@post("/sandboxes", "lifecycle")
async def create(visit: Visit) -> Response:
    """Makes a sandbox and shows it; a form with something wrong comes back as it was typed."""
    try:
        path, options = _options(visit.form)
        # The blank keeps this id apart from every Idempotency-Key, which cannot hold one.
        request_id = f"console {visit.form.text('request')[:64]}"
        view = await visit.services.sandboxes.create(visit.who, visit.project, path, options, request_id)
    except KennelError as failure:
        form = await _form(visit, visit.form, failure)
        if visit.partial:
            return visit.piece("create.html", failure.status, form=form)
        return visit.page("overview.html", failure.status, statuses=STATUSES, form=form, **await _list(visit))
    return visit.go(visit.url("sandboxes", view.name), f"{view.name} was created. It starts with its first command.")


routes = [overview, rows, create]
