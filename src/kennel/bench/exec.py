"""Owns `kennel bench exec`: the round trip of `true` over HTTP on a kept connection, beside floors of the same run.

Called by installation/bench. The sandbox is a `standard-2` (a `lite` quota alone makes p95 90 ms).
"""

from __future__ import annotations

from kennel import Kennel
from kennel.bench import figures, floors
from kennel.bench.figures import Report, timed


def measure(itx: Kennel, times: int = 300) -> Report:
    """Round trips, one at a time."""
    report = Report("exec `true`, milliseconds")
    report.add("posix_spawn + wait", timed(floors.spawn, times), note="floor: no walls, no wire")
    report.add("fork + exec + wait", timed(floors.fork_exec, times), note="floor: from a Python process")
    ready, alone = floors.guest_alone(times)
    report.add("guest alone", alone, "posix_spawn + wait", "no walls, no HTTP")
    report.facts["guest alone, ms from spawn to greeting"] = round(ready, 1)
    box = itx.sandboxes.get(figures.fresh_path("exec")).create(instance_type="standard-2")
    try:
        report.add("argv over HTTP", timed(lambda: box.exec(argv=["true"]), times), "posix_spawn + wait", "budget 4x")
        report.add("bash -c over HTTP", timed(lambda: box.exec("true"), times), "posix_spawn + wait")
        report.add("GET of the sandbox", timed(box.info, times), note="HTTP and the API alone")
    finally:
        box.destroy()
    return report
