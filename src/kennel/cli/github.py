"""Owns `kennel github …`: making, listing and removing GitHub connections.

Called by `__main__`. Invariant: a token or key is read from stdin or a file, never from the command line, where others
on the machine would see it; it is in no output.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from kennel.cli.flags import DEFAULTS, Flags, misuse
from kennel.cli.output import plain, show_json, show_table

app = App(name="github", help="GitHub connections: sandboxes find the first by name as GH_TOKEN.")


@app.command
def connect(
    name: str,
    /,
    *,
    app_id: Annotated[str | None, Parameter(help="The app's id: stdin is then its private key.")] = None,
    installation_id: Annotated[str | None, Parameter(help="The installation of that app.")] = None,
    file: Annotated[Path | None, Parameter(help="Read token or key from this file, not from stdin.")] = None,
    flags: Flags = DEFAULTS,
) -> None:
    """Make or replace a connection: gh auth token | kennel github connect main."""
    if (app_id is None) is not (installation_id is None):
        raise misuse("an app's connection needs both --app-id and --installation-id")
    text = file.read_text() if file is not None else sys.stdin.read()
    with flags.client() as itx:
        if app_id is None:
            made = itx.github.connect(name, token=text.strip())
        else:
            made = itx.github.connect(name, app_id=app_id, installation_id=installation_id, private_key=text)
    if flags.json:
        show_json(made)
    else:
        print(f"{made.name} is connected; sandboxes find it at their next start")


@app.command(name="list")
def list_(*, flags: Flags = DEFAULTS) -> None:
    """List connections; the first is the one that sandboxes find."""
    with flags.client() as itx:
        found = itx.github.list()
    if flags.json:
        show_json(found)
        return
    rows = ((c.name, c.kind, str(c.used_count), plain(c.rotated_at)) for c in found)
    show_table(("NAME", "KIND", "USED", "LAST RENEWED"), rows)


@app.command
def disconnect(name: str, /, *, flags: Flags = DEFAULTS) -> None:
    """Remove a connection and its material."""
    with flags.client() as itx:
        itx.github.disconnect(name)
    if flags.json:
        show_json({"name": name, "removed": True})
    else:
        print(f"{name} is removed")
