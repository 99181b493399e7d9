"""Owns `kennel top`: what the running sandboxes use, looked at again and again.

Called by `__main__`. Invariant: looking wakes nothing; a rate of CPU is the difference of two looks, and `-` before the
second; away from a terminal, or with --once, it looks as often as a rate needs and ends.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from kennel.cli.flags import DEFAULTS, Flags, misuse
from kennel.cli.output import show, show_json, table_of

if TYPE_CHECKING:
    from rich.table import Table

    from kennel import Kennel
    from kennel.wire.results import UsageView

COLUMNS = ("NAME", "TYPE", "CPU", "MEMORY", "DISK", "PROCESSES", "OOM")
_LEAST = 1.0
"""Seconds between looks: the server looks at a sandbox once a second at most."""

Rates = dict[str, float]
"""Busy vCPUs by path."""


def top(
    *,
    interval: Annotated[float, Parameter(help="Seconds between two looks, 1 or more.")] = 2.0,
    once: Annotated[bool, Parameter(negative=(), show_default=False, help="One table, and end.")] = False,
    flags: Flags = DEFAULTS,
) -> None:
    """Show the CPU, memory, disk and processes of running sandboxes, busiest first, until Ctrl-C."""
    if not _LEAST <= interval <= 3600:
        raise misuse(f"--interval takes 1 to 3600 seconds, not {interval:g}")
    with flags.client() as itx:
        if flags.json:
            show_json(itx.sandboxes.usage())
        elif once or not sys.stdout.isatty():
            _show_once(itx)
        else:
            _live(itx, interval)


def _show_once(itx: Kennel) -> None:
    looks = _looks(itx)
    next(looks)
    time.sleep(_LEAST)
    show(_table(*next(looks)))


def _live(itx: Kennel, interval: float) -> None:
    from rich.live import Live

    looks = _looks(itx)
    with Live(_table(*next(looks)), screen=True, auto_refresh=False) as live:
        while True:
            time.sleep(interval)
            live.update(_table(*next(looks)), refresh=True)


def _looks(itx: Kennel) -> Iterator[tuple[list[UsageView], Rates]]:
    """What is used, and the rates since the look before."""
    last: dict[str, tuple[float, float]] = {}
    while True:
        views, now = itx.sandboxes.usage(), time.monotonic()
        yield views, rates(last, views, now)
        last = {view.path: (now, view.cpu_seconds) for view in views}


def rates(last: dict[str, tuple[float, float]], views: list[UsageView], now: float) -> Rates:
    """Busy vCPUs of those that were looked at before; none for one that was started again since."""
    found = {}
    for view in views:
        at, seconds = last.get(view.path, (now, 0.0))
        if now > at and view.cpu_seconds >= seconds:
            found[view.path] = (view.cpu_seconds - seconds) / (now - at)
    return found


def _table(views: list[UsageView], busy: Rates) -> Table:
    ordered = sorted(views, key=lambda view: (-busy.get(view.path, 0.0), -view.memory, view.path))
    return table_of(
        COLUMNS,
        (
            (
                view.name,
                view.instance_type,
                f"{busy[view.path]:.2f} of {view.cpu_limit:g}" if view.path in busy else "-",
                f"{size(view.memory)} of {size(view.memory_limit)}",
                f"{size(view.disk)} of {size(view.disk_limit)}",
                f"{view.processes} of {view.process_limit}",
                str(view.oom_kills),
            )
            for view in ordered
        ),
    )


def size(count: int) -> str:
    """Bytes for people, in powers of 1024."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError
