"""Owns what the installation decides for its gateway: addresses, trust, caps, the model gateway, its own keys.

Built by assemble from the settings. Invariant: nothing here can be changed by a sandbox or a project; a value that
cannot be understood stops the start.
"""

from __future__ import annotations

import msgspec


class PlatformKey(msgspec.Struct, frozen=True):
    """A key of the installation that projects may name in headers, and the origins it may go to."""

    value: str
    origins: list[str]


class Options(msgspec.Struct, kw_only=True):
    """All of the gateway's options. Sizes in bytes, times in seconds.

    `data` is its own folder (keys, authority, journal). `listener` is the descriptor of its control socket's listening
    socket. `resolver` is `address:port` of a DNS server, else the system's. `openings` are exact `host:port` pairs in
    private ranges. `extra_roots` is a PEM file of certificates trusted beside the system's. `preview_listener` is the
    descriptor of the listening socket of previews, which live at `preview_base`; None serves none.
    """

    data: str
    listener: int = 3
    control_uid: int
    node_uid: int = 0
    resolver: str | None = None
    extra_roots: str | None = None
    openings: list[str] = []
    ai_base_url: str | None = None
    ai_key: str = ""
    ai_cache_ttl: int | None = None
    platform_keys: dict[str, PlatformKey] = {}
    max_connections: int = 512
    connections_per_second: float = 50.0
    connection_burst: int = 200
    questions_per_second: float = 100.0
    requests_per_second: float = 1000.0
    bytes_per_second: float = 0.0
    max_names: int = 65_536
    hello_timeout: float = 10.0
    idle_timeout: float = 120.0
    response_timeout: float = 600.0
    websocket_idle: float = 3600.0
    splice_idle: float = 600.0
    connect_timeout: float = 10.0
    acknowledge_timeout: float = 5.0
    preview_listener: int | None = None
    preview_base: str = ""
    preview_connections: int = 4096
    journal_bytes: int = 256 * 1024 * 1024
