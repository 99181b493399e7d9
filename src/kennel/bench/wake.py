"""Owns `kennel bench wake`: from the call of start to the sandbox that runs, by the size and the depth of its stack.

Called by installation/bench. Invariant: the layers are on the machine (what fetching costs is the network's), and each
size is measured in the same run, so that a cost which grows with it shows.
"""

from __future__ import annotations

from kennel import Kennel, Sandbox
from kennel.bench import figures, floors, tree
from kennel.bench.figures import Report, timed

FLOOR = "runc run"


def measure(itx: Kennel, times: int = 10, *, full: bool = False) -> Report:
    """Wakes at 10 MB and 1 GB (10 GB when full), then at depth 1 and 8."""
    report = Report("wake, from start to running, milliseconds")
    report.add(FLOOR, floors.runc_run(times), note="floor: `true` with the same walls, made and deleted")
    for megabytes in (10, 1000, *((10_000,) if full else ())):
        box = _asleep(itx, "standard-4" if megabytes > 5000 else "standard-1", tree.fill(megabytes))
        report.add(f"{megabytes:,} MB, depth 1", _wakes(box, times), FLOOR, "budget 120, same at every size")
        box.destroy()
    box = _asleep(itx, "standard-1", tree.make())
    report.add(f"{tree.FILES:,} files, depth 1", _wakes(box, times), FLOOR)
    for number in range(7):
        tree.within(box, tree.change(number))
        box.sleep()
    layers = box.stream.read(types="sandbox/backup-created", limit=1000)[-1].payload["layers"]
    report.add(f"{tree.FILES:,} files, depth {len(layers)}", _wakes(box, times), FLOOR)
    report.add("first command of a sleeping sandbox", _firsts(box, times), FLOOR, "wakes it")
    box.destroy()
    return report


def _asleep(itx: Kennel, instance_type: str, script: str) -> Sandbox:
    box = itx.sandboxes.get(figures.fresh_path("wake")).create(instance_type=instance_type, sleep_after=3600)
    tree.within(box, script)
    box.sleep()
    return box


def _wakes(box: Sandbox, times: int) -> list[float]:
    """Nothing changes while it is awake, so the stack stays as deep as it is."""
    took = []
    for _ in range(times):
        took += timed(box.start, 1, warm=False)
        box.sleep()
    return took


def _firsts(box: Sandbox, times: int) -> list[float]:
    took = []
    for _ in range(times):
        took += timed(lambda: box.exec(argv=["true"]), 1, warm=False)
        box.sleep()
    return took
