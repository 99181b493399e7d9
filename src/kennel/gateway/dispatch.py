"""Owns what is sent for a request: which origin, which head, which body; one builder for each lane.

Called by the exchange after judgement. Invariant: a value is put in here and nowhere earlier; a request that carries a
secret asks for an unencoded answer, so that the value can be found and hidden in it.
"""

from __future__ import annotations

import asyncio
import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kennel.domain import ai_lane
from kennel.domain.denial import Refused
from kennel.domain.egress_host import written
from kennel.domain.placeholder import write
from kennel.domain.redaction import forms
from kennel.domain.substitution import (
    MAX_TEMPLATE,
    Survey,
    check_template,
    fill_body,
    fill_headers,
    fill_target,
    survey_body,
)
from kennel.gateway.context import Origin
from kennel.gateway.judge import Values
from kennel.gateway.message_head import forwarded, request_head, websocket_request
from kennel.gateway.request_reader import Incoming

if TYPE_CHECKING:
    from kennel.gateway.exchange import Exchange


_NOT_WITH_SECRET = frozenset((b"accept-encoding", b"range", b"if-range"))
"""An answer that is encoded, or a part that begins inside an echoed value, could not be searched for it."""


@dataclass(slots=True)
class Dispatch:
    """What goes out. `body` is None when the request's own body is passed on as it comes; `forms` are to be hidden."""

    origin: Origin
    head: bytes
    body: bytes | None = None
    trusted: bool = False
    forms: list[bytes] = field(default_factory=list)
    instead: bytes = b""
    secret_protocol: bool = False


@dataclass(slots=True)
class Body:
    """A body that had to be read before anything is sent: the lane it decided, its bytes, its JSON."""

    lane: str
    data: bytes | None = None
    tree: Any = None


def framing_of(incoming: Incoming) -> bytes:
    """The field that frames a body passed on as it comes."""
    if incoming.chunked:
        return b"transfer-encoding: chunked\r\n"
    if incoming.length is not None:
        return b"content-length: %d\r\n" % incoming.length
    return b""


def plain_head(exchange: Exchange) -> bytes:
    """The head of a request that carries no secret."""
    incoming, place = exchange.incoming, exchange.place
    assert incoming.target is not None
    headers = forwarded(incoming.headers)
    if incoming.websocket is not None:
        headers = websocket_request(headers, incoming.websocket)
    return request_head(incoming.method, incoming.target.raw, place.authority, headers, framing_of(incoming))


def _arrived(arrival: asyncio.Future[None]) -> None:
    if not arrival.done():
        arrival.set_result(None)


async def collect(exchange: Exchange, *, limit: int, whole: bool) -> bytes:
    """The body as far as it is here, read on up to `limit` bytes; with `whole` Refused when it is longer."""
    incoming = exchange.incoming
    exchange.wanted_body = limit + 1
    if whole and incoming.expects and not incoming.complete and not incoming.body:
        exchange.conversation.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        incoming.expects = False
    elif incoming.expects and not incoming.complete:
        return b""
    exchange.conversation.body_taken()
    while not incoming.complete and incoming.size <= limit:
        arrival: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        incoming.waiter = functools.partial(_arrived, arrival)
        await arrival
        exchange.conversation.body_taken()
    incoming.waiter = None
    exchange.wanted_body = 0
    return b"".join(incoming.body)


async def prepare_body(exchange: Exchange, found: Survey, lane: str) -> Body:
    """Reads the body when a lane needs it: a template's, whose references are added, or a model call's."""
    incoming = exchange.incoming
    if found.template:
        check_template(incoming.headers, incoming.length)
        await exchange.enter_bulk()
        data = await collect(exchange, limit=MAX_TEMPLATE, whole=True)
        if len(data) > MAX_TEMPLATE:
            raise Refused("secret_json_template_body_too_large", f"the body has more than {MAX_TEMPLATE} bytes")
        tree = survey_body(found, data)
        found.require_one()
        return Body("secret", data, tree)
    if lane == "ai":
        await exchange.enter_bulk()
        data = await collect(exchange, limit=ai_lane.MAX_BODY, whole=True)
        context, target = exchange.context, incoming.target
        assert context.ai is not None
        assert target is not None
        fits = incoming.complete and len(data) <= ai_lane.MAX_BODY and ai_lane.parses(data)
        if fits and ai_lane.target(context.ai, target.raw_path, target.raw_query) is not None:
            return Body("ai", data)
        return Body("plain")
    return Body(lane)


def build(exchange: Exchange, found: Survey, values: Values | None, body: Body) -> Dispatch:
    """The head and body of this request's lane."""
    if body.lane == "ai":
        return _build_ai(exchange, body.data or b"")
    if values is None:
        return Dispatch(exchange.place.origin, plain_head(exchange))
    return _build_secret(exchange, found, values, body)


def _build_ai(exchange: Exchange, data: bytes) -> Dispatch:
    gateway, incoming, place = exchange.context.ai, exchange.incoming, exchange.place
    assert gateway is not None
    assert incoming.target is not None
    assert exchange.project is not None
    target = ai_lane.target(gateway, incoming.target.raw_path, incoming.target.raw_query)
    headers = ai_lane.build_headers(gateway, incoming.headers, data, exchange.project.name, place.sandbox.path)
    host = written(gateway.host, gateway.port, gateway.scheme)
    head = request_head(incoming.method, target or "/", host, headers, b"content-length: %d\r\n" % len(data))
    return Dispatch((gateway.scheme, gateway.host, gateway.port), head, data, trusted=True)


def _build_secret(exchange: Exchange, found: Survey, values: Values, body: Body) -> Dispatch:
    incoming, place = exchange.incoming, exchange.place
    assert incoming.target is not None
    raw_path, raw_query = fill_target(found, incoming.target.raw_path, incoming.target.raw_query, values)
    target = raw_path if raw_query is None else f"{raw_path}?{raw_query}"
    filled = fill_headers(found, incoming.headers, values)
    headers = [header for header in forwarded(filled) if header[0] not in _NOT_WITH_SECRET]
    data = fill_body(body.tree, values) if found.template else None
    framing = framing_of(incoming) if data is None else b"content-length: %d\r\n" % len(data)
    headers.append((b"accept-encoding", b"identity"))
    if incoming.websocket is not None:
        headers = websocket_request(headers, incoming.websocket)
    host = place.authority
    spellings = {form for value in values.given for form in forms(value)}
    basic = {incoming.headers[index][0] for index in found.basic}
    spellings |= {form for name, text in filled if name in basic for form in _pair_forms(text)}
    return Dispatch(
        place.origin,
        request_head(incoming.method, target, host, headers, framing),
        data,
        forms=sorted((form for form in spellings if form), key=len, reverse=True),
        instead=_instead(found),
        secret_protocol="header sec-websocket-protocol" in found.places,
    )


def _pair_forms(credentials: bytes) -> set[bytes]:
    """How Basic credentials may be shown again; a short value has no spelling of its own inside them."""
    pair = credentials.partition(b" ")[2].rstrip(b"=")
    return {pair, pair.replace(b"+", b"-").replace(b"/", b"_")}


def _instead(found: Survey) -> bytes:
    """What stands in an answer where the value was: the placeholder of the request's first reference."""
    reference = found.references[0]
    if reference.platform is not None:
        return f'getSecret({{ platform: "{reference.platform}" }})'.encode()
    return write(reference.path or "", reference.field).encode()
