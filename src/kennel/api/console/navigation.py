"""Owns the console's list of pages: what stands in the navigation and who sees it.

Called by `visit` for every page. Invariant: a page that this installation cannot serve, or this key may not open, is
not listed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kennel.api.console.visit import Visit


@dataclass(frozen=True, slots=True)
class Link:
    """One entry; `current` when the page shown is it or below it."""

    label: str
    address: str
    current: bool


def links(visit: Visit) -> list[Link]:
    """The pages this visitor can open, in their order."""
    who = visit.who
    entries = [
        ("Sandboxes", "sandboxes", visit.may("read")),
        ("Rooms", "rooms", visit.may("read")),
        ("Streams", "streams", visit.may("read")),
        ("Images", "images", visit.may("read")),
        ("Keys", "keys", visit.may("admin")),
        ("Projects", "projects", who.admin),
        ("Node", "node", visit.may("read") and visit.services.node_facts is not None),
    ]
    here = visit.request.scope["path"]
    return [
        Link(label, address, here == address or here.startswith(f"{address}/"))
        for label, address in ((label, visit.url(noun)) for label, noun, shown in entries if shown)
    ]
