"""Owns the one thread that writes the log: it gathers waiting appends and commits them as one transaction.

Called by `event_log.SqlEventLog`. Invariant: this thread alone publishes, always an unbroken run of positions, and an
append's answer is delivered in the same turn as its events, after them.
"""

from __future__ import annotations

import asyncio
import datetime
import logging
import queue
import threading
from collections.abc import Callable, Sequence

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from kennel.adapters.sql.engine import lost
from kennel.adapters.sql.ledger import Address, Group, Ledger, Stream
from kennel.adapters.sql.statements import Statements
from kennel.domain.admission import Draft
from kennel.domain.event import Event
from kennel.wire.errors import KennelError, error

log = logging.getLogger(__name__)

MAX_GROUP = 512
"""Appends in one transaction: beyond it the wait for the disk is already paid by many."""
MAX_KNOWN = 50_000
"""Streams whose heads are remembered between groups."""

Answer = list[Event] | KennelError


class Request:
    """One append on its way; `answer` is filled in by the writer, and the loop moves it into `future`."""

    __slots__ = ("address", "answer", "drafts", "future", "size")

    def __init__(
        self, address: Address, drafts: Sequence[Draft], size: int, future: asyncio.Future[list[Event]]
    ) -> None:
        self.address, self.drafts, self.size, self.future = address, drafts, size, future
        self.answer: Answer = []


Deliver = Callable[[list[Event], list[Request]], None]
"""Called on the writer's thread after each commit: all new events in order, and the appends now answered."""


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _unavailable(fault: BaseException) -> KennelError:
    log.error("the event log's database failed", exc_info=fault)
    return error(
        "LOG_UNAVAILABLE",
        "the event log cannot be written now",
        admitted="unknown" if isinstance(fault, _Commit) else "no",
        retry_after_ms=1000,
    )


class Look:
    """A place in the writer's line that asks for nothing but a look at what others wrote."""


_LOOK = Look()


class _Commit(Exception):
    """The COMMIT itself failed: what it held may or may not be on disk."""


class Writer:
    """The log's writing thread."""

    def __init__(self, engine: Engine, deliver: Deliver) -> None:
        self._engine, self._deliver = engine, deliver
        self._queue: queue.SimpleQueue[Request | Look | None] = queue.SimpleQueue()
        self._known: dict[Address, Stream] = {}
        self._connection: Connection | None = None
        self._statements = Statements(engine.dialect)
        with engine.connect() as connection:
            ledger = Ledger(connection, self._statements)
            self.position, self._debtors = ledger.last_position(), ledger.debtors()
        self._thread = threading.Thread(target=self._run, name="kennel-log-writer", daemon=True)
        self._thread.start()

    def submit(self, request: Request) -> None:
        """Puts an append in line; it is answered through `deliver`."""
        self._queue.put(request)

    def catch_up(self) -> None:
        """Has what other processes committed published soon."""
        self._queue.put(_LOOK)

    def close(self) -> None:
        """Commits what is in line, then ends the thread."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        stop = False
        while not stop:
            group, stop = self._gather()
            self._serve(group)
        self._drop_connection()

    def _gather(self) -> tuple[list[Request], bool]:
        """Waits for something to do, then takes all that waits; the flag says that it was the end."""
        group: list[Request] = []
        item = self._queue.get()
        while True:
            if item is None:
                return group, True
            if isinstance(item, Request):
                group.append(item)
            if len(group) >= MAX_GROUP:
                return group, False
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                return group, False

    def _serve(self, group: list[Request]) -> None:
        """One turn: commit the group and deliver; whatever goes wrong, every append of it is answered."""
        events: list[Event] = []
        try:
            events = self._commit_or_split(group)
        except Exception:
            log.exception("the log's writer failed")
            self._drop_connection()
            for request in group:
                request.answer = error("INTERNAL_ERROR", "the event log failed", admitted="unknown")
        self._deliver(events, group)

    def _commit_or_split(self, group: list[Request]) -> list[Event]:
        """The group in one transaction, or each of its appends alone when the tables refuse the whole."""
        try:
            return self._attempt(group)
        except IntegrityError:
            events: list[Event] = []
            for request in group:
                try:
                    events += self._attempt([request])
                except IntegrityError:
                    request.answer = error("LOG_CORRUPT", f"stream '{request.address[1]}' disagrees with its own head")
                except (SQLAlchemyError, _Commit) as fault:
                    request.answer = _unavailable(fault)
            return events
        except (SQLAlchemyError, _Commit) as fault:
            answer = _unavailable(fault)
            for request in group:
                request.answer = answer
            return []

    def _attempt(self, group: list[Request]) -> list[Event]:
        """Commits the group, once more on a new connection if the database had hung up before the commit."""
        try:
            return self._commit(group)
        except SQLAlchemyError as fault:
            self._drop_connection()
            if not lost(fault):
                raise
            return self._commit(group)

    def _drop_connection(self) -> None:
        if self._connection is not None:
            try:
                self._connection.close()
            except SQLAlchemyError:
                log.warning("closing a broken database connection failed", exc_info=True)
            self._connection = None
        self._known.clear()

    def _commit(self, requests: list[Request]) -> list[Event]:
        if self._connection is None:
            self._connection = self._engine.connect()
        transaction = self._connection.begin()
        try:
            ledger = Ledger(self._connection, self._statements)
            ledger.lock()
            events = self._news(ledger)
            group = Group(ledger, self.position + len(events), self._known, _now())
            for request in requests:
                try:
                    request.answer = group.append(request.address, request.drafts)
                except KennelError as refusal:
                    request.answer = refusal
            group.announce(group.flush())
            self._settle(group, requests)
            events += group.committed
            if group.committed:
                ledger.notify(group.position)
        except BaseException:
            transaction.rollback()
            raise
        try:
            transaction.commit()
        except SQLAlchemyError as fault:
            self._drop_connection()
            raise _Commit from fault
        self._remember(group)
        return events

    def _news(self, ledger: Ledger) -> list[Event]:
        """What other processes committed since this thread last looked; what it remembered of heads is then void."""
        if ledger.last_position() == self.position:
            return []
        self._known.clear()
        found: list[Event] = []
        while page := ledger.events_since(self.position + len(found)):
            found += page
        return found

    def _settle(self, group: Group, requests: Sequence[Request]) -> None:
        owing = {r.address for r in requests if group.stream(r.address).owes}
        for child in [*self._debtors, *(a for a in owing if a not in self._debtors)]:
            group.settle(child)
        self._debtors = []

    def _remember(self, group: Group) -> None:
        self.position = group.position
        if len(self._known) > MAX_KNOWN:
            self._known.clear()
        self._known.update(group.touched)
