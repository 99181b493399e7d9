"""Owns the pages of the way out: the rules, what they would do to a request, and the log of what they did.

Called by console/app.py. Invariants: reading needs `read`, changing `policy`; what is wrong with a rule comes back with
what was typed; rules that changed since the page was loaded are not replaced; a dry run sends nothing.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
from starlette.responses import Response
from starlette.routing import BaseRoute

from kennel.api.body import read_json
from kennel.api.console import live
from kennel.api.console.forms import Form, checked
from kennel.api.console.trouble import fields
from kennel.api.console.visit import Visit, get, post
from kennel.api.failures import invalid
from kennel.api.routes.egress import Rules, Trial
from kennel.api.services import egress_of
from kennel.domain.egress_state import LOG
from kennel.wire.errors import KennelError, error

MAX_TYPED = 256 * 1024
"""Characters of rules that a form takes; longer ones go through the API."""
VERDICTS = ("allow", "deny", "hold")
_WORDS = ("hosts", "methods", "sandboxes")


async def _show(visit: Visit, status: int = 200, **more: Any) -> Response:
    policy = await egress_of(visit.request).rules(visit.project)
    shown = {key: value for key, value in policy.items() if key != "version"}
    given: dict[str, Any] = {"failure": None, "typed": None, "trial": None, "found": None, **more}
    return visit.page(
        "egress.html", status, policy=policy, verdicts=VERDICTS, errors=given.pop("errors", {}),
        written=given["typed"] if given["typed"] is not None else json.dumps(shown, indent=2, ensure_ascii=False),
        asked=given["trial"] or Form(), **given,
    )  # fmt: skip


@get("/egress")
async def page(visit: Visit) -> Response:
    """The rules."""
    return await _show(visit)


async def _store(visit: Visit, policy: dict[str, Any], typed: str | None = None) -> Response:
    """Replaces the rules, if they are still those that the form was made from."""
    egress = egress_of(visit.request)
    try:
        held = (await egress.rules(visit.project))["version"]
        if str(held) != visit.form.text("version"):
            raise error("OFFSET_CONFLICT", "The rules changed since you loaded this page; nothing was replaced.",
                        admitted="no", hint="look at the rules below and repeat your change")  # fmt: skip
        body = checked(Rules, policy)
        words = {key: value for key, value in body.model_dump(by_alias=True).items() if value is not None}
        await egress.set_rules(visit.who, visit.project, words)
    except KennelError as failure:
        return await _show(visit, failure.status, failure=failure, errors=fields(failure), typed=typed)
    return visit.go(visit.url("egress"), "The rules hold from the next request on.")


@post("/egress", "policy")
async def replace(visit: Visit) -> Response:
    """All rules, as they were typed."""
    typed = visit.form.text("policy")
    try:
        value = read_json(typed.encode())
        if not isinstance(value, dict):
            raise ValueError("not an object")
    except (ValueError, UnicodeError) as fault:
        failure = invalid({"policy": [f"not a JSON object: {str(fault)[:200]}"]})
        return await _show(visit, failure.status, failure=failure, errors=fields(failure), typed=typed)
    return await _store(visit, value, typed)


def _listed(text: str) -> list[str]:
    return [word for word in text.replace(",", " ").split() if word]


@post("/egress/add", "policy")
async def add(visit: Visit) -> Response:
    """One rule more, at a place of the list."""
    form, policy = visit.form, dict(await egress_of(visit.request).rules(visit.project))
    match: dict[str, Any] = {name: _listed(form.text(name)) for name in _WORDS if _listed(form.text(name))}
    if ports := _listed(form.text("ports")):
        if not all(word.isascii() and word.isdigit() for word in ports):
            failure = invalid({"ports": ["whole numbers"]})
            return await _show(visit, failure.status, failure=failure, errors=fields(failure))
        match["ports"] = [int(word[:9]) for word in ports]
    if form.text("pathPrefix").strip():
        match["pathPrefix"] = form.text("pathPrefix").strip()
    rule: dict[str, Any] = {"ruleKey": form.text("ruleKey").strip(), "verdict": form.text("verdict"), "match": match}
    if form.text("description").strip():
        rule["description"] = form.text("description").strip()
    rules = list(policy["rules"])
    policy["rules"] = [rule, *rules] if form.text("where") == "first" else [*rules, rule]
    return await _store(visit, policy)


@post("/egress/rules/{key:path}/{verb}", "policy")
async def move(visit: Visit) -> Response:
    """Takes a rule away, or one place up or down."""
    policy, key = dict(await egress_of(visit.request).rules(visit.project)), visit.request.path_params["key"]
    rules = list(policy["rules"])
    at = next((n for n, rule in enumerate(rules) if rule.get("ruleKey") == key), None)
    if at is None:
        raise error("NOT_FOUND", "There is no such rule.", admitted="no")
    match visit.request.path_params["verb"]:
        case "delete":
            del rules[at]
        case "up":
            rules.insert(max(0, at - 1), rules.pop(at))
        case "down":
            rules.insert(at + 1, rules.pop(at))
        case _:
            raise error("NOT_FOUND", "There is no such page.", admitted="no")
    return await _store(visit, {**policy, "rules": rules})


@post("/egress/general", "policy")
async def general(visit: Visit) -> Response:
    """What happens without a match, and whether rules stop anything."""
    policy = dict(await egress_of(visit.request).rules(visit.project))
    policy |= {"default": visit.form.text("default"), "auditOnly": visit.form.flag("auditOnly")}
    return await _store(visit, policy)


@post("/egress/test", "read")
async def trial(visit: Visit) -> Response:
    """What a request would meet."""
    form = visit.form
    try:
        body = checked(Trial, {"sandbox": form.text("sandbox").strip(), "method": form.text("method").strip() or "GET",
                               "url": form.text("url").strip()})  # fmt: skip
        found = await egress_of(visit.request).trial(visit.project, body.sandbox, body.method, body.url, [])
    except KennelError as failure:
        if visit.partial:
            raise
        return await _show(visit, failure.status, failure=failure, errors=fields(failure), trial=form)
    told = msgspec.to_builtins(found)
    return visit.piece("finding.html", found=told) if visit.partial else await _show(visit, found=told, trial=form)


@get("/egress/log")
async def log(visit: Visit) -> Response:
    """What went out and what did not, newest first."""
    before = visit.request.query_params.get("before", "")
    until = int(before) if before.isascii() and before.isdigit() and len(before) < 16 else None
    lines, head = await live.newest(visit, LOG, before=until)
    return visit.page("egress-log.html", lines=lines, head=head, until=until, stream=LOG)


@get("/egress/log/events")
async def tail(visit: Visit) -> Response:
    """The log, live; it begins when the first request is made."""
    return await live.follow(visit, LOG, patient=True)


routes: list[BaseRoute] = [page, replace, add, move, general, trial, log, tail]
