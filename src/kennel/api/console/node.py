"""Owns the page of the machine: what node tells of itself, and whether this installation serves.

Called by console/app.py. Invariant: a node that is away is said to be away; nothing else fails with it.
"""

from __future__ import annotations

from starlette.responses import Response

from kennel.api.console.visit import Visit, get
from kennel.domain.creation import ISOLATIONS
from kennel.domain.instance_type import INSTANCE_TYPES
from kennel.wire.errors import KennelError, error


@get("/node")
async def page(visit: Visit) -> Response:
    """The page."""
    ask = visit.services.node_facts
    if ask is None:
        raise error("NOT_FOUND", "There is no such page.")
    facts, failure = {}, None
    try:
        facts = await ask()
    except KennelError as away:
        failure = away
    return visit.page(
        "node.html", facts=facts, failure=failure, healthy=visit.services.healthy(), isolations=ISOLATIONS,
        types=list(INSTANCE_TYPES.values()), version=visit.request.app.state.version,
    )  # fmt: skip


routes = [page]
