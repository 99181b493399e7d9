"""Owns the start of a Jupyter kernel on whichever Python runs it: `python kernel_main.py CONNECTION PACKAGES`.

Started by PythonContext, on the image's Python or the runtime's; imports nothing of the guest's. Invariant: the
kernel's packages are in front while it starts and behind afterwards, so that a cell imports what its environment has.
"""

import sys
import threading
from importlib import import_module
from typing import Any

UNFIT = 64
CHART = "application/vnd.kennel.chart+json"
_WRITTEN = 0.2
"""Seconds a cell's end waits for what its programs wrote to the kernel's descriptors."""
_HOMES = ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR", "JUPYTER_CONFIG_DIR")
_reading = threading.Lock()


def fit(packages: str) -> None:
    """Ends this Python unless the compiled packages were made for it."""
    sys.path.insert(0, packages)
    try:
        import ipykernel.kernelapp  # noqa: F401
        import zmq  # noqa: F401
    except Exception:  # noqa: BLE001  # whatever an odd image does to these imports, it does not fit
        sys.exit(UNFIT)


def main(connection: str, packages: str) -> None:
    """Becomes the kernel."""
    import os

    sys.path[0] = ""
    sys.argv = [""]
    fit(packages)
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("800")  # when memory runs out it is the cell that ends, not the program that tells of it
    folder = os.path.dirname(connection)
    for name in _HOMES:
        os.environ[name] = f"{folder}/home"
    base: Any = import_module("ipykernel.kernelapp").IPKernelApp

    class App(base):  # type: ignore[misc]
        """A kernel whose publishing channel drops nothing."""

        def init_iopub(self, context: Any) -> None:
            """Makes the channel."""
            context.sndhwm = 0
            super().init_iopub(context)

    exact_streams()
    # The kernel would sleep 0.5 ms after each cell for output that lags behind; `drained` waits for exactly that.
    options = (
        "Kernel._execute_sleep=0",
        "HistoryManager.enabled=False",
        "InteractiveShell.colors=nocolor",
        "IPCompleter.use_jedi=False",
    )
    app: Any = App.instance()
    app.initialize(["-f", connection, *(f"--{option}" for option in options)])
    for name in _HOMES:
        os.environ.pop(name, None)
    show(app.shell.display_formatter)
    lend_variables(app)
    app.shell.events.register("post_execute", drained)
    sys.path.remove(packages)
    sys.path.append(packages)
    app.start()


def exact_streams() -> None:
    """Output is told after 20 ms instead of 200, and what was read of a descriptor is told before the cell's end.

    A flush of a stream nobody wrote to does nothing: a cell has four of them, each a trip through another thread.
    """
    import os
    import select

    streams: Any = import_module("ipykernel.iostream").OutStream
    streams.flush_interval = 0.02

    def watch(stream: Any) -> None:
        """Takes the place of a loop that may hold bytes back between its two steps."""
        while stream._should_watch:
            select.select([stream._fid], [], [])
            with _reading:
                piece = os.read(stream._fid, 65536)
                if not piece:
                    return
                stream.write(piece.decode(errors="replace"))

    write, flush = streams.write, streams.flush

    def noted(stream: Any, text: str) -> Any:
        """Remembers that there is something to flush."""
        stream.unflushed = True
        return write(stream, text)

    def flushed(stream: Any) -> None:
        """Flushes if there may be something."""
        if getattr(stream, "unflushed", False):
            stream.unflushed = False
            flush(stream)

    streams._watch_pipe_fd, streams.write, streams.flush = watch, noted, flushed


def lend_variables(app: Any) -> None:
    """A cell's own variables are there while it runs; at its end they are what they were."""
    import os

    before: dict[str, str | None] = {}

    def lend() -> None:
        parent = app.kernel.get_parent("shell")
        given = parent.get("metadata", {}).get("kennel_env") if isinstance(parent, dict) else None
        for name, value in given.items() if isinstance(given, dict) else ():
            before.setdefault(name, os.environ.get(name))
            os.environ[name] = value

    def put_back() -> None:
        while before:
            name, value = before.popitem()
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    app.shell.events.register("pre_execute", lend)
    app.shell.events.register("post_execute", put_back)


def drained() -> None:
    """Waits until what lies in the kernel's own pipes was taken."""
    import fcntl
    import struct
    import termios
    import time

    until = time.monotonic() + _WRITTEN
    for stream in (sys.stdout, sys.stderr):
        pipe = getattr(stream, "_fid", None)
        while pipe is not None and time.monotonic() < until:
            with _reading:
                (waiting,) = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"\0\0\0\0"))
            if not waiting:
                break
            time.sleep(0.0005)


def show(formatter: Any) -> None:
    """Plain dictionaries and lists are shown as JSON too, and figures as a chart's data."""
    import json
    import os

    def as_json(value: Any) -> Any:
        try:
            text = json.dumps(value, allow_nan=False)
        except (TypeError, ValueError, RecursionError):
            return None
        return json.loads(text) if len(text) <= 1024 * 1024 else None

    for kind in (dict, list):
        formatter.formatters["application/json"].for_type(kind, as_json)
    charts: Any = type(formatter.formatters["application/json"])(parent=formatter)
    charts.format_type = CHART
    charts.print_method = "_repr_kennel_chart_"
    # IPython takes figures away from every formatter when it sets up its own pictures of them.
    charts.pop = lambda *_: None
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    charts.for_type_by_name("matplotlib.figure", "Figure", import_module("kernel_charts").chart_of)
    del sys.path[0]
    formatter.formatters[CHART] = charts


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
