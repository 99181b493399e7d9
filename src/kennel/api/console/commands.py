"""Owns running a command from a sandbox's page: one form in, one entry of its log out.

Called by console/app.py and, for the entry, by the rooms page. Invariants: a browser that gives up ends the command;
output is cut at MAX_SHOWN bytes a stream and shown as text, whatever it holds.
"""

from __future__ import annotations

from dataclasses import dataclass

from starlette.responses import Response

from kennel.api.answers import now
from kennel.api.console import text
from kennel.api.console.forms import Form, checked
from kennel.api.console.live import newest
from kennel.api.console.sandbox import path, state
from kennel.api.console.visit import Visit, post
from kennel.api.failures import invalid
from kennel.api.hangup import unless_hung_up
from kennel.api.routes.exec import ExecRequest
from kennel.domain.command import DEFAULT_CWD, Command, Outcome

MAX_SHOWN = 256 * 1024
DEFAULT_SECONDS = 60
MAX_SECONDS = 3600


@dataclass(frozen=True, slots=True)
class Entry:
    """A finished command as the page shows it."""

    command: str
    started: str
    outcome: Outcome
    out_of_memory: bool

    @property
    def stdout(self) -> str:
        return text.output(self.outcome.stdout[:MAX_SHOWN])

    @property
    def stderr(self) -> str:
        return text.output(self.outcome.stderr[:MAX_SHOWN])

    @property
    def hidden(self) -> int:
        """Bytes that were written and are not shown."""
        kept = min(len(self.outcome.stdout), MAX_SHOWN) + min(len(self.outcome.stderr), MAX_SHOWN)
        return max(0, self.outcome.stdout_bytes + self.outcome.stderr_bytes - kept)


def _command(form: Form) -> Command:
    seconds = form.text("timeout").strip() or str(DEFAULT_SECONDS)
    if not (seconds.isascii() and seconds.isdigit() and 0 < int(seconds[:9]) <= MAX_SECONDS):
        raise invalid({"timeout": [f"whole seconds from 1 to {MAX_SECONDS}"]})
    body = checked(
        ExecRequest,
        {
            "command": form.text("command"),
            "cwd": form.text("cwd").strip() or DEFAULT_CWD,
            "timeout": int(seconds) * 1000,
        },
    )
    return Command(command=body.command, cwd=body.cwd, timeout_ms=body.timeout, max_bytes=MAX_SHOWN)


@post("/sandboxes/{name}/exec", "exec")
async def run(visit: Visit) -> Response:
    """Runs a command, waking the sandbox if it sleeps."""
    where, command, started = path(visit), _command(visit.form), now()
    work = visit.services.sandboxes.exec(visit.who, visit.project, where, command)
    outcome, out_of_memory = await unless_hung_up(visit.request, work)
    entry = Entry(command.command or "", started, outcome, out_of_memory)
    if visit.partial:
        return visit.piece("entry.html", entry=entry)
    view = await visit.services.sandboxes.get(visit.project, where)
    lines, head = await newest(visit, where)
    return visit.page("sandbox.html", lines=lines, head=head, entry=entry, **await state(visit, view))


routes = [run]
