"""Owns the process from which every confined job is forked: it starts once per node, walls itself in, waits for jobs.

Started by packer as a program of its own. Invariant: it reads nothing but its line to node, and it is single-threaded,
so a fork is safe; when node ends, it and all its jobs end. (A fresh interpreter for each job would cost 25 ms, a fork
costs 1 ms.)
"""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
from contextlib import suppress
from typing import Any

from kennel.node.packing import jobs, walls

MAX_MESSAGE = 64 * 1024
MAX_DESCRIPTORS = 200


def main() -> None:
    """Serves jobs from the socket that is descriptor 0 until its other end is closed."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    line = socket.socket(fileno=os.dup(0))
    walls.close_out()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    programs, own = {kind: walls.program(kind) for kind in walls.KINDS}, os.getpid()
    while True:
        message, descriptors, _, _ = socket.recv_fds(line, MAX_MESSAGE, MAX_DESCRIPTORS)
        if not message:
            return
        pid = os.fork()
        if pid == 0:
            line.close()
            os.close(0)
            words = json.loads(message)
            kind = walls.DELETES if words["job"] == "sweep" else walls.READS
            _outer(own, words, descriptors, kind, programs[kind])
        for descriptor in descriptors:
            os.close(descriptor)


def _outer(parent: int, words: dict[str, Any], descriptors: list[int], kind: walls.Kind, allowed: bytes) -> None:
    """The parent of PID 1 of a namespace: it hands its own pidfd back, waits, and takes the job with it when killed."""
    code = 1
    try:
        walls.die_with_parent(parent)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        reports = socket.socket(fileno=descriptors[0])
        handle = os.pidfd_open(os.getpid())
        socket.send_fds(reports, [b"{}"], [handle])
        os.close(handle)
        walls.own_processes()
        pid = os.fork()
        if pid == 0:
            _inner(reports, words, descriptors[1:], kind, allowed)
        reports.close()
        for descriptor in descriptors[1:]:
            os.close(descriptor)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) & 0xFF
    except Exception as failure:  # noqa: BLE001 (node must hear of it, whatever it is)
        _complain(descriptors[0], failure)
    finally:
        os._exit(code)


def _inner(
    reports: socket.socket, words: dict[str, Any], descriptors: list[int], kind: walls.Kind, allowed: bytes
) -> None:
    try:
        walls.die_with_parent(0)
        walls.limit(words["max_image"], words["max_memory"], words["max_seconds"])
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        walls.close_in(kind, allowed)
        jobs.run(reports, words, descriptors)
    except Exception as failure:  # noqa: BLE001 (node must hear of it, whatever it is)
        _complain(reports.fileno(), failure)
    finally:
        os._exit(0)


def _complain(line: int, failure: Exception) -> None:
    """Says why the walls could not be put up, or the answer not be given."""
    words = {"failed": "PACK_FAILED", "message": f"{type(failure).__name__}: {failure}"}
    with suppress(OSError):
        os.write(line, json.dumps(words).encode())
