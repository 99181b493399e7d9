"""Owns how measurements are kept and shown: raw samples, percentiles, a table or JSON.

Called by every benchmark. Invariant: nothing is trimmed; a row names what its clock includes, and its ratio is to a
floor measured in the same run, because this machine's neighbours move both.
"""

from __future__ import annotations

import json
import secrets
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Row:
    """One thing measured; samples in milliseconds, `floor` the row it is compared with."""

    name: str
    samples: list[float]
    floor: str | None = None
    note: str = ""

    def at(self, share: float) -> float:
        """The sample that `share` of all samples do not exceed."""
        ordered = sorted(self.samples)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    @property
    def median(self) -> float:
        return statistics.median(self.samples)


@dataclass(slots=True)
class Report:
    """The rows of one benchmark, and single values that are no distributions."""

    title: str
    rows: list[Row] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)

    def add(self, name: str, samples: list[float], floor: str | None = None, note: str = "") -> Row:
        if any(each.name == name for each in self.rows):
            raise ValueError(f"two rows called {name!r}: a floor would be ambiguous")
        row = Row(name, samples, floor, note)
        self.rows.append(row)
        return row

    def row(self, name: str) -> Row:
        return next(row for row in self.rows if row.name == name)

    def to_wire(self) -> dict[str, Any]:
        rows = [
            {
                "name": row.name,
                "p50": row.median,
                "p95": row.at(0.95),
                "p99": row.at(0.99),
                "n": len(row.samples),
                "floor": row.floor,
                "ratio": row.median / self.row(row.floor).median if row.floor else None,
                "note": row.note,
                "samples": row.samples,
            }
            for row in self.rows
        ]
        return {"title": self.title, "rows": rows, "facts": self.facts}

    def show(self) -> str:
        """A table for people, milliseconds."""
        width = max((len(row.name) for row in self.rows), default=4)
        lines = [self.title, f"  {'':<{width}}     p50     p95     p99     n   x floor"]
        for row in self.rows:
            ratio = f"{row.median / self.row(row.floor).median:8.1f}" if row.floor else " " * 8
            numbers = f"{row.median:8.2f}{row.at(0.95):8.2f}{row.at(0.99):8.2f}{len(row.samples):6d}"
            lines.append(f"  {row.name:<{width}}{numbers}  {ratio}  {row.note}".rstrip())
        lines += [f"  {name}: {value}" for name, value in self.facts.items()]
        return "\n".join(lines)


def fresh_path(word: str) -> str:
    """A sandbox path that was never used: destroyed names are retired for ever."""
    return f"/sandboxes/bench-{word}-{secrets.token_hex(4)}"


def timed(work: Callable[[], object], times: int, *, warm: bool = True) -> list[float]:
    """Milliseconds of each of `times` runs, after one that does not count when `warm`."""
    if warm:
        work()
    samples = []
    for _ in range(times):
        begun = time.perf_counter()
        work()
        samples.append((time.perf_counter() - begun) * 1000)
    return samples


def render(reports: list[Report], as_json: bool) -> str:
    """All reports as a person or a program wants them."""
    if as_json:
        return json.dumps([report.to_wire() for report in reports], indent=2)
    return "\n\n".join(report.show() for report in reports)
