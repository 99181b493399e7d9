"""Owns `kennel logs`: who asked for what and what came of it, as a stream has it.

Called by `__main__`. Invariant: one event is held at a time beyond a page; looking wakes nothing and creates nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import msgspec
from cyclopts import Parameter

from kennel.cli.flags import DEFAULTS, Flags, misuse
from kennel.cli.output import printable, show_json

if TYPE_CHECKING:
    from kennel import Event, Verification
    from kennel.sdk._sync.streams import Stream

PAGE = 500


def logs(
    name: Annotated[str, Parameter(help="A sandbox's NAME, or a stream's /path.")],
    /,
    *,
    follow: Annotated[bool, Parameter(negative=(), show_default=False, help="Go on with what comes.")] = False,
    verify: Annotated[bool, Parameter(negative=(), show_default=False, help="Check the hash chain instead.")] = False,
    after: Annotated[int, Parameter(help="Only events after this offset.")] = 0,
    types: Annotated[str | None, Parameter(help="Only these types, with commas between.")] = None,
    flags: Flags = DEFAULTS,
) -> int:
    """Show what happened to a sandbox, or on any stream: who asked, what for, what came of it.

    With --json, one event a line. With --verify, the exit code is 1 when the chain does not hold.
    """
    from kennel.cli.telling import Teller, key_names

    if follow and verify:
        raise misuse("--follow and --verify do not go together")
    with flags.client() as itx:
        stream = itx.streams.get(name if name.startswith("/") else f"/sandboxes/{name}")
        if verify:
            return _report(stream.verify(), flags)
        found = stream.events(after=after, types=types) if follow else _all(stream, after, types)
        teller = Teller({} if flags.json else key_names(itx))
        for event in found:
            text = msgspec.json.encode(event).decode() if flags.json else teller.line(event)
            sys.stdout.write(text + "\n")
            if follow:
                sys.stdout.flush()
    return 0


def _all(stream: Stream, after: int, types: str | None) -> Iterator[Event]:
    """Every event there is now, a page at a time."""
    while True:
        page = stream.read(after=after, types=types, limit=PAGE)
        yield from page
        if len(page) < PAGE:
            return
        after = page[-1].offset


def _report(found: Verification, flags: Flags) -> int:
    """What a verification came to."""
    if flags.json:
        show_json(found)
    elif found.holds:
        print(f"{printable(found.path)}: {found.events} events, the hash chain holds")
    else:
        for fault in found.faults:
            print(f"{printable(found.path)} at offset {fault.offset}: {printable(fault.reason)}")
    return 0 if found.holds else 1
