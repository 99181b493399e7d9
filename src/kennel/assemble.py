"""Owns the wiring: settings in, one running service out; the only file that knows every adapter.

Run as `python -m kennel.assemble node|control|gateway` by the supervisor. Invariant: nothing is decided here; what
is imported depends on the role: node never loads a web framework, gateway never a database.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import signal
import socket
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from kennel.domain.capacity import Limits
from kennel.domain.container import RuntimeFinding
from kennel.domain.principal import SYSTEM
from kennel.settings import CONTROL_UID, Settings
from kennel.wire.errors import error

if TYPE_CHECKING:
    from kennel.api.services import Services
    from kennel.node.unit import Units
    from kennel.ports.runtime import Runtime

log = logging.getLogger("kennel")


def main() -> None:
    settings = Settings()  # type: ignore[call-arg]  # every field has a default or a variable
    logging.basicConfig(
        level=settings.log_level, format="%(asctime)s %(levelname)s %(name)s %(message)s", stream=sys.stderr
    )
    {"node": run_node, "control": run_control, "gateway": run_gateway}[sys.argv[1]](settings)


def run_node(settings: Settings) -> None:
    """The privileged daemon; ends on SIGTERM after it has taken everything down."""
    from kennel.node import folder
    from kennel.node.server import Server

    libc = ctypes.CDLL(None)
    libc.prctl(36, 1, 0, 0, 0)  # subreaper: a container's PID 1 is reaped here, whatever the machine's init does
    libc.prctl(1, signal.SIGTERM, 0, 0, 0)  # ends in order when the supervisor dies
    units, facts = build_units(settings)
    signal.signal(signal.SIGTERM, _leave)
    signal.signal(signal.SIGINT, _leave)
    server = Server(units, settings.node_socket, frozenset({0, CONTROL_UID}), facts)
    try:
        server.serve(CONTROL_UID)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        units.shut_down()
        folder.release(settings.data / "node")


def _leave(*_: object) -> None:
    raise SystemExit(0)


def build_units(settings: Settings) -> tuple[Units, dict[str, Any]]:
    """The sandboxes of this machine over the runtime that works here, and what node tells of itself."""
    from kennel.adapters.images.store import ImageStore
    from kennel.node import folder
    from kennel.node.unit import Grounds, Units

    grounds = Grounds(settings.data / "node", f"kennel/{settings.installation}", limits(settings))
    folder.hold(grounds.folder)
    runtime, findings = choose_runtime(settings)
    images = ImageStore(grounds.folder / "images")
    images.host_image().prepare()
    facts = {"runtime": runtime.name, "runtimes": [asdict(finding) for finding in findings], "isolation": ["container"]}
    return Units(grounds, runtime, images), facts


def choose_runtime(settings: Settings) -> tuple[Runtime, list[RuntimeFinding]]:
    """The first OCI runtime that passes its probe; raises NODE_UNAVAILABLE with what was found."""
    from kennel.adapters.oci.runtime import OciRuntime

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
    from kennel.node import folder

    units, _ = build_units(settings)
    units.shut_down()
    folder.release(settings.data / "node")


def run_control(settings: Settings) -> None:
    """The API over its services; ends on SIGTERM after the pets are asleep."""
    import uvloop

    uvloop.run(_control(settings))


async def _control(settings: Settings) -> None:
    from kennel.adapters.node_client.link import NodeClient
    from kennel.adapters.sql.event_log import open_log
    from kennel.api.services import Services
    from kennel.control import (
        catalogue,
        fleet,
        keys,
        pool,
        projection,
        projects,
        reconciler,
        recorder,
        rooms,
        sandboxes,
        streams,
    )
    from kennel.relay.link import open_guest

    log = await open_log(settings.database_url or f"sqlite:///{settings.data}/kennel.db")
    node = NodeClient(str(settings.node_socket))
    projections = projection.Projections(log)
    tenants = projects.Projects(log)
    access = keys.Keys(log, tenants)
    if settings.admin_key_hash is not None:
        await access.ensure_admin(settings.admin_key_hash)
    names = catalogue.Catalogue(log, projections)
    pets = fleet.Fleet(node, open_guest, projections)
    waiting = pool.Pool(pets, settings.warm_pool if settings.node and "basic" not in settings.max_instances else 0)
    facts = recorder.Recorder(log)
    lives = sandboxes.Sandboxes(names, projections, pets, waiting, facts)

    async def known() -> list[str]:
        return [view.name for view in await tenants.list(SYSTEM)]

    keeper = reconciler.Reconciler(known, names, pets, waiting, lives)
    services = Services(
        sandboxes=lives,
        keys=access,
        projects=tenants,
        rooms=rooms.Rooms(log, lives),
        streams=streams.Streams(log),
        images=node.list_images,
        healthy=lambda: keeper.settled or not settings.node,
    )
    facts.start()
    if settings.node:
        keeper.start()
        waiting.start()
    try:
        await _serve(settings, services)
    finally:
        await keeper.close()
        await waiting.close()
        await keeper.put_all_to_sleep()
        await pets.close()
        await facts.close()
        await projections.save()
        await log.close()


async def _serve(settings: Settings, services: Services) -> None:
    import uvicorn

    from kennel.api.app import create_app
    from kennel.api.services import ApiSettings

    hosts = frozenset(name.strip() for name in settings.allowed_hosts.split(",") if name.strip())
    app = create_app(services, ApiSettings(open=settings.open, allowed_hosts=hosts))
    config = uvicorn.Config(
        app,
        http="httptools",
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_graceful_shutdown=5,
        backlog=1024,
    )
    server = uvicorn.Server(config)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, setattr, server, "should_exit", True)
    with socket.socket(fileno=settings.listener) as listener:
        # Not `serve`: it raises the signal again when it is done, and the pets would not be put to sleep.
        await server._serve(sockets=[listener])


def run_gateway(_: Settings) -> None:
    """The gateway: until policy exists it refuses everything."""
    from kennel.gateway.refusal import serve

    serve()


if __name__ == "__main__":
    main()
