"""Owns the typed commands that control sends to node and their answers, one JSON message each (SOCK_SEQPACKET).

Called by node (decoding) and adapters/node_client (encoding). Invariant: the set is closed and small; a message
over MAX_MESSAGE bytes or of an unknown tag is refused; descriptors travel beside a message, never data.
"""

from __future__ import annotations

from typing import Any

import msgspec

MAX_MESSAGE = 128 * 1024
PROTOCOL = 1


class Hello(msgspec.Struct, tag="hello"):
    """Who are you: protocol, runtimes, capacity."""

    protocol: int = PROTOCOL


class ResolveImage(msgspec.Struct, tag="resolve-image"):
    """Turn an image's name or digest into a digest that is here."""

    image: str


class ListImages(msgspec.Struct, tag="list-images"):
    """Every image that is here."""


class Build(msgspec.Struct, tag="build"):
    """Make the sandbox's directory, disk and record; idempotent for equal words."""

    sandbox: str
    instance_type: str
    image_digest: str
    isolation: str = "container"


class Start(msgspec.Struct, tag="start"):
    """Mount, make namespaces, run the container; idempotent while it runs."""

    sandbox: str
    hostname: str


class Limit(msgspec.Struct, tag="limit"):
    """Put the instance type's CPU limit in force; sent once the guest is ready (DESIGN 5)."""

    sandbox: str
    hostname: str | None = None


class Connect(msgspec.Struct, tag="connect"):
    """Answers with two descriptors: a socket connected to the guest, and a pidfd of its container."""

    sandbox: str


class Stop(msgspec.Struct, tag="stop"):
    """Kill the container and take its mounts and namespaces down; the disk stays."""

    sandbox: str


class Remove(msgspec.Struct, tag="remove"):
    """Stop, then delete disk and directory; idempotent, also for a sandbox that is half there."""

    sandbox: str


class Usage(msgspec.Struct, tag="usage"):
    """CPU, memory, processes, disk and out-of-memory kills of one sandbox."""

    sandbox: str


class Census(msgspec.Struct, tag="census"):
    """Every resource on this machine that carries this installation's name."""


Request = Hello | ResolveImage | ListImages | Build | Start | Limit | Connect | Stop | Remove | Usage | Census


class Call(msgspec.Struct):
    """A request with its number; answers carry the number back in any order."""

    id: int
    request: Request


class Reply(msgspec.Struct):
    """The answer to call `id`: `ok` or an error's code, message, details and hint."""

    id: int
    ok: Any = None
    code: str | None = None
    message: str | None = None
    details: Any = None
    hint: str | None = None


class Unit(msgspec.Struct):
    """One sandbox as the machine shows it: which of its resources exist."""

    sandbox: str
    instance_type: str | None = None
    image_digest: str | None = None
    record: bool = False
    running: bool = False
    container: bool = False
    mounts: int = 0
    loop: bool = False
    cgroup: bool = False
    netns: bool = False

    def at_rest(self) -> bool:
        """Whether nothing is there but what lies on disk."""
        return not (self.running or self.container or self.mounts or self.loop or self.cgroup or self.netns)


class Counters(msgspec.Struct):
    """Usage of one sandbox: bytes, seconds of CPU, counts."""

    cpu_seconds: float = 0.0
    memory: int = 0
    pids: int = 0
    oom_kills: int = 0
    disk_used: int = 0
    disk_size: int = 0
