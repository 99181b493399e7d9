"""Owns `kennel project …`: making and listing projects.

Called by `__main__`; needs a key of the installation.
"""

from __future__ import annotations

from cyclopts import App

from kennel.cli.flags import DEFAULTS, Flags
from kennel.cli.output import plain, printable, show_json, show_table

app = App(name="project", help="Create and list projects.")


@app.command
def create(name: str, /, *, flags: Flags = DEFAULTS) -> None:
    """Create a project."""
    with flags.client() as itx:
        view = itx.projects.create(name)
    if flags.json:
        show_json(view)
    else:
        print(f"project {printable(view.name)} is there")


@app.command(name="list")
def list_(*, flags: Flags = DEFAULTS) -> None:
    """List projects."""
    with flags.client() as itx:
        found = itx.projects.list()
    if flags.json:
        show_json(found)
    else:
        show_table(("NAME", "CREATED"), ((view.name, plain(view.created_at)) for view in found))
