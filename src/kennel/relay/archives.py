"""Owns archives on their way out of and into a sandbox, as control sees them: a program's output, a program's input.

Made by files: ports' Pack and Unpack. Invariant: an archive that was not finished never ends like one that was; why it
was not is the program's own word, checked like any answer of a guest.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

from kennel.guest import framing
from kennel.guest.framing import FrameError
from kennel.relay import answers
from kennel.relay.run import RunCall
from kennel.wire.errors import KennelError, error

_MOST_WORDS = 64 * 1024
_CLEARING = 20.0
END = b"KENNEL ARCHIVE END\n"
"""The word that ends what a restore is sent; guest/backup.py waits for it."""


def failure(words: bytes, code: int) -> KennelError:
    """The error that the program's last words are."""
    try:
        return answers.refusal(framing.read_control(words), "yes")
    except FrameError:
        text = words.decode("utf-8", "replace").strip()[-500:]
        return error("FILESYSTEM_ERROR", f"the archive program ended with {code}: {text}", admitted="yes")


class RemotePack:
    """A tree on its way out."""

    def __init__(self, call: RunCall) -> None:
        self._call = call
        self._words = bytearray()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._call:
            if chunk.stream == "stdout":
                yield chunk.data
            elif len(self._words) < _MOST_WORDS:
                self._words += chunk.data
        outcome = await self._call.outcome()
        if outcome.exit_code:
            raise failure(bytes(self._words), outcome.exit_code)

    async def close(self) -> None:
        """Lets go of it."""
        await self._call.kill()


class RemoteUnpack:
    """An archive on its way in; its program's output is collected, and is nothing but complaints."""

    def __init__(self, call: RunCall) -> None:
        self._call = call

    async def write(self, data: bytes) -> None:
        """Sends bytes; raises what the program ended with instead."""
        await self._call.write(data)
        if self._call.ended:
            await self._end()

    async def finish(self) -> None:
        """Returns when all is unpacked."""
        await self._call.close_stdin()
        await self._end()

    async def _end(self) -> None:
        outcome = await self._call.collected()
        if outcome.exit_code:
            raise failure(outcome.stderr, outcome.exit_code)

    async def close(self) -> None:
        """Gives it up unless it is finished; what was unpacked stays."""
        await self._call.kill()


class RemoteRestore(RemoteUnpack):
    """A saved directory on its way in; without `finish` it leaves what was there."""

    async def finish(self) -> None:
        """Returns when the directory is what came."""
        await self._call.write(END)
        await super().finish()

    async def close(self) -> None:
        """Gives it up unless it is finished: its program sees an archive without its last word, and clears up."""
        if not self._call.ended:
            await self._call.close_stdin()
            with suppress(TimeoutError, KennelError):
                async with asyncio.timeout(_CLEARING):
                    await self._call.collected()
        await super().close()
