"""Owns what `kennel` prints: tables for people, JSON for programs, errors on stderr.

Called by every command. Invariant: text from a sandbox or a server cannot move the cursor or colour the terminal when
it is shown in a table or a message; colour appears on a terminal only.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unicodedata import combining, east_asian_width

import msgspec

from kennel.wire.errors import KennelError

if TYPE_CHECKING:
    from rich.table import Table

HINTS = {
    "SANDBOX_NOT_FOUND": "create it first: kennel sandbox create NAME",
    "SANDBOX_CREATING": "its creation has not finished; repeat it with the same --request-id",
    "UNAUTHORIZED": "set KENNEL_API_KEY, or run this as the user who started Kennel",
}
"""Where the API's own hint speaks of requests."""

PIPE_WIDTH = 4096
"""Columns of a table that is not for a terminal: wide enough that nothing is folded."""


def printable(text: str, keep: str = "") -> str:
    """The text with every character that a terminal might obey written as its escape, but those of `keep`."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)


def show_json(value: Any) -> None:
    """Prints any answer as JSON; what JSON cannot hold is shown by its repr."""
    text = msgspec.json.format(msgspec.json.encode(value, enc_hook=repr), indent=2)
    sys.stdout.write(text.decode() + "\n")


def show_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Prints rows under headings, aligned; what is too wide for the terminal is folded, by rich."""
    cells = [list(columns), *([printable(cell) for cell in row] for row in rows)]
    widths = [max(map(columns_of, column)) for column in zip(*cells, strict=True)]
    terminal = sys.stdout.isatty()
    if terminal and sum(widths) + 2 * len(widths) > os.get_terminal_size(sys.stdout.fileno()).columns:
        show(table_of(columns, cells[1:]))
        return
    # rich takes 26 ms to import; a table that needs no folding is lines.
    for number, row in enumerate(cells):
        line = "  ".join(cell + " " * (width - columns_of(cell)) for cell, width in zip(row, widths, strict=True))
        head = not number and terminal and not os.environ.get("NO_COLOR")
        sys.stdout.write(f"\x1b[1m{line.rstrip()}\x1b[0m\n" if head else line.rstrip() + "\n")


def columns_of(text: str) -> int:
    """How many columns of a terminal a text takes: wide characters two, marks on others none."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)


def show(table: Table) -> None:
    """Prints a table, as wide as it likes where there is no terminal."""
    from rich.console import Console

    Console(width=None if sys.stdout.isatty() else PIPE_WIDTH, highlight=False).print(table)


def table_of(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Rows under headings, aligned, for a console of rich's."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    return table


def show_fields(answer: msgspec.Struct) -> None:
    """Prints one answer as its fields, one a line."""
    fields = msgspec.to_builtins(answer)
    width = max(len(name) for name in fields)
    for name, value in fields.items():
        text = plain([f"{k}={v}" for k, v in value.items()] if isinstance(value, dict) else value)
        sys.stdout.write(f"{name:<{width}}  {printable(text)}\n")


def plain(value: Any) -> str:
    """One cell of a table: nothing as `-`, yes and no in words."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(str(item) for item in value) or "-"
    return str(value)


def complain(code: str, message: str, hint: str | None = None, admitted: str | None = None) -> None:
    """Prints `error CODE: message` and what to do about it on stderr."""
    sys.stderr.write(f"{_coloured('error', 31)} {printable(code)}: {printable(message, keep=chr(10))}\n")
    if admitted == "unknown":
        sys.stderr.write(f"{_coloured('note', 33)}: whether the work was started is unknown\n")
    if hint:
        sys.stderr.write(f"{_coloured('hint', 36)}: {printable(hint)}\n")


def complain_of(failure: KennelError) -> None:
    """Prints a typed error, with what is wrong about each field, and a hint in the command line's own words."""
    complain(failure.code, failure.message, HINTS.get(failure.code, failure.hint), failure.admitted)
    if failure.code == "VALIDATION_FAILED" and isinstance(failure.details, dict):
        for field, problems in failure.details.items():
            sys.stderr.write(f"  {printable(str(field))}: {printable(plain(problems))}\n")


def warn(message: str) -> None:
    """Prints a warning on stderr."""
    sys.stderr.write(f"{_coloured('warning', 33)}: {printable(message)}\n")


@contextmanager
def advice_told() -> Iterator[None]:
    """What the server advises within the block, as lines on stderr."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        yield
    for each in found:
        warn(str(each.message))


def _coloured(word: str, colour: int) -> str:
    if sys.stderr.isatty() and not os.environ.get("NO_COLOR"):
        return f"\x1b[1;{colour}m{word}\x1b[0m"
    return word
