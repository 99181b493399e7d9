"""Owns what node remembers of a sandbox on disk: its words, and its range of user ids.

Called by unit and census. Invariant: a record is written whole or not at all (rename), before any resource that
carries the sandbox's name is made; two sandboxes never share a range.
"""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path

import msgspec

from kennel.domain.container import ID_RANGE
from kennel.steps import step
from kennel.wire.errors import error

log = logging.getLogger("kennel.record")

ID_FLOOR = 0x1000_0000
"""The first host id handed out; far above what distributions and containers of other tools use."""

MAX_SLOTS = 60_000


class Record(msgspec.Struct, rename="camel", frozen=True):
    """One sandbox on this machine."""

    sandbox: str
    instance_type: str
    image_digest: str
    isolation: str
    slot: int

    @property
    def id_base(self) -> int:
        return ID_FLOOR + self.slot * ID_RANGE


class Records:
    """All records under one folder, one sub-folder per sandbox."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._records: dict[str, Record] = {}
        for path in folder.glob("*/record.json"):
            try:
                record = msgspec.json.decode(path.read_bytes(), type=Record)
            except msgspec.DecodeError as failure:
                # One broken file must not keep node, and so every other sandbox, from starting.
                log.error("%s cannot be read, so its sandbox does not start: %s", path, failure)
                continue
            self._records[record.sandbox] = record
        self._free = 0

    def folder(self, sandbox: str) -> Path:
        return self._folder / sandbox

    def get(self, sandbox: str) -> Record | None:
        return self._records.get(sandbox)

    def all(self) -> list[Record]:
        with self._lock:
            return list(self._records.values())

    def add(self, sandbox: str, instance_type: str, image_digest: str, isolation: str) -> Record:
        """The sandbox's record, written to disk if it is new; other words for a known sandbox are refused."""
        with self._lock:
            known = self._records.get(sandbox)
            if known is not None:
                if (known.instance_type, known.image_digest, known.isolation) != (
                    instance_type,
                    image_digest,
                    isolation,
                ):
                    raise error("SANDBOX_BUILD_FAILED", f"sandbox {sandbox} was built with other words", admitted="no")
                return known
            record = Record(sandbox, instance_type, image_digest, isolation, self._slot())
            folder = self.folder(sandbox)
            with step("mkdir sandbox"):
                # It is there when a creation was cut off between this line and the next.
                folder.mkdir(mode=0o700, exist_ok=True)
            fresh = folder / ".record.new"
            with step("write record"):
                _write_through(fresh, msgspec.json.encode(record))
            with step("name record"):
                os.replace(fresh, folder / "record.json")
                _sync_folder(folder)
            self._records[sandbox] = record
            return record

    def forget(self, sandbox: str) -> None:
        """Forgets the record; its folder must be gone."""
        with self._lock:
            record = self._records.pop(sandbox, None)
            if record is not None:
                self._free = min(self._free, record.slot)

    def _slot(self) -> int:
        taken = {record.slot for record in self._records.values()}
        for slot in range(self._free, MAX_SLOTS):
            if slot not in taken:
                self._free = slot + 1
                return slot
        raise error("NO_CAPACITY", f"all {MAX_SLOTS} user id ranges are taken", admitted="no")


def _write_through(path: Path, content: bytes) -> None:
    with open(path, "wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
