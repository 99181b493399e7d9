"""Owns the console's lists of pages: what stands in the navigation, what a sandbox's tabs are, and who sees it.

Called by `visit` for every page and by the pages of a sandbox. Invariant: a page that this installation cannot serve,
or this key may not open, is not listed.
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
    if visit.guest is not None:
        return []
    entries = [
        ("Sandboxes", "sandboxes", visit.may("read")),
        ("Rooms", "rooms", visit.may("read")),
        ("Egress", "egress", visit.may("read") and visit.services.egress is not None),
        ("Secrets", "secrets", visit.may("secrets") and visit.services.egress is not None),
        ("Streams", "streams", visit.may("read")),
        ("Images", "images", visit.may("read")),
        ("Keys", "keys", visit.may("admin")),
        ("Projects", "projects", who.admin),
        ("Node", "node", visit.may("read") and visit.services.node_facts is not None),
    ]
    here = visit.request.scope["path"].replace(visit.url("approvals"), visit.url("egress"))
    return [
        Link(label, address, here == address or here.startswith(f"{address}/"))
        for label, address in ((label, visit.url(noun)) for label, noun, shown in entries if shown)
    ]


def tabs(visit: Visit, name: str) -> list[Link]:
    """The pages of one sandbox that this visitor can open."""
    services = visit.services
    if visit.guest is not None:
        return []  # what there is of it, the room's page names
    entries = [
        ("Overview", (), True),
        ("Terminal", ("terminal",), visit.may("exec") and services.running is not None),
        ("Processes", ("processes",), services.running is not None),
        ("Files", ("files",), visit.may("files") and services.files is not None),
        ("Snapshots", ("snapshots",), services.snapshots is not None),
        ("Previews", ("previews",), services.running is not None),
        ("Usage", ("usage",), services.usage is not None),
    ]
    own = visit.url("sandboxes", name)
    part = visit.request.scope["path"].removeprefix(own).strip("/").partition("/")[0]
    current = part if any(rest == (part,) for _, rest, _ in entries) else ""
    return [
        Link(label, visit.url("sandboxes", name, *rest), "".join(rest) == current)
        for label, rest, shown in entries
        if shown
    ]
