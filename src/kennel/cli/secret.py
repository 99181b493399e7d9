"""Owns `kennel secret …`: storing, listing and removing secrets.

Called by `__main__`. Invariant: material is read from stdin or a file, never from the command line, where others on
the machine would see it; it is in no output.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import msgspec
from cyclopts import App, Parameter

from kennel.cli.flags import DEFAULTS, Flags, Words, misuse
from kennel.cli.output import plain, show_json, show_table

app = App(name="secret", help="Store, list and remove secrets: they go to the hosts you name, and nowhere else.")


@app.command(name="set")
def set_(
    path: str,
    /,
    *,
    origin: Annotated[Words, Parameter(help="https://HOST where it may go; again for more.")],
    file: Annotated[Path | None, Parameter(help="Read it from this file, not from stdin.")] = None,
    as_json: Annotated[
        bool, Parameter(negative=(), show_default=False, help="It is a JSON object with fields.")
    ] = False,
    refresh: Annotated[str | None, Parameter(help="oauth-refresh-token, oauth-client-credentials, …")] = None,
    endpoint: Annotated[str | None, Parameter(help="Where it is refreshed: the token endpoint.")] = None,
    scope: Annotated[str | None, Parameter(help="The scope to ask for.")] = None,
    flags: Flags = DEFAULTS,
) -> None:
    """Store a secret, read from stdin: printf %s "$TOKEN" | kennel secret set openai --origin https://api.openai.com."""
    if not origin:
        raise misuse("--origin says where the secret may go", hint="--origin https://api.example.com")
    if (refresh is None) is not (endpoint is None):
        raise misuse("--refresh and --endpoint go together")
    given = {"strategy": refresh, "endpoint": endpoint, "scope": scope}
    strategy = None if refresh is None else {name: value for name, value in given.items() if value is not None}
    text = file.read_text() if file is not None else sys.stdin.read()
    with flags.client() as itx:
        made = itx.secrets.set(path, _material(text, as_json or refresh is not None), origins=origin, refresh=strategy)
    if flags.json:
        show_json(made)
    else:
        print(f"{made.path} may go to {', '.join(made.pin.origins)}")


def _material(text: str, as_json: bool) -> Any:
    if not as_json:
        return text.removesuffix("\n")
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeError) as failure:
        raise misuse("what was given is not a JSON object") from failure


@app.command(name="list")
def list_(*, flags: Flags = DEFAULTS) -> None:
    """List secrets: where they may go and how often they went."""
    with flags.client() as itx:
        found = itx.secrets.list()
    if flags.json:
        show_json(found)
        return
    show_table(
        ("PATH", "ORIGINS", "USED", "LAST USED BY"),
        ((s.path, plain(s.pin.origins), str(s.used_count), plain(s.last_used_by)) for s in found),
    )


@app.command
def rm(path: str, /, *, flags: Flags = DEFAULTS) -> None:
    """Remove a secret; requests that name it are refused from now on."""
    with flags.client() as itx:
        itx.secrets.remove(path)
    if flags.json:
        show_json({"path": path, "removed": True})
    else:
        print(f"{path} is removed")
