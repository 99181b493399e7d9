"""Owns every setting of an installation, with its default and its unit; read from `KENNEL_*` variables.

Called by installation (to start things) and assemble (to wire them). Invariant: a value that does not parse stops the
start with its name; no setting is read anywhere else.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any, Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

CONTROL_UID = 59711
GATEWAY_UID = 59712
"""Fixed numeric users (no account is made); group ids are the same numbers."""


def default_data() -> Path:
    """`/var/lib/kennel` as root, else under the home folder."""
    return Path("/var/lib/kennel") if os.geteuid() == 0 else Path.home() / ".local/share/kennel"


class Settings(BaseSettings):
    """All settings. Sizes in bytes, times in seconds unless the name says otherwise."""

    model_config = SettingsConfigDict(env_prefix="KENNEL_", extra="ignore")

    data: Path = Field(default_factory=default_data, description="where everything is kept")
    host: str = Field("127.0.0.1", description="address of the API")
    port: int = Field(8787, ge=0, le=65535, description="port of the API; 0 takes a free one")
    preview_port: int | None = Field(None, ge=0, le=65535, description="port of previews; default port + 1")
    preview_base: str | None = Field(
        None, description="previews as visitors see them, https://*.DOMAIN[:PORT]; default http://*.localhost:PORT"
    )
    preview_host: str | None = Field(None, description="address of previews; default that of the API")
    preview_connections: int = Field(4096, ge=1, description="connections that visitors may have open")
    allowed_hosts: str = Field("", description="host names the API answers to besides loopback, comma-separated")
    open: bool = Field(False, description="no keys; loopback only")
    node: bool = Field(True, description="start node; without it sandbox calls answer NODE_UNAVAILABLE")
    runtime: str = Field("auto", description="runc, crun, or auto: the first that works")
    database_url: str | None = Field(None, description="SQLAlchemy URL of the log; default SQLite under data")
    blobs_url: str | None = Field(None, description="where layers are kept, s3://bucket/prefix; default: under data")
    blobs_options: dict[str, str] = Field(
        {}, repr=False, description='JSON, how to reach it: {"endpoint": …, "region": …, "access_key_id": …, …}'
    )
    snapshot_ttl: float = Field(7_776_000, gt=0, description="seconds a sandbox may sleep before its files expire")
    checkpoint_every: float = Field(900, gt=0, description="seconds between backups of a sandbox in use that changed")
    stack_depth: int = Field(8, ge=1, le=24, description="layers of a sandbox's files before some are merged")
    collect_every: float = Field(3600, gt=0, description="seconds between two looks for layers that nothing needs")
    warm_pool: int = Field(1, ge=0, le=64, description="started pets-in-waiting of the default type and image")
    overcommit_cpu: float = Field(16.0, gt=0, description="times the machine's CPUs that may be promised")
    overcommit_memory: float = Field(4.0, gt=0, description="times the machine's memory that may be promised")
    overcommit_disk: float = Field(8.0, gt=0, description="times the machine's disk that may be promised")
    floor_fraction: float = Field(0.10, ge=0, lt=1, description="part of memory and disk that stays free")
    floor_disk: int = Field(8 * 1024**3, ge=0, description="bytes of disk that stay free")
    max_instances: dict[str, int] = Field({}, description='JSON, by instance type: {"standard-4": 2}')
    ai_base_url: str | None = Field(None, description="rooms' model: base URL of an OpenAI-compatible server")
    ai_model: str | None = Field(None, description="rooms' model: its name on that server")
    ai_key: str | None = Field(None, repr=False, description="rooms' model: the key, if its server asks for one")
    ai_idle: float = Field(60.0, gt=0, description="seconds of silence after which the model is given up")
    ai_timeout: float = Field(300.0, gt=0, description="seconds that one answer of the model may take")
    ai_tokens: int = Field(2048, ge=1, description="tokens that one answer is asked to have at most")
    ai_characters: int = Field(65_536, ge=1, le=100_000, description="characters after which an answer is cut")
    room_history: int = Field(50, ge=1, le=200, description="messages in a room's answer")
    room_context: int = Field(10, ge=0, le=100, description="earlier messages that the model is shown")
    room_rounds: int = Field(1, ge=1, le=8, description="times the model is asked in one turn, seeing outputs")
    room_turns: int = Field(60, ge=0, description="messages to the model per room and minute; 0: no limit")
    room_commands: int = Field(0, ge=0, description="commands per room and minute; 0: no limit")
    room_command_timeout: float = Field(120.0, gt=0, le=3600, description="seconds a room's command may take")
    room_turn_timeout: float = Field(600.0, gt=0, description="seconds that the commands of one turn may take together")
    log_level: str = Field("INFO", description="of the services' own logs")
    run_folder: Path | None = Field(None, description="where the services meet; default `run` under data")
    control_uid: int = Field(CONTROL_UID, ge=0, description="the user that control runs as; set by `up`")
    listener: int = Field(3, ge=3, description="descriptor of the API's listening socket; set by `up`")
    preview_listener: int | None = Field(
        None, ge=3, description="descriptor of previews' listening socket; set by `up`"
    )
    admin_key_hash: str | None = Field(None, description="SHA-256 (hex) of the admin key; set by `up`")
    egress: bool = Field(True, description="sandboxes reach the network, through the gateway; false: loopback only")
    egress_default: Literal["allow", "deny"] = Field("allow", description="for public hosts that no rule names")
    egress_resolver: str | None = Field(None, description="`address:port` of a DNS server; else the system's")
    egress_roots: Path | None = Field(None, description="PEM file of roots the gateway trusts beside the system's")
    egress_openings: list[str] = Field([], description='JSON, private addresses that may be reached: ["db.lan:5432"]')
    egress_connections: int = Field(512, ge=1, description="connections that one sandbox may have open")
    egress_bytes: int = Field(0, ge=0, description="bytes a second that one sandbox may send and get; 0: no limit")
    egress_requests: int = Field(1000, ge=1, description="requests a second that one sandbox may send")
    egress_retention: float = Field(2_592_000, ge=0, description="seconds the audit of egress is kept; 0: for ever")
    egress_platform_keys: dict[str, dict[str, Any]] = Field(
        {}, repr=False, description='JSON, getSecret({platform: …}): {"x": {"value": "…", "origins": ["https://…"]}}'
    )
    lane_base_url: str | None = Field(None, description="OpenAI-compatible server for api.openai.com without a secret")
    lane_key: str = Field("", repr=False, description="the key for that server")
    lane_cache_ttl: int | None = Field(None, ge=0, description="seconds that it is asked to keep answers")
    steps: bool = Field(False, description="tests: each service notes its steps in its folder and dies where told")

    @property
    def installation(self) -> str:
        """Eight hex digits that name this installation's cgroups; from the data folder's real path."""
        return hashlib.sha256(str(self.data.resolve()).encode()).hexdigest()[:8]

    @property
    def preview_address(self) -> tuple[str, int]:
        """Where previews listen: beside the API, unless they are told otherwise."""
        port = self.preview_port
        if port is None:
            port = self.port + 1 if self.port else 0
        return self.preview_host or self.host, port

    @property
    def run(self) -> Path:
        return self.run_folder or self.data / "run"

    @property
    def node_socket(self) -> Path:
        return self.run / "node.sock"

    @property
    def gateway_socket(self) -> Path:
        return self.run / "gateway.sock"
