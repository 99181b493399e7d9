"""Owns the wiring of node: the OCI runtime that works here, the images, the sandboxes of this machine, the socket."""

from __future__ import annotations

import ctypes
import signal
from dataclasses import asdict
from typing import Any

from kennel.adapters.images.store import ImageStore
from kennel.adapters.oci.runtime import OciRuntime
from kennel.domain.capacity import Limits
from kennel.domain.container import RuntimeFinding
from kennel.node import folder
from kennel.node.server import Server
from kennel.node.unit import Grounds, Units
from kennel.ports.runtime import Runtime
from kennel.settings import CONTROL_UID, Settings
from kennel.wire.errors import error


def run(settings: Settings) -> None:
    """The privileged daemon; ends on SIGTERM after it has taken everything down."""

    libc = ctypes.CDLL(None)
    libc.prctl(36, 1, 0, 0, 0)  # subreaper: a container's PID 1 is reaped here, whatever the machine's init does
    libc.prctl(1, signal.SIGTERM, 0, 0, 0)  # ends in order when the supervisor dies
    units, facts = build_units(settings)
    if units.gateway is not None:
        units.gateway.start()
    signal.signal(signal.SIGTERM, _leave)
    signal.signal(signal.SIGINT, _leave)
    server = Server(units, settings.node_socket, frozenset({0, CONTROL_UID}), facts)
    try:
        server.serve(CONTROL_UID)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        units.shut_down()
        if units.gateway is not None:
            units.gateway.close()
        folder.release(settings.data / "node")


def _leave(*_: object) -> None:
    raise SystemExit(0)


def build_units(settings: Settings) -> tuple[Units, dict[str, Any]]:
    """The sandboxes of this machine over the runtime that works here, and what node tells of itself."""

    grounds = Grounds(settings.data / "node", f"kennel/{settings.installation}", limits(settings))
    folder.hold(grounds.folder)
    runtime, findings = choose_runtime(settings)
    images = ImageStore(grounds.folder / "images")
    images.host_image().prepare()
    facts = {"runtime": runtime.name, "runtimes": [asdict(finding) for finding in findings], "isolation": ["container"]}
    return Units(grounds, runtime, images, settings.gateway_socket if settings.egress else None), facts


def choose_runtime(settings: Settings) -> tuple[Runtime, list[RuntimeFinding]]:
    """The first OCI runtime that passes its probe; raises NODE_UNAVAILABLE with what was found."""

    names = ("runc", "crun") if settings.runtime == "auto" else (settings.runtime,)
    candidates = [OciRuntime(name, settings.data / "node" / name) for name in names]
    findings = [candidate.probe() for candidate in candidates]
    for candidate, finding in zip(candidates, findings, strict=True):
        if finding.usable:
            return candidate, findings
    told = "; ".join(f"{finding.name}: {finding.reason}" for finding in findings)
    raise error("NODE_UNAVAILABLE", f"no OCI runtime works here ({told})")


def limits(settings: Settings) -> Limits:
    """The capacity rule's numbers."""
    return Limits(
        cpu=settings.overcommit_cpu,
        memory=settings.overcommit_memory,
        disk=settings.overcommit_disk,
        free_fraction=settings.floor_fraction,
        free_disk=settings.floor_disk,
        max_instances=settings.max_instances,
    )


def sweep(settings: Settings) -> None:
    """Takes down everything of an installation whose services are gone; what lies on disk stays."""

    units, _ = build_units(settings)
    units.shut_down()
    folder.release(settings.data / "node")
