"""Owns what runs in sandboxes beyond one call: followed commands, processes, terminals, code contexts, ports, buckets.

Made by assemble, called by the API. Invariant: what lives in this process ends with `close`, what lives in guests
stays.
"""

from __future__ import annotations

from kennel.control.buckets import Buckets
from kennel.control.endings import Endings
from kennel.control.exec_stream import ExecStreams
from kennel.control.exposed import Exposed
from kennel.control.interpreter import Interpreter
from kennel.control.processes import Processes
from kennel.control.recorder import Recorder
from kennel.control.sandboxes import Sandboxes
from kennel.control.terminals import Terminals
from kennel.ports.event_log import EventLog
from kennel.ports.node import NodeLink


class Running:
    """The services, together."""

    def __init__(self, sandboxes: Sandboxes, recorder: Recorder, log: EventLog, node: NodeLink) -> None:
        self.commands = ExecStreams(sandboxes, recorder)
        endings = Endings(recorder.note)
        sandboxes.on_adopted(endings.adopted)
        self.processes = Processes(sandboxes, endings)
        self.terminals = Terminals(sandboxes)
        self.interpreter = Interpreter(sandboxes)
        self.ports = Exposed(sandboxes, log)
        self.buckets = Buckets(sandboxes, node, log)

    async def close(self) -> None:
        """Ends what only lives as long as this process."""
        await self.commands.close()
        await self.interpreter.cells.close()
