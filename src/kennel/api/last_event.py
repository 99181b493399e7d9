"""Owns how a caller says after which event it wants to read on.

Called by the routes whose streams can be returned to. Invariant: what is no number of an event is refused, never taken
for none.
"""

from __future__ import annotations

from fastapi import Request

from kennel.api.failures import invalid


def last_event_id(request: Request) -> int:
    """The number after which events are wanted, by header or `after`; 0 without one."""
    text = request.headers.get("last-event-id") or request.query_params.get("after") or "0"
    if not text.isascii() or not text.isdigit() or len(text) > 15:
        raise invalid({"Last-Event-ID": ["the number of an event"]})
    return int(text)
