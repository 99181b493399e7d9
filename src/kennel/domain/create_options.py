"""Owns what a create asks for beyond the name; filled in by the API and by rooms, read by the lifecycle service.

Invariant: a default here is the default of the public contract; `None` in `env` unsets a planted variable.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kennel.domain.instance_type import DEFAULT


@dataclass(frozen=True, slots=True)
class CreateOptions:
    """A new sandbox: size, image, walls, habits. `sleep_after` is seconds or text such as `10m`; None: the default.

    `leave_out` is what snapshots leave out (`nodeModules`, `gitignore`, `patterns`); `points` asks
    for a point before each command; `origin` is the backup that a fork begins as, in the words of `backup-created`.
    """

    instance_type: str = DEFAULT
    image: str = "host"
    isolation: str = "container"
    env: dict[str, str | None] = field(default_factory=dict)
    sleep_after: str | int | None = None
    keep_alive: bool = False
    persist: str = "workspace"
    labels: dict[str, str] = field(default_factory=dict)
    leave_out: dict[str, Any] = field(default_factory=dict)
    points: bool = False
    origin: dict[str, Any] | None = None
