"""Owns `kennel key …`: making, listing and revoking keys.

Called by `__main__`; needs a key of the installation. Invariant: a new key's token goes to stdout once, alone, so that
`KEY=$(kennel key create ci)` works; it is in no other output.
"""

from __future__ import annotations

import sys
from typing import Annotated

from cyclopts import App, Parameter

from kennel.cli.flags import DEFAULTS, Flags, Words, misuse
from kennel.cli.output import plain, printable, show_json, show_table

app = App(name="key", help="Create, list and revoke keys.")

USUAL_SCOPES = ("read", "exec", "files", "lifecycle")


@app.command
def create(
    name: str,
    /,
    *,
    scope: Annotated[Words, Parameter(help="read, exec, files, lifecycle, secrets, policy, admin; again for more.")] = (
        USUAL_SCOPES
    ),
    installation: Annotated[
        bool, Parameter(negative=(), show_default=False, help="For every project, not one.")
    ] = False,
    flags: Flags = DEFAULTS,
) -> None:
    """Create a key for the project and print its token, which is shown this once."""
    if installation and flags.project:
        raise misuse("--installation means every project; leave --project out")
    with flags.client() as itx:
        made = itx.keys.create(name, scopes=scope, project=None if installation else itx.project)
    if flags.json:
        show_json(made)
        return
    print(made.token)
    where = f"project {made.key.project}" if made.key.project else "every project"
    said = printable(f"key {made.key.id} for {where}: {', '.join(made.key.scopes)}. It is not shown again.")
    sys.stderr.write(said + "\n")


@app.command(name="list")
def list_(*, flags: Flags = DEFAULTS) -> None:
    """List keys, the revoked ones too; never their tokens."""
    with flags.client() as itx:
        found = itx.keys.list()
    if flags.json:
        show_json(found)
        return
    show_table(
        ("ID", "NAME", "PROJECT", "SCOPES", "CREATED", "REVOKED"),
        (
            (k.id, k.name, k.project or "(all)", plain(k.scopes), plain(k.created_at), plain(k.revoked_at))
            for k in found
        ),
    )


@app.command
def revoke(key_id: str, /, *, flags: Flags = DEFAULTS) -> None:
    """Revoke a key; it is useless from now on."""
    with flags.client() as itx:
        itx.keys.revoke(key_id)
    if flags.json:
        show_json({"id": key_id, "revoked": True})
    else:
        print(f"key {key_id} is revoked")
