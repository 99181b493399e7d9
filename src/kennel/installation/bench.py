"""Owns `kennel bench [NAME]`: an installation for the run (or the one of `--data`), and which benchmarks it gets.

Invariant: an installation made for the run is stopped and deleted afterwards, whatever happened.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from kennel import Kennel
from kennel.bench import cli, egress, figures, files, log, snapshot, stream, tti, wake
from kennel.bench import exec as exec_bench
from kennel.bench import interpreter as interpreter_bench

BENCHMARKS: dict[str, Callable[[Kennel, Path, bool], figures.Report]] = {
    "tti": lambda itx, *_: tti.measure(itx, burst=100),
    "exec": lambda itx, *_: exec_bench.measure(itx),
    "interpreter": lambda itx, *_: interpreter_bench.measure(itx),
    "stream": lambda itx, _, full: stream.measure(itx, full=full),
    "files": lambda itx, _, full: files.measure(itx, full=full),
    "cli": lambda _, data, __: cli.measure(data),
    "log": lambda *_: log.measure(),
    "egress": lambda *_: egress.measure(),
    "snapshot": lambda itx, *_: snapshot.measure(itx),
    "wake": lambda itx, _, full: wake.measure(itx, full=full),
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="kennel bench", description="Measure Kennel beside floors of the same run.")
    parser.add_argument("name", nargs="?", choices=sorted(BENCHMARKS))
    parser.add_argument("--data", type=Path, help="measure this running installation")
    parser.add_argument("--full", action="store_true", help="the long forms too: wakes of 10 GB, files of 1 GiB")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    names = [options.name] if options.name else sorted(BENCHMARKS)
    with _installation(options.data) as data, Kennel(data=data) as itx:
        reports = []
        for name in names:
            print(f"measuring {name} …", file=sys.stderr)
            reports.append(BENCHMARKS[name](itx, data, options.full))
    print(figures.render(reports, options.json))


@contextlib.contextmanager
def _installation(data: Path | None) -> Iterator[Path]:
    if data is not None:
        yield data
        return
    # A signal is otherwise the end of this process alone: the installation would serve nobody for ever.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    folder = Path(tempfile.mkdtemp(prefix="kennel-bench-", dir="/var/tmp"))
    folder.chmod(0o711)
    try:
        _kennel("up", "--data", str(folder), "--port", "0", "--detach")
        yield folder
    finally:
        _kennel("down", "--data", str(folder))
        shutil.rmtree(folder)


def _kennel(command: str, *words: str) -> None:
    module = [sys.executable, "-P", "-m", f"kennel.installation.{command}", *words]
    subprocess.run(module, check=True, stdout=sys.stderr, stdin=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
