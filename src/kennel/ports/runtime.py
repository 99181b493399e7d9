"""What node needs from an OCI runtime and from the image store; adapters/oci and adapters/images provide them.

Invariant: every call ends within a deadline; `delete` and `pid` are safe for containers that are not there.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from kennel.domain.container import ContainerSpec, RuntimeFinding


class Runtime(Protocol):
    """One OCI runtime with a state directory of its own."""

    name: str

    def run(self, spec: ContainerSpec, listener: int) -> int:
        """Starts the container with `listener` as its descriptor 3; the host pid of its PID 1."""
        ...

    def pid(self, container: str) -> int | None:
        """The host pid of a running container's PID 1."""
        ...

    def delete(self, container: str) -> None:
        """Kills and forgets the container, its cgroups too."""
        ...

    def list(self) -> list[str]: ...

    def probe(self) -> RuntimeFinding: ...


class Lower(Protocol):
    """The read-only parts of an image: its root (a folder or an EROFS file), its `/usr` where that lies elsewhere, and
    the digest that these are of."""

    @property
    def digest(self) -> str: ...

    @property
    def root(self) -> Path: ...

    @property
    def usr(self) -> Path | None: ...


class Image(Protocol):
    """One image, as lists show it."""

    def to_wire(self) -> dict[str, Any]: ...


class Images(Protocol):
    """The images of this machine."""

    def resolve(self, name_or_digest: str) -> str: ...

    def lower(self, digest: str) -> Lower: ...

    def list(self) -> Sequence[Image]: ...
