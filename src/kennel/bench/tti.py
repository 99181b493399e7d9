"""Owns `kennel bench tti`: from the call of create to the answer of the first command, beside floors of the same run.

Called by installation/bench. Invariant: the figure with a pet-in-waiting never stands without the drained one; the
clock runs from before the create request to the answer of `true`, both over HTTP by the SDK.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

from kennel import Kennel, Sandbox
from kennel.bench import figures, floors
from kennel.bench.figures import Report


def measure(itx: Kennel, times: int = 20, burst: int = 0) -> Report:
    """Creates one at a time with a pause for the pool, then without one; with `burst`, that many at once."""
    report = Report("create → first exec answered, milliseconds")
    report.add("runc run", floors.runc_run(times), note="floor: `true` with the same walls, made and deleted")
    ready, _ = floors.guest_alone(1)
    report.facts["guest alone, ms from spawn to greeting"] = round(ready, 1)
    report.add("pet-in-waiting", [_one(itx, "warm", pause=1.0) for _ in range(times)], "runc run", "budget 15")
    # standard-1 has no pets-in-waiting: what a create costs when the pool is empty.
    cold = [_one(itx, "cold", instance_type="standard-1") for _ in range(times)]
    report.add("drained", cold, "runc run", "budget 100")
    if burst:
        _burst(itx, report, burst)
    return report


def _one(itx: Kennel, word: str, *, pause: float = 0.0, instance_type: str = "basic") -> float:
    time.sleep(pause)
    begun = time.perf_counter()
    box = itx.sandboxes.get(figures.fresh_path(word)).create(instance_type=instance_type)
    result = box.exec(argv=["true"])
    took = (time.perf_counter() - begun) * 1000
    if result.exit_code != 0:
        raise RuntimeError(f"true ended with {result.exit_code}")
    box.destroy()
    return took


def _burst(itx: Kennel, report: Report, count: int) -> None:
    boxes = [itx.sandboxes.get(figures.fresh_path("burst")) for _ in range(count)]

    def one(box: Sandbox) -> float:
        begun = time.perf_counter()
        box.create().exec(argv=["true"])
        return (time.perf_counter() - begun) * 1000

    begun = time.perf_counter()
    with ThreadPoolExecutor(count) as threads:
        samples = list(threads.map(one, boxes))
    report.facts[f"burst of {count}: all answered, s"] = round(time.perf_counter() - begun, 2)
    report.add(f"burst of {count}", samples, "runc run", "budget 6 s in all")
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda box: box.destroy(), boxes))
