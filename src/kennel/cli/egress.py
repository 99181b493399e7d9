"""Owns `kennel egress …`: rules, the audit, dry runs, approvals from the command line.

Called by `__main__`. Invariant: what a sandbox asked for is printed with every control character escaped.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from cyclopts import App, Parameter

from kennel.cli.flags import DEFAULTS, Flags, Name, Words, misuse, pairs
from kennel.cli.output import plain, printable, show_fields, show_json, show_table

if TYPE_CHECKING:
    from kennel.sdk.records import Event

_FIELDS = {"rules": "rules", "default": "default", "auditOnly": "audit_only", "approvers": "approvers"}

app = App(name="egress", help="What sandboxes may reach: rules, the audit, dry runs, approvals.")


@app.command
def rules(
    *,
    set_from: Annotated[
        Path | None, Parameter(name="--set", help="Replace the policy by this file; - is stdin.")
    ] = None,
    flags: Flags = DEFAULTS,
) -> None:
    """Show the policy, or replace it: JSON of {"rules": […], "default": "allow"}."""
    with flags.client() as itx:
        if set_from is None:
            show_json(itx.egress.rules())
            return
        policy = _policy(set_from)
        show_json(itx.egress.set_rules(policy.pop("rules", []), **policy))


def _policy(source: Path) -> dict[str, Any]:
    """The file's policy in the SDK's words; what this command does not know is refused, not left out."""
    raw = sys.stdin.read() if str(source) == "-" else source.read_text()
    try:
        policy = msgspec.json.decode(raw, type=dict[str, Any])
    except msgspec.MsgspecError as failure:
        raise misuse(f"the policy is not a JSON object: {failure}") from failure
    policy.pop("version", None)
    strange = sorted(policy.keys() - _FIELDS.keys())
    if strange:
        raise misuse(f"a policy has no {strange[0]!r}", hint=f"its fields: {', '.join(_FIELDS)}")
    return {_FIELDS[name]: value for name, value in policy.items()}


@app.command
def replay(
    policy: Annotated[Path, Parameter(allow_leading_hyphen=True)],
    /,
    *,
    last: Annotated[int, Parameter(help="How many recorded requests to look at.")] = 1000,
    flags: Flags = DEFAULTS,
) -> None:
    """Say what the policy in a file would have done to recorded requests; nothing changes. - is stdin."""
    given = _policy(policy)
    given.pop("approvers", None)
    with flags.client() as itx:
        found = itx.egress.replay(given.pop("rules", []), last=last, **given)
    if flags.json:
        show_json(found)
        return
    print(
        f"{found.considered} requests: {found.allow} allowed, {found.deny} denied, {found.hold} held;"
        f" {found.differing} otherwise than they were"
    )
    rows = (
        (str(r.offset), r.sandbox, f"{r.was} -> {r.would}", plain(r.rule_key), f"{r.method} {r.url}")
        for r in found.changed
    )
    if found.changed:
        show_table(("OFFSET", "SANDBOX", "VERDICT", "RULE", "REQUEST"), rows)


@app.command
def hosts(*, flags: Flags = DEFAULTS) -> None:
    """List the hosts that the project's sandboxes talked to since the gateway started."""
    with flags.client() as itx:
        found = itx.egress.hosts()
    if flags.json:
        show_json(found)
        return
    rows = ((h.host, str(h.requests), str(h.denied), str(h.bytes_out), str(h.bytes_in)) for h in found)
    show_table(("HOST", "REQUESTS", "DENIED", "BYTES OUT", "BYTES IN"), rows)


@app.command
def log(
    *,
    follow: Annotated[bool, Parameter(negative=(), show_default=False, help="Go on with what comes.")] = False,
    after: Annotated[int, Parameter(help="From this offset on.")] = 0,
    flags: Flags = DEFAULTS,
) -> None:
    """Show what sandboxes asked for and what became of it."""
    with flags.client() as itx:
        if not follow:
            for event in itx.egress.log(after=after):
                _tell(event, flags.json)
            return
        with itx.egress.events(after=after) as events:
            for event in events:
                _tell(event, flags.json)


def _tell(event: Event, as_json: bool) -> None:
    if event.type != "egress/recorded":
        return
    said = event.payload
    if as_json:
        sys.stdout.write(msgspec.json.encode(event).decode() + "\n")
    else:
        what = said.get("verdict") or said.get("status") or said.get("kind")
        place = said.get("url") or f"{said.get('host', '')}:{said.get('port', '')}"
        words = (event.created_at, said.get("sandbox", ""), said.get("kind", ""), what, said.get("method", ""), place)
        sys.stdout.write(printable("  ".join(plain(word) for word in (*words, said.get("code", "")))) + "\n")
    sys.stdout.flush()


@app.command(name="test")
def try_(
    method: str,
    url: str,
    /,
    *,
    sandbox: Name,
    header: Annotated[Words, Parameter(help="NAME=VALUE; again for more.")] = (),
    flags: Flags = DEFAULTS,
) -> None:
    """Say what a request would meet; nothing is sent."""
    with flags.client() as itx:
        found = itx.egress.test(method, url, sandbox=sandbox, headers=pairs(header, "--header"))
    if flags.json:
        show_json(found)
    else:
        show_fields(found)


@app.command
def approvals(
    *,
    every: Annotated[bool, Parameter(name="--all", negative=(), show_default=False, help="Answered ones too.")] = False,
    flags: Flags = DEFAULTS,
) -> None:
    """List the requests that wait for a person."""
    with flags.client() as itx:
        found = itx.approvals.list(status=None if every else "open")
    if flags.json:
        show_json(found)
        return
    rows = ((a.id, a.status, a.sandbox, a.rule_key, _requests(a.requests)) for a in found)
    show_table(("ID", "STATUS", "SANDBOX", "RULE", "REQUESTS"), rows)


def _requests(requests: list[dict[str, Any]]) -> str:
    return ", ".join(f"{r.get('method', '')} {r.get('url', '')}" for r in requests)


@app.command
def approve(approval_id: str, /, *, reason: str = "", flags: Flags = DEFAULTS) -> None:
    """Let the requests of a batch go."""
    _decide(approval_id, True, reason, flags)


@app.command
def deny(approval_id: str, /, *, reason: str = "", flags: Flags = DEFAULTS) -> None:
    """Refuse the requests of a batch."""
    _decide(approval_id, False, reason, flags)


def _decide(approval_id: str, approve: bool, reason: str, flags: Flags) -> None:
    with flags.client() as itx:
        found = itx.approvals.decide(approval_id, approve, reason=reason)
    if flags.json:
        show_json(found)
    else:
        print(f"{found.id} is {found.status}")
