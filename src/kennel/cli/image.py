"""Owns `kennel image …`: what sandboxes can be made from.

Called by `__main__`. Invariant: listing asks the server; building and removing happen on its machine, in
`kennel.cli.installation`.
"""

from __future__ import annotations

from cyclopts import App

from kennel.cli.flags import DEFAULTS, Flags
from kennel.cli.output import plain, show_json, show_table

app = App(name="image", help="Build, list and remove images.")
app.command("kennel.cli.installation:image_build", name="build", help="Build an image on this machine.")
app.command("kennel.cli.installation:image_remove", name="rm", help="Remove an image from this machine.")


@app.command(name="list")
def list_(*, flags: Flags = DEFAULTS) -> None:
    """List the server's images."""
    with flags.client() as itx:
        found = itx.images.list()
    if flags.json:
        show_json(found)
    else:
        show_table(
            ("NAME", "SIZE", "DIGEST", "DESCRIPTION"),
            (
                (view.name, f"{view.size // 1_000_000} MB" if view.size else "-", view.digest, plain(view.description))
                for view in found
            ),
        )
