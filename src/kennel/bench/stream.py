"""Owns `kennel bench stream`: what a command writes, on its way to a program here, beside a bare pipe of the same run.

Called by installation/bench. Invariant: every row moves the same bytes, and its clock runs from the request to the
command's exit; the reader counts what comes and keeps nothing.
"""

from __future__ import annotations

import functools
import subprocess
from collections.abc import Callable, Iterator

from kennel import Kennel, Sandbox
from kennel.bench import figures
from kennel.bench.figures import Report, timed

PIPE = "pipe"


def measure(itx: Kennel, times: int = 5, *, full: bool = False) -> Report:
    """50 MB, or 200 when `full`, by every form there is."""
    count = (200 if full else 50) * 10**6
    # Text, because NUL bytes take six characters each of an event's JSON.
    writes = f"yes 'a line of sixty-three letters, as a compiler or a test may print it' | head -c {count}"
    report = Report(f"output of {count // 10**6} MB, milliseconds")
    box = itx.sandboxes.get(figures.fresh_path("stream")).create(instance_type="standard-2")
    forms: dict[str, tuple[Callable[[], Iterator[bytes | str]], str]] = {
        PIPE: (lambda: _pipe(writes), "floor: read from a pipe in 64 KiB"),
        "WebSocket, binary frames": (lambda: _interact(box, writes), "budget 200 MB/s"),
        "events, text": (lambda: _events(box, writes, "utf8"), ""),
        "events, base64": (lambda: _events(box, writes, "base64"), ""),
    }
    try:
        for name, (form, note) in forms.items():
            samples = timed(functools.partial(_drain, form, count), times)
            row = report.add(name, samples, None if name == PIPE else PIPE, note)
            report.facts[f"{name}, MB/s at the median"] = round(count / 1000 / row.median)
    finally:
        box.destroy()
    return report


def _drain(form: Callable[[], Iterator[bytes | str]], wanted: int) -> None:
    count = sum(map(len, form()))
    if count != wanted:
        raise RuntimeError(f"{count} bytes came of {wanted}: a figure for them would mean nothing")


def _pipe(writes: str) -> Iterator[bytes]:
    with subprocess.Popen(writes, shell=True, stdout=subprocess.PIPE, bufsize=0) as writer:
        assert writer.stdout is not None
        while piece := writer.stdout.read(65536):
            yield piece


def _interact(box: Sandbox, writes: str) -> Iterator[bytes | str]:
    with box.interact(writes) as command:
        for event in command:
            yield event.data


def _events(box: Sandbox, writes: str, encoding: str) -> Iterator[bytes | str]:
    with box.exec_stream(writes, encoding=encoding) as stream:
        for event in stream:
            yield event.data
