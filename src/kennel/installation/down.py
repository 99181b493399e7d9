"""Owns stopping an installation: `python -m kennel.installation.down`, reached as `kennel down`.

Invariant: when it returns 0 no process, mount, namespace, loop device or cgroup of the installation is left, also when
the supervisor was killed before; what lies on disk stays.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import signal
import sys
from pathlib import Path

from kennel.assemble import node
from kennel.installation import layout
from kennel.settings import Settings

PATIENCE = 150.0
_SERVICES = ("control", "gateway", "node")


def main() -> None:
    parser = argparse.ArgumentParser(prog="kennel down", description="Put the pets to sleep and stop everything.")
    parser.add_argument("--data", type=Path, help="where everything is kept")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    settings = Settings(data=options.data.absolute()) if options.data else Settings()  # type: ignore[call-arg]
    if os.geteuid() != 0 and settings.data.exists() and settings.data.stat().st_uid != os.geteuid():
        sys.exit(f"error: {settings.data} belongs to another user, who runs `kennel down`")
    was_running = settings.run.is_dir() and _take_down(settings)
    if options.json:
        print(json.dumps({"data": str(settings.data), "wasRunning": was_running}))
    else:
        print(f"stopped {settings.data}" if was_running else f"nothing was running in {settings.data}")


def _take_down(settings: Settings) -> bool:
    """Ends whatever runs; whether anything did."""
    told = _stop(settings)
    held = layout.lock(settings, 5.0)
    if held is None:
        sys.exit(f"error: {settings.data} is locked by another `kennel up` or `kennel down`")
    with held:
        left = [name for name in _SERVICES if layout.running(settings, name)]
        for name in left:
            _end(settings, name)
        if left or not told:
            # The supervisor did not end things in order: look at the machine and do it here.
            layout.make(settings)
            if os.geteuid() == 0:
                node.sweep(settings)
    return told or bool(left)


def _stop(settings: Settings) -> bool:
    """Ends the supervisor, which ends the services; whether there was one."""
    return _end(settings, "up", PATIENCE)


def _end(settings: Settings, name: str, patience: float = 60.0) -> bool:
    """SIGTERM, then SIGKILL after `patience` seconds; returns when the process is gone, not only its pid file."""
    pid = layout.running(settings, name)
    if pid is None:
        return False
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        ended = select.poll()
        ended.register(process, select.POLLIN)
        signal.pidfd_send_signal(process, signal.SIGTERM)
        if not ended.poll(2000):
            print("waiting for the pets to fall asleep …", file=sys.stderr)
            if not ended.poll(patience * 1000):
                signal.pidfd_send_signal(process, signal.SIGKILL)
                ended.poll()
    finally:
        os.close(process)
    return True


if __name__ == "__main__":
    main()
