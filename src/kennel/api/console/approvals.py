"""Owns the inbox of requests that wait for a person, in a page of its own and in a room's.

Called by console/app.py and, for the list, by the rooms' page. Invariants: what is approved is what was shown
and ticked, so an answer names each request of a batch; a list that did not change is not replaced under the reader.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from starlette.responses import Response
from starlette.routing import BaseRoute

from kennel.api.console import text
from kennel.api.console.visit import Visit, get, post
from kennel.api.failures import invalid
from kennel.api.services import egress_of
from kennel.domain.egress_state import ApprovalView
from kennel.wire.errors import error

_ID = re.compile(r"hold-[0-9a-f]{16}")
SHOWN = 50
"""Answered ones on the page."""
MAX_BODY = 4096


@dataclass(frozen=True, slots=True)
class Held:
    """One request of a batch as it is shown."""

    method: str
    url: str
    headers: list[tuple[str, str]]
    secrets: list[str]
    body: str
    outcome: str
    approved: bool | None


@dataclass(frozen=True, slots=True)
class Row:
    """A batch as it is shown."""

    view: ApprovalView
    requests: list[Held]
    ends: str


def _held(view: ApprovalView, index: int, request: dict[str, Any]) -> Held:
    verdicts = view.verdicts
    return Held(
        method=str(request.get("method", "")),
        url=str(request.get("url", "")),
        headers=[(str(pair[0]), str(pair[1])) for pair in request.get("headers") or [] if len(pair) == 2],
        secrets=[str(one) for one in request.get("secretPaths") or []],
        body=_body(request),
        outcome=view.outcomes.get(index, ""),
        approved=verdicts[index] if verdicts is not None and index < len(verdicts) else None,
    )


def _body(request: dict[str, Any]) -> str:
    """The beginning of a request's body, for people."""
    try:
        data = base64.b64decode(str(request.get("body") or ""), validate=True)
    except ValueError:
        return ""
    cut = len(data) > MAX_BODY or bool(request.get("bodyTruncated"))
    return text.output(data[:MAX_BODY]) + ("\n…" if cut else "")


def _row(view: ApprovalView) -> Row:
    ends = datetime.fromtimestamp(max(0, min(view.expires_at, 253_402_300_799_000)) / 1000, UTC).isoformat()
    return Row(view, [_held(view, n, one) for n, one in enumerate(view.requests)], ends)


async def waiting(visit: Visit, sandbox: str | None = None) -> list[Row]:
    """What waits, of one sandbox or of all; nothing in an installation without a way out."""
    if visit.services.egress is None:
        return []
    found = await visit.services.egress.approvals.list(visit.project, status="open")
    return [_row(view) for view in found if sandbox in (None, view.sandbox)]


def mark(rows: Sequence[Row]) -> str:
    """Changes when a list does: a page that has this very list is not given it again, and keeps what was ticked."""
    seen = repr([(row.view.id, row.view.status, row.requests) for row in rows])
    return hashlib.sha256(seen.encode("utf-8", "surrogatepass")).hexdigest()[:16]


async def _inbox(visit: Visit) -> dict[str, Any]:
    found = await egress_of(visit.request).approvals.list(visit.project)
    waiting = [_row(view) for view in found if view.status == "open"]
    done = [_row(view) for view in found if view.status != "open"][:SHOWN]
    policy = await egress_of(visit.request).rules(visit.project)
    return {
        "waiting": waiting,
        "done": done,
        "mark": mark([*waiting, *done]),
        "signed": bool(policy.get("approvers")),
    }


@get("/approvals")
async def page(visit: Visit) -> Response:
    """The page."""
    return visit.page("approvals.html", **await _inbox(visit))


@get("/approvals-rows")
async def rows(visit: Visit) -> Response:
    """The inbox alone, which the page asks for again and again."""
    inbox = await _inbox(visit)
    if visit.request.query_params.get("seen") == inbox["mark"]:
        return Response(status_code=204)
    return visit.piece("inbox.html", **inbox)


@post("/approvals/{hold}", "policy")
async def decide(visit: Visit) -> Response:
    """Answers a batch: all alike, or those alone that were ticked."""
    hold, word = visit.request.path_params["hold"], visit.form.text("do")
    if not _ID.fullmatch(hold):
        raise error("NOT_FOUND", "There is no such approval.", admitted="no")
    approvals = egress_of(visit.request).approvals
    count = len((await approvals.get(visit.project, hold)).requests)
    if word not in ("approve", "deny"):
        raise invalid({"do": ["'approve' or 'deny'"]})
    if visit.form.text("requests") != str(count):
        raise error("RESOURCE_BUSY", "More requests joined this batch; look at it again.", admitted="no")
    chosen = set(visit.form.all("request"))
    each = [word == "approve" and (count == 1 or str(index) in chosen) for index in range(count)]
    if word == "approve" and not any(each):
        raise invalid({"request": ["tick what you approve, or deny the batch"]})
    await approvals.decide(visit.who, visit.project, hold, each, reason=visit.form.text("reason").strip()[:1024])
    if visit.partial:
        # A room's page asks for its own list again; the inbox is replaced by this one.
        return visit.piece("inbox.html", **await _inbox(visit))
    return visit.go(visit.url("approvals"), "It was answered.")


routes: list[BaseRoute] = [page, rows, decide]
