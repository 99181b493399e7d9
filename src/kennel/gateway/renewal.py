"""Owns what an exchange does when a secret that can be refreshed is stale, or its host answers 401: once, then again.

Called by the exchange. Invariant: a request is sent a second time only whole, judged and recorded like the first; what
cannot be sent again (a body that went by) keeps its 401.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kennel.domain.substitution import Survey
from kennel.gateway import judge
from kennel.gateway.dispatch import Body, Dispatch, build
from kennel.gateway.judge import Values

if TYPE_CHECKING:
    from kennel.gateway.exchange import Exchange


@dataclass(slots=True)
class Sending:
    """What a request was made of, so that it can be made again."""

    found: Survey
    body: Body
    values: Values | None
    renewed: bool = False


async def renew_stale(exchange: Exchange, found: Survey, values: Values | None) -> tuple[Values | None, bool]:
    """The values to use now, and whether they were just got."""
    if values is None or values.secret is None or not values.stale(found.references[0]):
        return values, False
    await exchange.context.refresher.renew(exchange.place.sandbox, values.secret)
    return require(exchange, found), True


def can_renew(exchange: Exchange, sending: Sending | None, dispatch: Dispatch, status: int) -> bool:
    """Whether a 401 is worth new material and a second try."""
    if status != 401 or sending is None or sending.renewed or sending.values is None:
        return False
    secret, incoming = sending.values.secret, exchange.incoming
    whole = dispatch.body is not None or (incoming.complete and not incoming.size)
    return secret is not None and secret.refresh is not None and whole


async def rebuild(exchange: Exchange, sending: Sending) -> Dispatch:
    """The request with new material, judged again and on record again."""
    assert sending.values is not None
    assert sending.values.secret is not None
    await exchange.context.refresher.renew(exchange.place.sandbox, sending.values.secret)
    sending.values, sending.renewed = require(exchange, sending.found), True
    dispatch = build(exchange, sending.found, sending.values, sending.body)
    await exchange.context.journal.commit(exchange.record)
    return dispatch


def require(exchange: Exchange, found: Survey) -> Values | None:
    """Rules and pin once more: both may have changed while something was waited for."""
    exchange.judge_policy(found)
    target = exchange.incoming.target
    assert exchange.project is not None
    assert target is not None
    return judge.require_secret(
        exchange.context, exchange.project, exchange.place, exchange.incoming.method, target, found
    )
