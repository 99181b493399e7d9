"""Owns what runs in sandboxes beyond one call: followed commands, processes, terminals, ports.

Made by assemble, called by the API. Invariant: nothing here outlives `close`.
"""

from __future__ import annotations

from kennel.control.exec_stream import ExecStreams
from kennel.control.recorder import Recorder
from kennel.control.sandboxes import Sandboxes


class Running:
    """The services, together."""

    def __init__(self, sandboxes: Sandboxes, recorder: Recorder) -> None:
        self.commands = ExecStreams(sandboxes, recorder)

    async def close(self) -> None:
        """Ends what only lives as long as this process."""
        await self.commands.close()
