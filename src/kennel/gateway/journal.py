"""Owns the audit before it is on the log: an append file that every decision reaches before anything leaves.

Called by exchanges, DNS and tunnels (`write`, `commit`), and by the control channel (shipping, acknowledgement).
Invariant: a decision is written before its request is dispatched; secret uses and holds wait until control has
committed them; records are sent in order until acknowledged; when the files are full, requests wait.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

import msgspec

from kennel.domain.denial import Refused
from kennel.wire.egress import Record
from kennel.wire.gateway import encode_records

_SEGMENT = 16 * 1024 * 1024
_BATCH_BYTES, _BATCH_RECORDS = 512 * 1024, 2000
_LATE = 0.05
"""Seconds that records nobody waits for may gather before they are sent."""

log = logging.getLogger("kennel.gateway.journal")


class Journal:
    """The append files of one gateway, their numbering, and how far control has them."""

    def __init__(self, folder: Path, most_bytes: int, acknowledge_timeout: float) -> None:
        folder.mkdir(mode=0o700, exist_ok=True)
        self._folder, self._most, self._patience = folder, most_bytes, acknowledge_timeout
        self._encode = msgspec.json.Encoder().encode
        self.ledger = _ledger(folder / "ledger")
        self.acknowledged, self.last = _recover(folder)
        self._segments: deque[tuple[int, Path]] = deque(sorted(_segments(folder)))
        self._bytes = sum(path.stat().st_size for _, path in self._segments)
        self._mark = os.open(folder / "acknowledged", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._file = -1
        self._file_bytes = 0
        self._late: list[bytes] = []
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._room: asyncio.Event = asyncio.Event()
        self._room.set()
        self._send: Callable[[bytes], None] | None = None
        self._sent = self.acknowledged
        self._unsaved = False
        self._reader: _Reader | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._roll()

    @property
    def full(self) -> bool:
        """Whether requests have to wait for control to take what is here."""
        return self._bytes >= self._most

    @property
    def connected(self) -> bool:
        return self._send is not None

    def write(self, record: Record) -> int:
        """Writes a record, and those that gathered before it, to the file; its sequence. OSError when it cannot."""
        record.at = record.at or time.time_ns() // 1_000_000
        self._late.append(self._encode(record))
        return self._flush()

    def note(self, record: Record) -> None:
        """Takes a record that nothing waits for, such as an outcome; it reaches the file within 50 ms."""
        record.at = record.at or time.time_ns() // 1_000_000
        self._late.append(self._encode(record))
        self._later()

    async def commit(self, record: Record) -> None:
        """Writes a record and waits until control has it on the log; Refused `audit_unavailable` when it has not."""
        if not self.connected:
            self.write(record)
            raise Refused("audit_unavailable", "what was asked for must be on the log first, and the log is away")
        sequence = self.write(record)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((sequence, future))
        self._ship()
        try:
            await asyncio.wait_for(future, self._patience)
        except (TimeoutError, ConnectionError):
            raise Refused("audit_unavailable", "the log did not take the record in time") from None

    async def room(self) -> None:
        """Waits while the files are full; Refused when that lasts."""
        try:
            await asyncio.wait_for(self._room.wait(), 30.0)
        except TimeoutError:
            raise Refused("audit_unavailable", "the journal is full and the log is away") from None

    def connect(self, send: Callable[[bytes], None]) -> None:
        """Control is here: what it has not acknowledged is sent (again), then what comes."""
        self._send = send
        self._sent = self.acknowledged
        self._reader = None
        self._ship()

    def disconnect(self) -> None:
        """Control is away: who waits for it is told."""
        self._send = None
        self._reader = None
        for _, future in self._waiting:
            if not future.done():
                future.set_exception(ConnectionError("control went away"))
        self._waiting.clear()

    def acknowledge(self, through: int) -> None:
        """Control has everything up to here; files that hold nothing later are deleted."""
        if not self.acknowledged < through <= self._sent:
            return
        self.acknowledged = through
        ready = [future for sequence, future in self._waiting if sequence <= through]
        self._waiting = [row for row in self._waiting if row[0] > through]
        for future in ready:
            if not future.done():
                future.set_result(None)
        if self.full and self.acknowledged == self.last:
            self._roll()
        while len(self._segments) > 1 and self._segments[1][0] <= through + 1:
            _, path = self._segments.popleft()
            self._bytes -= path.stat().st_size
            path.unlink()
        if not self.full:
            self._room.set()
        self._unsaved = True
        # Who waits is served at once; the rest gathers.
        if self._waiting or self.full:
            self._ship()
        else:
            self._later()

    def _flush(self) -> int:
        if self._late:
            lines, self._late = self._late, []
            text = b"\n".join(lines) + b"\n"
            if os.write(self._file, text) != len(text):
                raise OSError("the journal's disk is full")
            self.last += len(lines)
            self._file_bytes += len(text)
            self._bytes += len(text)
            if self._file_bytes >= _SEGMENT:
                self._roll()
            if self.full:
                self._room.clear()
            self._later()
        return self.last

    def _later(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_LATE, self._tick)

    def _tick(self) -> None:
        self._timer = None
        try:
            self._flush()
        except OSError as failure:
            log.error("the journal cannot be written: %s", failure)
        if self._unsaved:
            self._unsaved = False
            # In place: a file that is cut and written again makes the kernel flush it (5 ms, the whole loop waiting).
            os.pwrite(self._mark, b"%020d" % self.acknowledged, 0)
        self._ship()

    def _ship(self) -> None:
        """Sends the next batch, one at a time: the next follows its acknowledgement."""
        if self._send is None or self._sent > self.acknowledged or self._sent >= self.last:
            return
        if self._reader is None:
            self._reader = _Reader(self._segments, self.acknowledged)
        lines = self._reader.take(self.last - self._sent)
        if lines:
            first, self._sent = self._sent + 1, self._sent + len(lines)
            self._send(encode_records(self.ledger, first, lines))

    def _roll(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        path = self._folder / f"{self.last + 1:016d}.jsonl"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._file_bytes = 0
        if not self._segments or self._segments[-1][1] != path:
            self._segments.append((self.last + 1, path))

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._late:
            self._flush()
        os.close(self._file)
        os.close(self._mark)


class _Reader:
    """Reads lines on from a sequence through the segments."""

    def __init__(self, segments: deque[tuple[int, Path]], after: int) -> None:
        self._segments, self._after = segments, after
        self._descriptor, self._next, self._rest = -1, 0, b""

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def take(self, most: int) -> list[bytes]:
        """Up to `most` further lines that are whole, bounded by a batch."""
        lines: list[bytes] = []
        while not lines:
            if self._descriptor < 0 and not self._open():
                return []
            data = self._rest + os.read(self._descriptor, _BATCH_BYTES)
            whole, newline, _ = data.rpartition(b"\n")
            found = whole.split(b"\n") if newline else []
            skip = max(0, self._after + 1 - self._next)
            lines = found[skip : skip + min(most, _BATCH_RECORDS)]
            used = found[: skip + len(lines)]
            self._next += len(used)
            self._rest = data[sum(map(len, used)) + len(used) :]
            if not found and not self._advance():
                return []
        self._after = self._next - 1
        return lines

    def _open(self) -> bool:
        wanted = self._after + 1
        rows = [(first, path) for first, path in self._segments if first <= wanted]
        if not rows:
            return False
        self._next, path = rows[-1]
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._rest = b""
        return True

    def _advance(self) -> bool:
        """Goes on to the next segment when there is one: this one is read to its end."""
        if not any(first == self._next for first, _ in self._segments) or self._segments[-1][0] < self._next:
            return False
        current = os.readlink(f"/proc/self/fd/{self._descriptor}")
        following = next(str(path) for first, path in self._segments if first == self._next)
        if os.path.basename(following) == os.path.basename(current):
            return False
        os.close(self._descriptor)
        self._descriptor = os.open(following, os.O_RDONLY | os.O_CLOEXEC)
        self._rest = b""
        return True


def _segments(folder: Path) -> list[tuple[int, Path]]:
    return [(int(path.stem), path) for path in folder.glob("*.jsonl")]


def _ledger(file: Path) -> str:
    if not file.exists():
        file.write_text(secrets.token_hex(8))
    return file.read_text()


def _recover(folder: Path) -> tuple[int, int]:
    """How far control has the records, and the last one; a line cut by a crash is dropped."""
    rows = sorted(_segments(folder))
    last = 0
    for first, path in rows:
        content = path.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole != len(content):
            os.truncate(path, whole)
        last = first - 1 + content.count(b"\n")
    file = folder / "acknowledged"
    known = int(file.read_text() or 0) if file.exists() else 0
    known = max(known, rows[0][0] - 1) if rows else known
    return min(known, max(last, known)), max(last, known)
