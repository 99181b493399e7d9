"""Owns the life of one sandbox on this machine: build, start, limit, connect, stop, remove.

Called by server, one verb of one sandbox at a time (a lock each). Invariant: every verb is idempotent and can be cut
off at any step by SIGKILL: the record is first to come and last to go, and every resource lies at a path or name that
follows from it.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import socket
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from kennel.domain.capacity import Limits, Machine, Promised, refusal
from kennel.domain.container import RUNTIME_MOUNT, Bind, ContainerSpec
from kennel.domain.instance_type import INSTANCE_TYPES, InstanceType
from kennel.node import (
    cgroup,
    disk,
    erofs,
    freezer,
    guest_runtime,
    guest_socket,
    interception,
    linux,
    loop,
    netns,
    own_thread,
    priority,
    rootfs,
)
from kennel.node.buckets.mounts import Buckets, Home
from kennel.node.freezer import Freezer
from kennel.node.gateway_link import GatewayLink
from kennel.node.locks import Locks
from kennel.node.pack import Difference, Upper
from kennel.node.record import Record, Records
from kennel.node.trust import Trust
from kennel.node.uppers import Lower, Stacks, Uppers, Work
from kennel.ports.runtime import Images, Runtime
from kennel.steps import step
from kennel.wire.errors import KennelError, error
from kennel.wire.node import Counters, Started

log = logging.getLogger("kennel.unit")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Grounds:
    """Where a node keeps things, and the name its cgroups share."""

    folder: Path
    group: str
    limits: Limits

    @property
    def sandboxes(self) -> Path:
        return self.folder / "sandboxes"

    @property
    def image_mounts(self) -> Path:
        return self.folder / "mounted"


class Units:
    """The sandboxes of this machine."""

    def __init__(self, grounds: Grounds, runtime: Runtime, images: Images, gateway_path: Path | None = None) -> None:
        grounds.sandboxes.mkdir(parents=True, exist_ok=True)
        self.grounds = grounds
        self.runtime = runtime
        self.images = images
        self.records = Records(grounds.sandboxes)
        self.tree = cgroup.find()
        self.uppers = Uppers(grounds.folder / "layers")
        self._runtime_folder = guest_runtime.ensure(grounds.folder / "guest")
        # Without a path there is no way out, and a sandbox has loopback alone.
        self.buckets = Buckets(self.tree, self._runtime_folder)
        learn = Trust(self._runtime_folder).learn
        self.gateway = None if gateway_path is None else GatewayLink(gateway_path, learn)
        self._locks = Locks()
        self._live: dict[str, int] = {}
        self._leaving: set[str] = set()
        self._packed: dict[str, tuple[int, int]] = {}
        """Names and bytes of the packs that go on."""
        for record in self.records.all():
            freezer.thaw(self.tree, self.group(record.sandbox))
            pid = runtime.pid(record.sandbox)
            if pid is not None:
                self._live[record.sandbox] = pid
                self.uppers.sweeps.begin(record.sandbox, self.places(record.sandbox).disk)
                self._open_way_again(record.sandbox)
                self.buckets.settle(self.home(record.sandbox))

    def places(self, sandbox: str) -> rootfs.Places:
        return rootfs.Places(self.grounds.sandboxes / sandbox)

    def group(self, sandbox: str) -> str:
        return f"{self.grounds.group}/{sandbox}"

    def home(self, sandbox: str) -> Home:
        """Where a sandbox's buckets are mounted, if it runs."""
        return Home(self.places(sandbox), self.group(sandbox), self._record(sandbox).slot, self._pid(sandbox))

    @contextmanager
    def inhabited(self, sandbox: str, *, now: bool = False) -> Iterator[tuple[Home, Callable[[], None]]]:
        """The home of a sandbox that runs, alone with it; who waits there calls what raises when it is to stop.

        With `now` whoever is at work there is to stop.
        """

        def cut() -> None:
            if sandbox in self._leaving:
                raise error("OPERATION_INTERRUPTED", "the sandbox was stopped meanwhile", admitted="yes")

        with self._alone(sandbox) if now else self._locks.of(sandbox):
            self._require_pid(sandbox)
            yield self.home(sandbox), cut

    def build(self, sandbox: str, instance_type: str, image_digest: str, isolation: str) -> None:
        """Writes the record and makes the disk."""
        size = INSTANCE_TYPES.get(instance_type)
        if size is None:
            raise error("VALIDATION_FAILED", f"no instance type {instance_type!r}", admitted="no")
        if isolation != "container":
            raise error("ISOLATION_UNAVAILABLE", f"isolation {isolation!r} is not available here", admitted="no")
        with self._locks.of(sandbox):
            # Not only known but built: a digest of the machine's packages is forgotten with them if nobody built it.
            self.images.lower(image_digest)
            known = self.records.get(sandbox)
            if known is None:
                self._require_room(size)
            self.records.add(sandbox, instance_type, image_digest, isolation)
            if not self.places(sandbox).image.exists():
                self._make_disk(sandbox, size)

    def _make_disk(self, sandbox: str, size: InstanceType) -> None:
        image = self.places(sandbox).image
        fresh = image.with_name(".disk.new")
        empty = disk.golden(self.grounds.folder / "golden", size.disk)
        with step("copy disk"):
            fresh.unlink(missing_ok=True)
            disk.copy_sparse(empty, fresh)
        with step("name disk"):
            os.rename(fresh, image)

    def start(self, sandbox: str, hostname: str, asked: Stacks, *, fresh: bool = False) -> Started:
        """Runs the sandbox's container with the guest as PID 1 (its CPU limit comes with `limit`), unless it runs.

        An upper that is here is mounted on its own stack; without one a disk is made on `asked`, if it may be `fresh`.
        """
        with self._locks.of(sandbox):
            record, places = self._record(sandbox), self.places(sandbox)
            if self._pid(sandbox) is not None and guest_socket.listens(places):
                return _started(False, False, self.uppers.recorded(places) or Stacks())
            self._clear(sandbox)
            self._require_room(INSTANCE_TYPES[record.instance_type])
            new_disk = not places.image.exists()
            if new_disk:
                if not fresh:
                    raise error("SNAPSHOT_MISSING", "the sandbox's disk is not on this machine any more", admitted="no")
                self.uppers.require(asked.named())
                self.uppers.room(asked, INSTANCE_TYPES[record.instance_type])
                self._make_disk(sandbox, INSTANCE_TYPES[record.instance_type])
            try:
                with disk.told():
                    self._live[sandbox], lies_on = self._run(record, hostname, asked)
                return _started(True, new_disk, lies_on)
            except OSError as failure:
                self._clear(sandbox)
                raise error(
                    "SANDBOX_START_FAILED", f"{failure.strerror or failure}: {failure.filename}", admitted="no"
                ) from failure
            except BaseException:
                self._clear(sandbox)
                raise

    def _run(self, record: Record, hostname: str, asked: Stacks) -> tuple[int, Stacks]:
        places = self.places(record.sandbox)
        disk.mount(places.image, places.disk)
        lower = self.images.lower(record.image_digest)
        planned = self.uppers.plan(places, lower.digest, asked)
        self.uppers.require(planned.named())
        size = INSTANCE_TYPES[record.instance_type]
        disk.reserve(places.disk, self.uppers.room(planned, size), size.disk)
        disk.lay_out(places.disk, record.id_base)
        # The sandbox's root must walk through its folder, nobody else on this machine may.
        with step("give folder"):
            os.chown(places.folder, record.id_base, record.id_base)
            places.folder.chmod(0o700)
        root = lower.root if lower.root.is_dir() else erofs.mounted(lower.root, self.grounds.image_mounts)
        lies_on = self.uppers.mount(places, record, Lower(root, lower.usr, lower.digest), planned)
        self._hold(places, lies_on.named())
        rootfs.require_folders(places.root)
        netns.create(places.netns)
        self._open_way(record.sandbox)
        binds = [Bind(str(places.workspace), "/workspace"), Bind(str(self._runtime_folder), RUNTIME_MOUNT, True)]
        if lower.usr is not None:
            binds.insert(0, Bind(str(places.usr), "/usr"))
        with guest_socket.listen(places) as listener:
            pid = self.runtime.run(self._spec(record, hostname, tuple(binds)), listener.fileno())
        priority.favour(pid)
        self.uppers.sweeps.begin(record.sandbox, places.disk)
        return pid, lies_on

    def _open_way(self, sandbox: str) -> None:
        """Has the sandbox's traffic caught and the gateway serve it; while that is away nothing passes."""
        if self.gateway is not None:
            with step("lay interception"):
                interception.lay(self.places(sandbox).netns)
            with step("hand listeners over"):
                self.gateway.add(sandbox, self.places(sandbox).netns)

    def _open_way_again(self, sandbox: str) -> None:
        """As `_open_way`, for one that node found running; one damaged namespace keeps nobody else from node."""
        try:
            self._open_way(sandbox)
        except OSError:
            log.exception("%s has no way out until it starts again", sandbox)

    @staticmethod
    def _hold(places: rootfs.Places, layers: list[str]) -> None:
        """Keeps beside the disk which layers its uppers lie on, to be read while it is not mounted."""
        text = json.dumps(layers)
        if (places.held.read_text() if places.held.exists() else "[]") != text:
            with step("hold layers"):
                fresh = places.held.with_suffix(".new")
                fresh.write_text(text)
                os.replace(fresh, places.held)

    def held_layers(self) -> set[str]:
        """Every layer that an upper on this machine lies on."""
        held = (self.places(record.sandbox).held for record in self.records.all())
        return {layer for path in held if path.exists() for layer in json.loads(path.read_text())}

    def pack(self, sandbox: str, work: Work[T], *, live: bool) -> T:
        """What `work` makes of the sandbox's uppers.

        A live pack freezes the sandbox for a moment. A stop that comes meanwhile ends the pack (OPERATION_INTERRUPTED).
        """
        with self._locks.of(sandbox):
            record, places = self._record(sandbox), self.places(sandbox)
            running = self._pid(sandbox) is not None
            if running != live:
                raise error("RESOURCE_BUSY", f"the sandbox {'runs' if running else 'does not run'}", admitted="no")

            def look(names: int, count: int) -> None:
                self._packed[sandbox] = (names, count)
                if sandbox in self._leaving:
                    raise error("OPERATION_INTERRUPTED", "the sandbox was stopped during the snapshot")

            stopper = Freezer(self.tree, self.group(sandbox)) if live else None
            try:
                with self.uppers.opened(places, running=running):
                    return work(places, record, stopper, look)
            finally:
                self._packed.pop(sandbox, None)

    def compare(self, old: list[str], new: list[str], sandbox: str | None) -> Difference:
        """What `new`, or the sandbox's workspace as it is now, has otherwise than `old`."""
        packing = self.uppers.packing
        if sandbox is None or not self.places(sandbox).image.exists():
            self.uppers.require([*old, *new])
            return packing.compare(old, new)
        with self._locks.of(sandbox):
            record, places = self._record(sandbox), self.places(sandbox)
            with self.uppers.opened(places, running=self._pid(sandbox) is not None):
                known = self.uppers.recorded(places)
                if known is None:
                    self.uppers.require([*old, *new])
                    return packing.compare(old, new)
                self.uppers.require([*old, *known.workspace])
                upper = Upper(places.disk / "workspace" / "upper", record.id_base, known.workspace)
                return packing.compare(old, known.workspace, new_upper=upper)

    def drop_disk(self, sandbox: str) -> None:
        """Deletes the disk of a sandbox that does not run; one that is gone is no error."""
        with self._locks.of(sandbox):
            self._record(sandbox)
            if self._pid(sandbox) is not None:
                raise error("RESOURCE_BUSY", "the sandbox runs", admitted="no")
            self._clear(sandbox)
            places = self.places(sandbox)
            with step("drop disk"):
                places.image.unlink(missing_ok=True)
            with step("let layers go"):
                places.held.unlink(missing_ok=True)

    def _spec(self, record: Record, hostname: str, binds: tuple[Bind, ...]) -> ContainerSpec:
        size, places = INSTANCE_TYPES[record.instance_type], self.places(record.sandbox)
        return ContainerSpec(
            container=record.sandbox,
            bundle=str(places.bundle),
            rootfs=str(places.root),
            hostname=hostname,
            id_base=record.id_base,
            netns=str(places.netns),
            cgroup="/" + self.group(record.sandbox),
            memory=size.memory,
            pids=size.pids,
            shm=size.memory // 4,
            binds=binds,
            args=guest_runtime.command(),
            given=Trust.variables() if self.gateway is not None else (),
        )

    def limit(self, sandbox: str, hostname: str | None) -> None:
        """Puts the CPU limit on; a pet-in-waiting also gets the host name of the pet it became."""
        record = self._record(sandbox)
        cgroup.limit_cpu(self.tree, self.group(sandbox), INSTANCE_TYPES[record.instance_type].milli_cpu)
        if hostname is not None:
            _rename_host(self._require_pid(sandbox), hostname)

    def connect(self, sandbox: str) -> tuple[socket.socket, int]:
        """A new connection to the guest, and a pidfd that becomes readable when its PID 1 is gone."""
        pid = self._require_pid(sandbox)
        pidfd = os.pidfd_open(pid)
        try:
            connection = guest_socket.connect(self.places(sandbox))
        except OSError as failure:
            os.close(pidfd)
            raise error(
                "SANDBOX_LOST", f"the guest of {sandbox} does not listen: {failure}", admitted="no"
            ) from failure
        return connection, pidfd

    def stop(self, sandbox: str) -> None:
        """Kills the container; what it wrote stays on its disk."""
        with self._alone(sandbox):
            self._clear(sandbox)

    @contextmanager
    def _alone(self, sandbox: str) -> Iterator[None]:
        """The sandbox's lock, for one that must not wait for a pack to end."""
        self._leaving.add(sandbox)
        try:
            with self._locks.of(sandbox):
                self._leaving.discard(sandbox)
                yield
        finally:
            self._leaving.discard(sandbox)

    def remove(self, sandbox: str) -> None:
        """Leaves nothing of the sandbox on this machine."""
        with self._alone(sandbox):
            self._clear(sandbox)
            places = self.places(sandbox)
            # The record is the last to go: a removal cut short is found again by it.
            for child in sorted(places.folder.glob("*"), key=lambda path: path.name == "record.json"):
                with step("delete", child.name):
                    _delete(child)
            if places.folder.exists():
                with step("delete folder"):
                    _delete(places.folder)
            self.records.forget(sandbox)

    def shut_down(self) -> None:
        """Stops every sandbox and lets go of everything but what lies on disk."""
        for unit in {*self.runtime.list(), *(record.sandbox for record in self.records.all())}:
            try:
                self.stop(unit)
            except (OSError, KennelError):
                log.exception("%s was not taken down", unit)
        self.uppers.close()
        erofs.release(self.grounds.image_mounts)
        cgroup.remove(self.tree, self.grounds.group)
        cgroup.remove_if_empty(self.tree, self.grounds.group.split("/")[0])

    def usage(self, sandbox: str) -> Counters:
        """What the sandbox uses now; zeros for one that sleeps, but for its disk."""
        places, group = self.places(sandbox), self.group(sandbox)
        record = self._record(sandbox)
        used = places.image.stat().st_blocks * 512 if places.image.exists() else 0
        names, count = self._packed.get(sandbox, (0, 0))
        return Counters(
            cpu_seconds=cgroup.cpu_seconds(self.tree, group),
            memory=cgroup.memory(self.tree, group),
            pids=cgroup.pids(self.tree, group),
            oom_kills=cgroup.oom_kills(self.tree, group),
            disk_used=used,
            disk_size=INSTANCE_TYPES[record.instance_type].disk,
            packed_names=names,
            packed_bytes=count,
        )

    def promised(self) -> Promised:
        """What the sandboxes of this machine were promised: CPU and memory while they run, disk for life."""
        cpu = memory = total_disk = 0
        instances: defaultdict[str, int] = defaultdict(int)
        for record in self.records.all():
            size = INSTANCE_TYPES[record.instance_type]
            total_disk += size.disk
            if record.sandbox in self._live:
                cpu, memory = cpu + size.milli_cpu, memory + size.memory
                instances[size.name] += 1
        return Promised(cpu, memory, total_disk, dict(instances))

    def machine(self) -> Machine:
        """The machine's size and what is free of it now."""
        fields = dict(line.split()[:2] for line in Path("/proc/meminfo").read_text().splitlines())
        space = os.statvfs(self.grounds.folder)
        return Machine(
            milli_cpu=(os.cpu_count() or 1) * 1000,
            memory=int(fields["MemTotal:"]) * 1024,
            memory_free=int(fields["MemAvailable:"]) * 1024,
            disk=space.f_blocks * space.f_frsize,
            disk_free=space.f_bavail * space.f_frsize,
        )

    def _require_room(self, size: InstanceType) -> None:
        why = refusal(size, self.machine(), self.promised(), self.grounds.limits)
        if why is not None:
            raise why

    def _record(self, sandbox: str) -> Record:
        record = self.records.get(sandbox)
        if record is None:
            raise error("SANDBOX_NOT_FOUND", f"sandbox {sandbox} is not on this machine", admitted="no")
        return record

    def _pid(self, sandbox: str) -> int | None:
        pid = self._live.get(sandbox)
        if pid is not None and self.runtime.pid(sandbox) != pid:
            del self._live[sandbox]
            pid = None
        return pid

    def _require_pid(self, sandbox: str) -> int:
        pid = self._pid(sandbox)
        if pid is None:
            raise error("SANDBOX_LOST", f"sandbox {sandbox} is not running", admitted="no")
        return pid

    def _clear(self, sandbox: str) -> None:
        """Takes down whatever runs or is mounted for a sandbox; nothing of it need exist."""
        self._live.pop(sandbox, None)
        with step("thaw"):
            freezer.thaw(self.tree, self.group(sandbox))
        # Before the container: a process that waits for a bucket's store cannot die while s3fs lives.
        if (record := self.records.get(sandbox)) is not None:
            self.buckets.end(Home(self.places(sandbox), self.group(sandbox), record.slot))
        self.runtime.delete(sandbox)
        cgroup.remove(self.tree, self.group(sandbox))
        places = self.places(sandbox)
        self.uppers.sweeps.end(sandbox)
        rootfs.take_down(places)
        if self.gateway is not None:
            with step("take listeners back"):
                self.gateway.remove(sandbox)
        netns.remove(places.netns)
        with step("unlink guest socket"):
            places.socket.unlink(missing_ok=True)
        # The container's mount namespace lets go of the disk a little after its last process is gone, another program's
        # copy of the mount table when it pleases; a mount in that time takes the same device (loop.attach).
        if places.image.exists() and not loop.wait_released(str(places.image)):
            log.warning("the disk of %s is still held by %s", sandbox, loop.holder(str(places.image)))


def _rename_host(pid: int, hostname: str) -> None:
    def work() -> None:
        linux.enter(f"/proc/{pid}/ns/uts", linux.CLONE_NEWUTS)
        with step("rename host"):
            linux.sethostname(hostname)

    own_thread.run(work, "uts")


def _started(ran: bool, new_disk: bool, lies_on: Stacks) -> Started:
    root, usr = (None if each is None else list(each) for each in (lies_on.root, lies_on.usr))
    return Started(ran, new_disk, list(lies_on.workspace), root, usr, lies_on.image)


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        # Only node's own folders are here (mount points and the bundle): the disk was an image, now deleted.
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
