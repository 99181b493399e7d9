"""Owns the wiring of control: the log, the services over it, the API, and the order in which they start and end."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import uvicorn
import uvloop

from kennel.adapters.blobs.store import ObjectBlobs, open_blobs
from kennel.adapters.gateway_client.link import GatewayClient
from kennel.adapters.model.absent import AbsentModel
from kennel.adapters.node_client.link import NodeClient
from kennel.adapters.sql.event_log import SqlEventLog, open_log
from kennel.adapters.vault.sealer import seal_secret
from kennel.api import event_stream
from kennel.api.app import create_app
from kennel.api.services import ApiSettings, Services
from kennel.assemble.closed_memory import close_memory
from kennel.control.backups import Backups
from kennel.control.catalogue import Catalogue
from kennel.control.console_sessions import ConsoleSessions
from kennel.control.egress import Egress
from kennel.control.files import Files
from kennel.control.fleet import Fleet, Pet
from kennel.control.git import Git
from kennel.control.keys import Keys
from kennel.control.observation import Observation
from kennel.control.points import Points
from kennel.control.pool import Pool
from kennel.control.previews import Previews
from kennel.control.projection import Projections
from kennel.control.projects import Projects
from kennel.control.reconciler import Reconciler
from kennel.control.recorder import Recorder
from kennel.control.retention import Retention
from kennel.control.rooms import Rooms
from kennel.control.running import Running
from kennel.control.sandboxes import Sandboxes
from kennel.control.snapshots import Snapshots, book
from kennel.control.streams import Streams
from kennel.control.turns import TurnOptions
from kennel.control.upkeep import Upkeep
from kennel.control.workspaces import Workspaces
from kennel.domain.preview import Base
from kennel.domain.principal import SYSTEM
from kennel.relay.link import open_guest
from kennel.settings import Settings

if TYPE_CHECKING:
    from kennel.adapters.model.chat import ChatModel


MAX_MESSAGE = 4 * 1024 * 1024
"""Bytes of one WebSocket message from a client; one of each connection may wait in memory."""


@dataclass(slots=True)
class Loops:
    """What runs beside the API, and has an end."""

    log: SqlEventLog
    projections: Projections
    fleet: Fleet
    pool: Pool
    recorder: Recorder
    reconciler: Reconciler
    rooms: Rooms
    model: ChatModel | AbsentModel
    projects: Callable[[], Awaitable[Sequence[str]]]
    running: Running
    egress: Egress
    retention: Retention
    upkeep: Upkeep
    points: Points

    def start(self, settings: Settings) -> None:
        self.recorder.start()
        if settings.egress:
            self.egress.start()
            self.retention.start()
        if settings.node:
            self.reconciler.start()
            self.pool.start()
            self.upkeep.start()
        self.rooms.start(self.projects)

    async def close(self) -> None:
        """In this order: nothing new starts, the pets fall asleep, what is queued is written."""
        await self.running.close()
        if self.egress.previews is not None:
            await self.egress.previews.close()
        await self.rooms.close()
        await self.model.close()
        await self.upkeep.close()
        await self.reconciler.close()
        await self.pool.close()
        await self.reconciler.put_all_to_sleep()
        await self.fleet.close()
        await self.points.close()
        await self.retention.close()
        await self.egress.close()
        await self.recorder.close()
        await self.projections.save()
        await self.log.close()


def run(settings: Settings) -> None:
    """Serves the API; ends on SIGTERM after the pets are asleep."""
    close_memory()
    uvloop.run(_run(settings))


async def _run(settings: Settings) -> None:
    log = await open_log(settings.database_url or f"sqlite:///{settings.data}/kennel.db")
    services, loops = await _wire(settings, log)
    loops.start(settings)
    try:
        await _serve(settings, services)
    finally:
        await loops.close()


async def _wire(settings: Settings, log: SqlEventLog) -> tuple[Services, Loops]:
    node = NodeClient(str(settings.node_socket) if settings.node else None)
    projections, projects = Projections(log), Projects(log)
    catalogue, blobs = Catalogue(log, projections), _blobs(settings)
    fleet = _fleet(settings, node, blobs, projections)
    pool, recorder = Pool(fleet, _waiting(settings)), Recorder(log)
    points = Points(fleet, recorder, blobs, partial(book, log))
    sandboxes = Sandboxes(catalogue, projections, fleet, pool, recorder, points.before)
    known = partial(_names, projects)
    running = Running(sandboxes, recorder, log, node)
    previews = partial(Previews, running.ports, sandboxes, catalogue, fleet)
    egress = _egress(settings, log, fleet, projections, known, previews)
    node.on_loss = (reconciler := Reconciler(known, catalogue, fleet, pool, sandboxes)).hurry
    model = await asyncio.to_thread(_model, settings)
    rooms = Rooms(log, sandboxes, model, _turns(settings), timeout_ms=round(settings.room_command_timeout * 1000))
    snapshots = Snapshots(sandboxes, catalogue, projections, fleet, log, blobs)
    services = Services(
        sandboxes=sandboxes,
        keys=await _keys(settings, log, projects),
        projects=projects,
        rooms=rooms,
        streams=Streams(log),
        observation=Observation(catalogue, projections),
        images=node.list_images,
        usage=node.usage,
        node_facts=node.hello,
        healthy=lambda: reconciler.settled or not settings.node,
        files=Files(sandboxes),
        git=Git(sandboxes),
        running=running,
        egress=egress,
        snapshots=snapshots,
        sessions=ConsoleSessions(log),
        backups=Backups(sandboxes, snapshots, projections, log, blobs),
    )
    upkeep = Upkeep(known, catalogue, fleet, log, blobs, settings.checkpoint_every, settings.collect_every)
    keep = Retention(log, known, settings.egress_retention)
    return services, Loops(
        log, projections, fleet, pool, recorder, reconciler, rooms, model, known, running, egress, keep, upkeep, points
    )


def _waiting(settings: Settings) -> int:
    """How many pets-in-waiting: a limited type must not have its places taken by containers that nobody asked for."""
    return settings.warm_pool if settings.node and "basic" not in settings.max_instances else 0


async def _keys(settings: Settings, log: SqlEventLog, projects: Projects) -> Keys:
    keys = Keys(log, projects)
    if settings.admin_key_hash is not None:
        await keys.ensure_admin(settings.admin_key_hash)
    return keys


def _fleet(settings: Settings, node: NodeClient, blobs: ObjectBlobs, projections: Projections) -> Fleet:
    workspaces = Workspaces(node, blobs, projections, settings.snapshot_ttl, settings.stack_depth)
    return Fleet(node, open_guest, projections, workspaces)


def _blobs(settings: Settings) -> ObjectBlobs:
    """The store of layers: a folder of control's own, or what the setting names."""
    return open_blobs(settings.blobs_url or settings.data / "blobs", settings.blobs_options)


async def _names(projects: Projects) -> list[str]:
    return [view.name for view in await projects.list(SYSTEM)]


def _egress(
    settings: Settings,
    log: SqlEventLog,
    fleet: Fleet,
    projections: Projections,
    known: Callable[[], Awaitable[list[str]]],
    previews: Callable[..., Previews],
) -> Egress:
    """The way out, told by the fleet whose sandbox is whose, and by previews who may come in."""
    gateway = GatewayClient(str(settings.gateway_socket))
    egress = Egress(log, gateway, seal_secret, settings.egress_default, known)

    if settings.egress:
        egress.previews = previews(gateway, known)

    async def wake(pet: Pet) -> None:
        await egress.bind(pet.sandbox, pet.project, pet.path)

    async def planted(pet: Pet) -> dict[str, str]:
        state = await projections.get(pet.project, pet.path)
        return await egress.connections.planted(pet.project, state.env, state.unset)

    if settings.egress:
        fleet.planted = planted
    fleet.on_wake, fleet.on_rest = wake, lambda pet: egress.unbind(pet.sandbox)
    return egress


def _model(settings: Settings) -> ChatModel | AbsentModel:
    """The rooms' model; its client takes a second to import, so only when there is one."""
    if not settings.ai_base_url or not settings.ai_model:
        return AbsentModel()
    from kennel.adapters.model.chat import ChatModel, ChatOptions

    return ChatModel(
        ChatOptions(
            base_url=settings.ai_base_url,
            model=settings.ai_model,
            key=settings.ai_key,
            idle_seconds=settings.ai_idle,
            seconds=settings.ai_timeout,
            tokens=settings.ai_tokens,
            characters=settings.ai_characters,
        )
    )


def _turns(settings: Settings) -> TurnOptions:
    return TurnOptions(
        history=settings.room_history,
        context=settings.room_context,
        max_rounds=settings.room_rounds,
        turns_per_minute=settings.room_turns,
        commands_per_minute=settings.room_commands,
        seconds=settings.room_turn_timeout,
    )


async def _serve(settings: Settings, services: Services) -> None:
    hosts = frozenset(name.strip() for name in settings.allowed_hosts.split(",") if name.strip())
    base = Base.parse(settings.preview_base) if settings.preview_base and settings.egress else None
    app = create_app(services, ApiSettings(open=settings.open, allowed_hosts=hosts, preview_base=base))
    config = uvicorn.Config(
        app,
        http="httptools",
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_graceful_shutdown=5,
        ws="websockets-sansio",
        ws_max_size=MAX_MESSAGE,
        ws_per_message_deflate=False,
        ws_ping_timeout=None,  # a reader that is slow, or stopped by its pager, is not gone
        backlog=1024,
    )
    server = uvicorn.Server(config)
    loop = asyncio.get_running_loop()

    def leave() -> None:
        server.should_exit = True
        event_stream.end_all()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, leave)
    with socket.socket(fileno=settings.listener) as listener:
        # Not `serve`: it raises the signal again when it is done, and the pets would not be put to sleep.
        await server._serve(sockets=[listener])
