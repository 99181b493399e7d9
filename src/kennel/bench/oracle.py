"""Owns mitmproxy for comparison: found where it is, or installed in an environment of its own for Python 3.12 or newer.

Called by `kennel bench egress` and by the differential test. Invariant: it never joins Kennel's own environment, whose
Python is older and whose libraries it would pin; what cannot be had is None, with the reason said.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME", "/var/tmp")) / "kennel-mitmproxy"
_VERSION = "mitmproxy>=12,<13"
_PYTHONS = ("python3.14", "python3.13", "python3.12")


def mitmdump() -> Path | None:
    """The program: `KENNEL_MITMDUMP`, one on the path, the cached environment's, or a new one made from PyPI (40 s)."""
    named = os.environ.get("KENNEL_MITMDUMP") or shutil.which("mitmdump")
    if named:
        return Path(named)
    found = CACHE / "bin" / "mitmdump"
    return found if found.exists() or _install() else None


def _install() -> bool:
    python = next((path for path in _candidates() if _runs(path)), None)
    if python is None:
        print("mitmproxy left out: no Python of 3.12 or newer here", file=sys.stderr)
        return False
    try:
        subprocess.run([python, "-m", "venv", str(CACHE)], check=True, capture_output=True, timeout=120)
        words = [str(CACHE / "bin" / "pip"), "install", "--quiet", _VERSION]
        subprocess.run(words, check=True, capture_output=True, timeout=600)
    except (subprocess.SubprocessError, OSError) as failure:
        print(f"mitmproxy left out: {failure}", file=sys.stderr)
        shutil.rmtree(CACHE, ignore_errors=True)
        return False
    return (CACHE / "bin" / "mitmdump").exists()


def _candidates() -> Iterator[Path]:
    yield from (Path(found) for name in _PYTHONS if (found := shutil.which(name)))
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    yield from (path / "bin" / "python" for path in sorted(versions.glob("3.1[2-9]*"), reverse=True))


def _runs(python: Path) -> bool:
    """A version manager's stand-in is there for every version, and runs only the one that is chosen."""
    try:
        return subprocess.run([python, "-c", ""], capture_output=True, timeout=30, check=False).returncode == 0
    except OSError:
        return False


@contextmanager
def running(program: Path, net: Path, folder: Path, upstream: str, roots: Path, port: int) -> Iterator[int]:
    """mitmdump in front of `upstream` (https://HOST:PORT), inside the namespace `net`; the id of its process.

    Bodies are streamed, as Kennel's gateway does; without that whole downloads lie in memory.
    """
    settings = {
        "confdir": str(folder), "stream_large_bodies": "1", "ssl_verify_upstream_trusted_ca": str(roots),
        "keep_host_header": "true", "flow_detail": "0", "termlog_verbosity": "error", "http2": "false",
    }  # fmt: skip
    words = [str(program), "--mode", f"reverse:{upstream}@{port}", "--quiet"]
    for name, value in settings.items():
        words += ["--set", f"{name}={value}"]
    with (folder / "mitmdump.log").open("wb") as log:
        process = subprocess.Popen(["nsenter", f"--net={net}", *words], stdout=log, stderr=log)
    try:
        _await(net, port, process, folder)
        yield process.pid
    finally:
        process.terminate()
        process.wait(10)


def _await(net: Path, port: int, process: subprocess.Popen[bytes], folder: Path) -> None:
    from kennel.node import interception

    def connect() -> socket.socket:
        return socket.create_connection(("127.0.0.1", port), 1)

    deadline = time.monotonic() + 30
    while True:
        try:
            interception.inside(net, connect).close()
            return
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((folder / "mitmdump.log").read_text()) from None
            time.sleep(0.1)
