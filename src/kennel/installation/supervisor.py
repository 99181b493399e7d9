"""Owns the three services while they run: starts them, starts them again when they die, ends them in order.

Called by up. Invariant: every child of this process is reaped, also the containers that a killed node leaves (it is a
subreaper); a service that dies comes back within a second, ever later when it keeps dying; on the way out control
goes first (it puts the pets to sleep), then gateway, then node.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from kennel.installation import layout
from kennel.settings import CONTROL_UID, GATEWAY_UID, Settings

_PR_SET_CHILD_SUBREAPER = 36
_SIGNALS = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
_LISTENER = 3
_ABOVE = 16
"""Descriptors are copied to above this before a service gets them as 3 and 4, so that none takes another's place."""
_GRACE = {"control": 60.0, "gateway": 5.0, "node": 60.0}
_MAX_LOG = 64 * 1024 * 1024


@dataclass(slots=True)
class Service:
    """One service: how it is started, and how it has been doing."""

    name: str
    words: list[str]
    listeners: dict[str, socket.socket] = field(default_factory=dict)
    pid: int | None = None
    started: float = 0.0
    delay: float = 0.2
    due: float = field(default=0.0)


def services(
    settings: Settings, listener: socket.socket, gateway: socket.socket, previews: socket.socket | None
) -> list[Service]:
    """What `up` runs, in the order of starting."""
    python, data, run = sys.executable, settings.data, settings.run

    def confined(role: str, uid: int) -> list[str]:
        return [python, "-P", "-m", "kennel.installation.confine", role, str(data / role), str(run), str(uid)]

    rows = [Service("gateway", confined("gateway", GATEWAY_UID)), Service("control", confined("control", CONTROL_UID))]
    rows[0].listeners, rows[1].listeners = {"KENNEL_LISTENER": gateway}, {"KENNEL_LISTENER": listener}
    if previews is not None:
        rows[0].listeners["KENNEL_PREVIEW_LISTENER"] = previews
    if settings.node:
        rows.insert(0, Service("node", [python, "-P", "-m", "kennel.assemble", "node"]))
    return rows


class Supervisor:
    """Runs the services until it is told to stop."""

    def __init__(self, settings: Settings, rows: list[Service], environment: dict[str, dict[str, str]]) -> None:
        self._settings = settings
        self._services = rows
        self._environment = environment
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def start(self) -> None:
        for service in self._services:
            self._spawn(service)

    def run(self, tick: Callable[[], None]) -> None:
        """Keeps the services running until SIGTERM, SIGINT or SIGHUP; calls `tick` a few times a second."""
        while True:
            caught = signal.sigtimedwait(_SIGNALS, 0.2)
            if caught is not None and caught.si_signo != signal.SIGCHLD:
                return
            self._reap()
            for service in self._services:
                if service.pid is None and time.monotonic() >= service.due:
                    self._spawn(service)
            tick()

    def stop(self) -> None:
        """Ends the services: control, gateway, node; each has its grace before SIGKILL."""
        for name in ("control", "gateway", "node"):
            for service in self._services:
                if service.name == name:
                    self._end(service, _GRACE[name])

    def _spawn(self, service: Service) -> None:
        log = self._settings.data / "logs" / f"{service.name}.log"
        _rotate(log)
        actions: list[tuple[int, ...] | tuple[int, int, str, int, int]] = [
            (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ]
        environment = dict(self._environment[service.name])
        copies: list[int] = []
        try:
            for number, (name, listener) in enumerate(service.listeners.items(), _LISTENER):
                copies.append(fcntl.fcntl(listener, fcntl.F_DUPFD_CLOEXEC, _ABOVE))
                actions.append((os.POSIX_SPAWN_DUP2, copies[-1], number))
                environment[name] = str(number)
            service.pid = os.posix_spawn(
                service.words[0], service.words, environment, file_actions=actions, setsigmask=[], setsigdef=_SIGNALS
            )
        finally:
            for copy in copies:
                os.close(copy)
        service.started = time.monotonic()
        layout.note_process(self._settings, service.name, service.pid)

    def _reap(self) -> None:
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for service in self._services:
                if service.pid == pid:
                    service.pid = None
                    # A service that ran for a minute was well; one that keeps dying waits ever longer.
                    steady = time.monotonic() - service.started > 60
                    service.delay = 0.2 if steady else min(service.delay * 2, 10.0)
                    service.due = time.monotonic() + (0.0 if steady else service.delay / 2)

    def _end(self, service: Service, grace: float) -> None:
        if service.pid is None:
            return
        os.kill(service.pid, signal.SIGTERM)
        deadline = time.monotonic() + grace
        while service.pid is not None:
            signal.sigtimedwait({signal.SIGCHLD}, 0.1)
            self._reap()
            if service.pid is not None and time.monotonic() > deadline:
                os.kill(service.pid, signal.SIGKILL)
                deadline = float("inf")


def _rotate(log: Path) -> None:
    if log.exists() and log.stat().st_size > _MAX_LOG:
        os.replace(log, log.with_suffix(".log.1"))
