"""Owns `kennel bench cli`: how soon a command of the command line has ended, beside a bare interpreter.

Called by installation/bench. The command is `kennel sandbox list` against this installation, whole process.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from kennel.bench.figures import Report, timed


def measure(data: Path, times: int = 20) -> Report:
    """Whole processes, one at a time."""
    environment = {**os.environ, "KENNEL_DATA": str(data)}

    def run(*words: str) -> None:
        subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL, env=environment, timeout=60)

    report = Report("command line, milliseconds")
    report.add("python -c pass", timed(lambda: run("-c", "pass"), times), note="floor: the interpreter alone")
    listed = timed(lambda: run("-m", "kennel.cli", "sandbox", "list"), times)
    report.add("kennel sandbox list", listed, "python -c pass", "budget 150")
    return report
