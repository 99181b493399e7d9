"""Owns `kennel ps`: what runs in the background of a sandbox.

Called by `__main__`. Invariant: looking wakes nothing.
"""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from kennel.cli.flags import DEFAULTS, Flags, Name
from kennel.cli.output import plain, show_json, show_table

COLUMNS = ("ID", "STATUS", "EXIT", "PID", "STARTED", "COMMAND")
_COMMAND = 80


def ps(
    name: Name,
    /,
    *,
    all: Annotated[bool, Parameter(negative=(), show_default=False, help="Those that ended, too.")] = False,
    flags: Flags = DEFAULTS,
) -> None:
    """List a sandbox's background processes; a sandbox that sleeps has none."""
    with flags.client() as itx:
        found = [process.info for process in itx.sandboxes.get(name).list_processes()]
    shown = [info for info in found if all or info.status == "running"]
    if flags.json:
        show_json(shown)
        return
    show_table(
        COLUMNS,
        (
            (
                info.id, info.status, plain(info.exit_code), plain(info.pid), plain(info.start_time),
                info.command if len(info.command) <= _COMMAND else info.command[: _COMMAND - 1] + "…",
            )
            for info in shown
        ),
    )  # fmt: skip
