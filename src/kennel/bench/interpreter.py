"""Owns `kennel bench interpreter`: cells and contexts over HTTP, beside a bare ipykernel of the same run.

Called by installation/bench. Invariant: the floor is the same ipykernel on the same Python, spoken to over the same
kind of socket by jupyter_client, without walls, without HTTP.
"""

from __future__ import annotations

import time
from typing import Any

from jupyter_client.manager import KernelManager

from kennel import Kennel
from kennel.bench import figures
from kennel.bench.figures import Report, timed

READY = 60.0


def measure(itx: Kennel, times: int = 100, starts: int = 5) -> Report:
    """Starts of a context, then cells one at a time in it."""
    report = Report("interpreter, milliseconds")
    kernel_starts, kernel_cells = bare_kernel(times, starts)
    report.add("ipykernel, start", kernel_starts, note="floor: no walls, no wire; from launch to its first answer")
    report.add("ipykernel, `1 + 1`", kernel_cells, note="floor: from request to reply and idle")
    box = itx.sandboxes.get(figures.fresh_path("code")).create(instance_type="standard-2")
    try:
        box.exec(argv=["true"])
        report.add("python context, start", _starts(box, "python", starts), "ipykernel, start")
        for language, code in (("python", "1 + 1"), ("javascript", "1 + 1"), ("typescript", "(1 as number) + 1")):
            context = box.create_code_context(language)
            samples = timed(lambda context=context, code=code: context.run(code), times)  # type: ignore[misc]
            report.add(f"{language} cell over HTTP", samples, "ipykernel, `1 + 1`", "budget 5 ms")
        report.add("javascript context, start", _starts(box, "javascript", starts), "ipykernel, start")
        report.add("GET of the sandbox", timed(box.info, times), note="HTTP and the API alone")
    finally:
        box.destroy()
    return report


def _starts(box: Any, language: str, count: int) -> list[float]:
    samples = []
    for _ in range(count):
        begun = time.perf_counter()
        context = box.create_code_context(language)
        samples.append((time.perf_counter() - begun) * 1000)
        context.delete()
    return samples


def bare_kernel(times: int, starts: int) -> tuple[list[float], list[float]]:
    """Milliseconds of each start of a kernel, and of each cell in the last one."""
    began, cells = [], []
    for number in range(starts):
        manager: Any = KernelManager(transport="ipc", kernel_name="python3")
        begun = time.perf_counter()
        manager.start_kernel()
        client = manager.client()
        client.start_channels()
        try:
            client.wait_for_ready(timeout=READY)
            began.append((time.perf_counter() - begun) * 1000)
            if number == starts - 1:
                cells = timed(lambda client=client: _cell(client), times)  # type: ignore[misc]
        finally:
            client.stop_channels()
            manager.shutdown_kernel(now=True)
    return began, cells


def _cell(client: Any) -> None:
    """One cell: its reply, and the word that the kernel is idle again."""
    request = client.execute("1 + 1", allow_stdin=False)
    while client.get_shell_msg(timeout=READY)["parent_header"].get("msg_id") != request:
        continue
    while True:
        message = client.get_iopub_msg(timeout=READY)
        ours = message["parent_header"].get("msg_id") == request
        if ours and message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
            return
