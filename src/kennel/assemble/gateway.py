"""Owns the wiring of gateway: until policy exists it refuses everything."""

from __future__ import annotations

from kennel.gateway.refusal import serve
from kennel.settings import Settings


def run(_: Settings) -> None:
    """Holds the gateway's place until SIGTERM."""
    serve()
