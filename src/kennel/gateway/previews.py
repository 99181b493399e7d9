"""Owns what the gateway knows of previews: which address leads to which port of which sandbox, by control's word.

Called by the process (what control says) and by visits. Invariant: a preview that control has taken back is void, and
its connections are cut, before control is answered; tokens are found by a keyed hash and compared in constant time.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from kennel.wire import gateway as wire
from kennel.wire.errors import KennelError, error

_WAKING = 90.0
_TOLD_EVERY = 0.5


class Cuttable(Protocol):
    """A connection of a visitor."""

    def cut(self, why: str) -> None: ...


@dataclass(slots=True, eq=False)
class Preview:
    """A port that is previewed, and who is looking."""

    sandbox: str
    port: int
    token: str
    wake: bool
    void: bool = False
    links: set[Cuttable] = field(default_factory=set)


class Previews:
    """All previews; `tell` says something to control and answers whether it is there."""

    def __init__(self, tell: Callable[[wire.Notice], bool]) -> None:
        self.told = False
        self._tell = tell
        self._salt = secrets.token_bytes(32)
        self._rows: dict[bytes, Preview] = {}
        self._of: dict[str, dict[bytes, Preview]] = {}
        self._named: set[str] = set()
        self._knocks: dict[str, asyncio.Future[KennelError | None]] = {}
        self._moved: set[str] = set()
        self._said = 0.0
        self._saying: asyncio.TimerHandle | None = None

    # What control says.

    def begin(self) -> None:
        """Control is new, or back: it names everything again."""
        self._named.clear()

    def set(self, sandbox: str, previews: list[wire.PreviewRow], revoked: list[wire.PreviewRow]) -> None:
        """All previews of a sandbox; those that are not among them any more are void and cut."""
        self._named.add(sandbox)
        before = self._of.pop(sandbox, {})
        now: dict[bytes, Preview] = {}
        for row, void in [*((row, True) for row in revoked), *((row, False) for row in previews)]:
            key = self._key(row.port, row.token)
            now[key] = before.get(key) or Preview(sandbox, row.port, row.token, row.wake, void)
            now[key].wake, now[key].void = row.wake, void
        for key, preview in before.items():
            if key not in now:
                preview.void = True
                now[key] = preview
        while len(now) > wire.MAX_PREVIEWS:
            now.pop(next(iter(now)))
        for key in before.keys() - now.keys():
            self._rows.pop(key, None)
        self._rows.update(now)
        if now:
            self._of[sandbox] = now
        for preview in [*before.values(), *now.values()]:
            if preview.void:
                for link in list(preview.links):
                    link.cut("this preview was revoked")

    def all_told(self) -> None:
        """Control has named every sandbox with previews; the others have none."""
        for sandbox in self._of.keys() - self._named:
            self.set(sandbox, [], [])
        self.told = True

    def woken(self, sandbox: str, code: str, message: str) -> None:
        """What came of a knock."""
        knock = self._knocks.pop(sandbox, None)
        if knock is not None and not knock.done():
            knock.set_result(error(code, message or code) if code else None)

    def control_left(self) -> None:
        """Nobody answers the knocks that are out."""
        for sandbox in list(self._knocks):
            self.woken(sandbox, "CONTAINER_UNAVAILABLE", "nobody is there to wake the sandbox")

    # What visits ask.

    def find(self, port: int, token: str) -> Preview | None:
        """The preview at this address, also a void one."""
        found = self._rows.get(self._key(port, token))
        same = hmac.compare_digest(token, found.token if found is not None else token[::-1])
        return found if same and found is not None and found.port == port else None

    def _key(self, port: int, token: str) -> bytes:
        return hashlib.blake2b(f"{port}-{token}".encode(), key=self._salt, digest_size=32).digest()

    async def wake(self, sandbox: str) -> None:
        """Has control wake a sandbox; raises its reason when that fails."""
        knock = self._knocks.get(sandbox)
        if knock is None:
            knock = self._knocks[sandbox] = asyncio.get_running_loop().create_future()
            if not self._tell(wire.Knock(sandbox)):
                self.control_left()
        try:
            async with asyncio.timeout(_WAKING):
                failure = await asyncio.shield(knock)
        except TimeoutError as late:
            if isinstance(late, KennelError):
                raise
            self._knocks.pop(sandbox, None)
            raise error("CONTAINER_UNAVAILABLE", f"the sandbox did not wake in {_WAKING:g} s") from None
        if failure is not None:
            raise failure

    def moved(self, sandbox: str) -> None:
        """Bytes passed; control hears of it at once, and at most every half second."""
        if sandbox in self._moved:
            return
        self._moved.add(sandbox)
        if self._saying is None:
            loop = asyncio.get_running_loop()
            self._saying = loop.call_at(max(loop.time(), self._said + _TOLD_EVERY), self._say)

    def _say(self) -> None:
        self._saying, self._said = None, asyncio.get_running_loop().time()
        moved, self._moved = sorted(self._moved), set()
        self._tell(wire.Traffic(moved))
