"""Owns `kennel sandbox export` and `import`: all of a sandbox's files as one tar.zst, out of it and into a new one.

Called by `kennel sandbox`. Invariant: the file is never in memory; one that did not arrive whole is not left behind.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Annotated

import msgspec
from cyclopts import Parameter

from kennel.cli.copy import Progress, write_here
from kennel.cli.flags import DEFAULTS, Flags, Name, misuse
from kennel.cli.output import show_json, show_table

PIECE = 256 * 1024
PASSING = 3600
"""Seconds that a snapshot lasts which an export takes for itself."""


def export(
    name: Name,
    /,
    *,
    snapshot: Annotated[str | None, Parameter(help="The id of a snapshot; else as it is now.")] = None,
    output: Annotated[
        str, Parameter(name=["--output", "-o"], help="The file; - is stdout.", allow_leading_hyphen=True)
    ] = "-",
    flags: Flags = DEFAULTS,
) -> None:
    """Write a sandbox's files as one tar.zst, to be imported here or elsewhere; wakes nothing."""
    if output == "-" and (sys.stdout.isatty() or flags.json):
        raise misuse("an archive goes neither to a terminal nor beside JSON", hint="name a file: --output FILE")
    with flags.client() as itx:
        box = itx.sandboxes.get(name)
        chosen = snapshot or box.snapshot("export", ttl=PASSING).id
        progress = Progress(output)
        try:
            write_here(output, progress.watch(box.export_snapshot(chosen)))
        finally:
            progress.end()
    if flags.json:
        show_json({"path": box.path, "snapshot": chosen, "file": output, "bytes": progress.count})


def import_(
    name: Name,
    file: Annotated[str, Parameter(help="What an export wrote; - is stdin.", allow_leading_hyphen=True)],
    /,
    *,
    type: Annotated[str | None, Parameter(help="lite, basic (the default), standard-1 … standard-4.")] = None,
    persist: Annotated[str | None, Parameter(help="workspace (the default) or disk.")] = None,
    request_id: Annotated[str | None, Parameter(help="Names this one import, to repeat it safely.")] = None,
    flags: Flags = DEFAULTS,
) -> None:
    """Make a sandbox of the files that an export wrote, here or elsewhere."""
    progress = Progress(file)
    source = sys.stdin.fileno() if file == "-" else os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with flags.client() as itx:
            box = itx.sandboxes.import_(
                name, progress.watch(_pieces(source)), instance_type=type, persist=persist, request_id=request_id
            )
            view = box.info()
    finally:
        progress.end()
        if file != "-":
            os.close(source)
    if flags.json:
        show_json({**msgspec.to_builtins(view), "bytes": progress.count})
    else:
        show_table(("PATH", "STATUS", "TYPE"), [(view.path, view.status, view.instance_type)])


def _pieces(source: int) -> Iterator[bytes]:
    while piece := os.read(source, PIECE):
        yield piece
