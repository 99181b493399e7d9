"""Owns the socket at which a sandbox's guest listens: its short name, making it, knocking at it.

Called by unit. Invariant: it lies in the sandbox's own folder; one that a dead container left is replaced.
"""

from __future__ import annotations

import os
import socket

from kennel.node import rootfs
from kennel.steps import step

BACKLOG = 64


def _stream() -> socket.socket:
    return socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)


def listen(places: rootfs.Places) -> socket.socket:
    """A new listener, for the guest to take over."""
    listener = _stream()
    with step("bind guest socket"):
        places.socket.unlink(missing_ok=True)
        with _short(places) as name:
            listener.bind(name)
    listener.listen(BACKLOG)
    return listener


def connect(places: rootfs.Places) -> socket.socket:
    """A connection to the guest; OSError when nobody listens."""
    connection = _stream()
    try:
        with _short(places) as name:
            connection.connect(name)
    except OSError:
        connection.close()
        raise
    return connection


def listens(places: rootfs.Places) -> bool:
    """Whether the guest can still be reached: a killed PID 1 closes its socket a while before it counts as dead."""
    try:
        connect(places).close()
    except OSError:
        return False
    return True


class _short:
    """The guest socket's path through /proc: AF_UNIX names are cut at 108 bytes and data folders may be deep."""

    def __init__(self, places: rootfs.Places) -> None:
        self._places = places

    def __enter__(self) -> str:
        self._folder = os.open(self._places.folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        return f"/proc/self/fd/{self._folder}/{self._places.socket.name}"

    def __exit__(self, *_: object) -> None:
        os.close(self._folder)
