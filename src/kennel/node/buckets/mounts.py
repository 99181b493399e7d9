"""Owns the buckets that are mounted in sandboxes: one s3fs each, its control group, its record, its scratch folder.

Called by bucket_verbs and unit. Invariants: a sandbox sees a bucket only once s3fs answered for it; no credential is
written anywhere; nothing here waits longer than PATIENCE for a store; s3fs holds the only descriptor of its mount, so
killing it ends whatever waits there. What is of one sandbox is done by one thread at a time (unit's lock).
"""

from __future__ import annotations

import array
import contextlib
import errno
import fcntl
import json
import logging
import os
import select
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

import kennel
from kennel.domain.bucket import MOST, Bucket, Credentials
from kennel.domain.container import ID_RANGE, INTERPRETER, RUNTIME_MOUNT
from kennel.node import cgroup
from kennel.node.buckets.program import HELPER, PROGRAM
from kennel.node.record import ID_FLOOR, MAX_SLOTS
from kennel.node.rootfs import Places
from kennel.node.trust import FOLDER
from kennel.steps import step
from kennel.wire.errors import KennelError, error

log = logging.getLogger("kennel.buckets")

PATIENCE = 20.0
"""Seconds for a store to answer, and for s3fs to end after its mount is gone."""
USERS = ID_FLOOR + MAX_SLOTS * ID_RANGE
"""The first of the users that s3fs runs as, one a sandbox: no sandbox can become one of them."""
_RESOLVER = "198.18.0.1"
_MOST_SAID = 64 * 1024
_CONTROLLERS = ("memory", "pids", "cpu", "cpuacct")
"""Not the freezer: who waits for s3fs can only be frozen while that goes on."""

# As in packer: the process needs a few files and starts in half the time.
_BOOT = """
import sys, types
for name, path in (("kennel", sys.argv[1]), ("kennel.node", sys.argv[1] + "/node")):
    module = sys.modules[name] = types.ModuleType(name)
    module.__path__ = [path]
from kennel.node.buckets.{} import main
main()
"""


class Mounted(msgspec.Struct, rename="camel"):
    """A bucket's record, on disk from before anything of it is there until nothing is."""

    number: int
    bucket: Bucket
    since: str
    device: str | None = None
    attached: bool = False
    made: bool = False


@dataclass(frozen=True, slots=True)
class Home:
    """The sandbox that buckets are mounted in; `pid` of its PID 1, or None when it does not run."""

    places: Places
    group: str
    slot: int
    pid: int | None = None

    def folder(self, number: int) -> Path:
        return self.places.buckets / str(number)

    def scratch(self, number: int) -> Path:
        return self.places.disk / "buckets" / str(number)


class Buckets:
    """The service; `runtime` is the guest's folder, `cut` raises when the sandbox is about to stop."""

    def __init__(self, tree: cgroup.Tree, runtime: Path) -> None:
        self._tree, self._runtime = tree, runtime

    @staticmethod
    def lacking() -> str | None:
        """The program that mounts need and that is not here."""
        return next((path for path in (PROGRAM, HELPER, "/dev/fuse") if not os.path.exists(path)), None)

    def records(self, home: Home) -> list[Mounted]:
        """What is mounted, or was begun; by number."""
        found = []
        for path in sorted(home.places.buckets.glob("*/record.json")):
            with contextlib.suppress(msgspec.DecodeError):
                found.append(msgspec.json.decode(path.read_bytes(), type=Mounted))
        return found

    def alive(self, home: Home, mounted: Mounted) -> bool:
        """Whether its s3fs runs."""
        return any((folder / "cgroup.procs").read_text() for folder in self._tree.folders(_group(home, mounted.number)))

    def mount(self, home: Home, bucket: Bucket, given: Credentials | None, cut: Callable[[], None]) -> Mounted:
        """Mounts it; INVALID_MOUNT_CONFIG, RESOURCE_BUSY, BUCKET_MOUNT_ERROR with what s3fs said."""
        known = self.records(home)
        for other in known:
            if other.bucket.meets(bucket.mount_path):
                where = other.bucket.mount_path
                raise error("INVALID_MOUNT_CONFIG", f"a bucket is mounted at {where}", admitted="no")
        free = next((number for number in range(MOST) if number not in {each.number for each in known}), None)
        if free is None:
            raise error("RESOURCE_BUSY", f"{MOST} buckets are mounted in this sandbox", admitted="no")
        mounted = Mounted(free, bucket, datetime.now(UTC).isoformat(timespec="milliseconds"))
        try:
            self._prepare(home, mounted)
            self._attach(home, mounted, given, _Deadline(cut))
        except OSError as failure:
            self._discard(home, mounted.number)
            why = f"the bucket was not mounted: {failure.strerror or failure}"
            raise error("BUCKET_MOUNT_ERROR", why, admitted="no") from failure
        except BaseException:
            self._discard(home, mounted.number)
            raise
        return mounted

    def unmount(self, home: Home, path: str, *, force: bool) -> None:
        """Takes one away; BUCKET_UNMOUNT_ERROR while it is in use, unless it is forced."""
        mounted = next((each for each in self.records(home) if each.bucket.mount_path == path), None)
        if mounted is None:
            raise error("INVALID_MOUNT_CONFIG", f"no bucket is mounted at {path}", admitted="no")
        self._detach(home, mounted, force=force)
        # Its files were closed, so all of them are in the store: it only has to notice that the mount is gone.
        deadline = time.monotonic() + PATIENCE
        while not force and self.alive(home, mounted) and time.monotonic() < deadline:
            time.sleep(0.005)
        self._discard(home, mounted.number)

    def end(self, home: Home) -> None:
        """Ends every s3fs of a sandbox whose container goes, and forgets its mounts, which go with it."""
        if home.places.buckets.exists():
            for number in range(MOST):
                if home.folder(number).exists():
                    self._discard(home, number)
            with step("delete buckets"):
                shutil.rmtree(home.places.buckets)

    def clear(self, home: Home) -> None:
        """Takes every mount out of a sandbox that goes on running, whatever uses it."""
        for mounted in self.records(home):
            self._drop(home, mounted)

    def settle(self, home: Home) -> None:
        """After node's own restart: keeps what is mounted whole, takes away the rest, folders without a record too."""
        if not home.places.buckets.exists():
            return
        known = {mounted.number: mounted for mounted in self.records(home)}
        for number in range(MOST):
            mounted = known.get(number)
            try:
                if mounted is None:
                    self._discard(home, number)
                elif not (mounted.attached and self.alive(home, mounted)):
                    self._drop(home, mounted)
            except (KennelError, OSError):
                log.exception("what was left of a bucket stays until its sandbox stops")

    def _drop(self, home: Home, mounted: Mounted) -> None:
        if mounted.device is not None:
            try:
                self._detach(home, mounted, force=True)
            except (KennelError, OSError) as failure:
                log.warning("a bucket's mount stays until its sandbox stops: %s", failure)
        self._discard(home, mounted.number)

    def _prepare(self, home: Home, mounted: Mounted) -> None:
        folder, scratch = home.folder(mounted.number), home.scratch(mounted.number)
        with step("mkdir bucket"):
            (folder / "stage").mkdir(parents=True, mode=0o700)
        self._write(home, mounted)
        for group in self._groups(home, mounted.number):
            with step("mkdir bucket's group"):
                group.mkdir(exist_ok=True)
        with step("mkdir scratch"):
            scratch.mkdir(parents=True, mode=0o700)
            os.chown(scratch, USERS + home.slot, USERS + home.slot)

    def _groups(self, home: Home, number: int) -> list[Path]:
        unified = self._tree.unified
        roots = [unified] if unified is not None else {self._tree.v1[name] for name in _CONTROLLERS}
        return [root / _group(home, number) for root in roots]

    @staticmethod
    def _write(home: Home, mounted: Mounted) -> None:
        target = home.folder(mounted.number) / "record.json"
        fresh = target.with_suffix(".new")
        with step("write bucket's record"):
            fresh.write_bytes(msgspec.json.encode(mounted))
            os.replace(fresh, target)

    def _attach(self, home: Home, mounted: Mounted, given: Credentials | None, deadline: _Deadline) -> None:
        bucket, stage = mounted.bucket, str(home.folder(mounted.number) / "stage")
        asked = {"verb": "attach", "stage": stage, "source": bucket.source, "readOnly": bucket.read_only}
        with self._door(home, {**asked, "parts": bucket.parts}) as line, _said() as said:
            try:
                _, device = deadline.next(line)
            except OSError as failure:
                raise _misplaced(failure, bucket) or failure from failure
            try:
                with step("start s3fs"):
                    process = self._start(home, mounted, given, device, said)
            finally:
                os.close(device)
            try:
                mounted.device = str(deadline.next(line)[0]["device"])
                self._write(home, mounted)
                with step("attach bucket"):
                    line.send(b"go")
                    mounted.made = bool(deadline.next(line)[0]["made"])
                mounted.attached = True
                self._write(home, mounted)
            except (OSError, KennelError) as failure:
                raise self._failure(failure, mounted.bucket, process, given, said) from failure

    def _start(
        self, home: Home, mounted: Mounted, given: Credentials | None, device: int, said: int
    ) -> subprocess.Popen[bytes]:
        bucket, number, runtime = mounted.bucket, mounted.number, self._runtime
        own = ["allow_other", "auto_unmount", "mp_umask=0022", "tmpdir=/tmp", f"url={bucket.endpoint}", "dbglevel=err"]
        own += ["ensure_diskfree=64", *(["ro"] if bucket.read_only else []), *bucket.settings()]
        asked = {
            "groups": [str(group) for group in self._groups(home, number)],
            "netns": str(home.places.netns),
            "stage": str(home.folder(number) / "stage"),
            "scratch": str(home.scratch(number)),
            "runtime": str(runtime),
            "runtimeMount": RUNTIME_MOUNT,
            "interpreter": INTERPRETER,
            "uid": USERS + home.slot,
            "fuse": device,
            "nameserver": _RESOLVER,
            "bundle": f"{RUNTIME_MOUNT}/{FOLDER}/roots.pem",
            "words": [bucket.source, "/mnt", "-f", "-o", ",".join(own)],
        }
        secret = {} if given is None else {
            "AWSACCESSKEYID": given.access_key_id, "AWSSECRETACCESSKEY": given.secret_access_key,
            **({} if given.session_token is None else {"AWSSESSIONTOKEN": given.session_token}),
        }  # fmt: skip
        process = subprocess.Popen(
            _words("program", asked), stdin=subprocess.DEVNULL, stdout=said, stderr=said, pass_fds=[device],
            env={"LANG": "C.UTF-8", **secret}, cwd="/", start_new_session=True,
        )  # fmt: skip
        threading.Thread(target=process.wait, name=f"s3fs {number}", daemon=True).start()
        return process

    @staticmethod
    def _failure(
        failure: OSError | KennelError, bucket: Bucket, process: subprocess.Popen[bytes], given: Credentials | None,
        said: int,
    ) -> KennelError:  # fmt: skip
        if isinstance(failure, KennelError):
            return failure
        if (misplaced := _misplaced(failure, bucket)) is not None:
            return misplaced
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1)
        text = os.pread(said, _MOST_SAID, 0).rstrip(b"\0").decode(errors="replace")
        words = _last(text if given is None else given.hidden(text))
        details = {
            "bucket": bucket.bucket,
            "mountPath": bucket.mount_path,
            "endpoint": bucket.endpoint,
            "stderr": words,
            "exitCode": process.poll(),
        }
        why = words.splitlines()[-1] if words and process.poll() is not None else failure.strerror
        return error("BUCKET_MOUNT_ERROR", f"the bucket was not mounted: {why}", details=details, admitted="no")

    def _detach(self, home: Home, mounted: Mounted, *, force: bool) -> None:
        asked = {"verb": "detach", "device": mounted.device, "force": force, "made": mounted.made, "pid": home.pid}
        try:
            with self._door(home, asked) as line, step("detach bucket"):
                _Deadline(_never).next(line)
        except OSError as failure:
            where = mounted.bucket.mount_path
            why = "is in use" if failure.errno == errno.EBUSY else f"was not unmounted: {failure.strerror}"
            hint = "close what is open there, or unmount it with force: what is not written yet is lost then"
            raise error("BUCKET_UNMOUNT_ERROR", f"{where} {why}", details={"mountPath": where}, hint=hint) from failure

    def _discard(self, home: Home, number: int) -> None:
        """Kills its s3fs, by which whatever waits for it ends, and leaves nothing of it."""
        cgroup.remove(self._tree, _group(home, number))
        if os.path.ismount(home.places.disk):
            with step("delete scratch"):
                # Files that s3fs had open have no names any more; node only unlinks, whatever lies there.
                shutil.rmtree(home.scratch(number), ignore_errors=True)
        with step("delete bucket"):
            shutil.rmtree(home.folder(number), ignore_errors=True)

    @contextlib.contextmanager
    def _door(self, home: Home, asked: dict[str, Any]) -> Iterator[socket.socket]:
        """The process that stands in the sandbox for node, and the line to it; it is gone after the block."""
        if home.pid is None:
            raise error("SANDBOX_LOST", "the sandbox does not run", admitted="no")
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pidfd = os.pidfd_open(home.pid)
        with ours:
            try:
                with theirs:
                    process = subprocess.Popen(
                        _words("doorway", {**asked, "pidfd": pidfd}), stdin=theirs.fileno(), pass_fds=[pidfd],
                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={"LANG": "C.UTF-8"}, cwd="/",
                    )  # fmt: skip
            finally:
                os.close(pidfd)
            try:
                yield ours
            finally:
                process.kill()
                process.wait()


class _Deadline:
    """The time that one mount or unmount has."""

    def __init__(self, cut: Callable[[], None]) -> None:
        self._cut, self._end = cut, time.monotonic() + PATIENCE

    def next(self, line: socket.socket) -> tuple[dict[str, Any], int]:
        """What the process in the sandbox says next, and a descriptor with it (or -1); OSError as it met it."""
        while not select.select([line], [], [], 0.05)[0]:
            self._cut()
            if time.monotonic() > self._end:
                raise TimeoutError(errno.ETIMEDOUT, f"nothing came of it within {PATIENCE:g} seconds")
        size = array.array("i").itemsize
        message, ancillary, _, _ = line.recvmsg(4096, socket.CMSG_SPACE(size), socket.MSG_CMSG_CLOEXEC)
        given = array.array("i")
        for _, _, data in ancillary:
            given.frombytes(data[:size])
        if not message:
            raise OSError(errno.EPIPE, "the process in the sandbox ended")
        told: dict[str, Any] = json.loads(message)
        if "errno" in told:
            raise OSError(told["errno"], os.strerror(told["errno"]))
        return told, given[0] if given else -1


_PLACES = {
    errno.ELOOP: "leads through a symbolic link",
    errno.ENOTDIR: "leads through a symbolic link, or through something that is no directory",
    errno.ENOTEMPTY: "is not empty",
    errno.EXDEV: "lies in another mount",
}


_IDLE = ("LowSetLogLevel", "Exiting FUSE event loop", "giving up")
"""In lines of s3fs that say nothing of what went wrong."""


def _misplaced(failure: OSError, bucket: Bucket) -> KennelError | None:
    """What is wrong with the place, if that is what failed."""
    why = _PLACES.get(failure.errno or 0)
    return None if why is None else error("INVALID_MOUNT_CONFIG", f"{bucket.mount_path} {why}", admitted="no")


def _never() -> None:
    return None


def _group(home: Home, number: int) -> str:
    return f"{home.group}/bucket-{number}"


def _words(module: str, asked: dict[str, Any]) -> list[str]:
    package = str(Path(kennel.__file__).resolve().parent)
    own = [sys.executable, "-S", "-E", "-s", "-P", "-B", "-X", "utf8", "-c", _BOOT.format(module)]
    return [*own, package, json.dumps(asked)]


@contextlib.contextmanager
def _said() -> Iterator[int]:
    """A file in memory that takes so much of what s3fs says, and no more."""
    made = os.memfd_create("s3fs", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(made, _MOST_SAID)
        fcntl.fcntl(made, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)
        yield made
    finally:
        os.close(made)


def _last(text: str) -> str:
    """The last lines that say something went wrong, without their times; else the last ones of all."""
    lines = [line for line in text.splitlines() if line.strip() and not any(word in line for word in _IDLE)]
    bad = [line for line in lines if "[ERR]" in line or "[CRT]" in line or line.startswith("s3fs:")] or lines
    return "\n".join(line.split("Z ", 1)[-1] for line in bad[-4:])[-1000:]
