"""Owns the list of commands: each name, its one line of help, and the module it is imported from when it is asked for.

Called by `__main__`. Invariant: listing commands, or running one, imports no other.
"""

from __future__ import annotations

from cyclopts import App, Group

SANDBOXES = Group("Sandboxes", sort_key=1)
PROJECT = Group("Project", sort_key=2)
MACHINE = Group("This machine", sort_key=3)

app = App(
    name="kennel",
    help="Sandboxes kept like pets, on machines you own.",
    version_flags=[],
    help_epilogue="Every command takes --project, --url, --data and --json, before the command or after it.",
)

for name, home, group, text in (
    ("sandbox", "sandbox:app", SANDBOXES, "Create, list, start, put to sleep and destroy sandboxes."),
    ("exec", "execute:execute", SANDBOXES, "Run a command in a sandbox: kennel exec NAME -- ARGV…"),
    ("run-code", "code:run_code", SANDBOXES, "Run code whose variables last: kennel run-code NAME 'x = 1'"),
    ("logs", "logs:logs", SANDBOXES, "Show who asked what of a sandbox, and what came of it."),
    ("cp", "copy:copy", SANDBOXES, "Copy files and directories: kennel cp SRC DST, either NAME:/path."),
    ("shell", "shell:shell", SANDBOXES, "Open a terminal in a sandbox, or come back to one."),
    ("ps", "ps:ps", SANDBOXES, "List a sandbox's background processes."),
    ("top", "top:top", SANDBOXES, "Watch what the running sandboxes use."),
    ("run", "script:run", SANDBOXES, "Run Python with `itx`, a client of the project, in scope."),
    ("room", "room:app", SANDBOXES, "Run commands and talk in a room; clean it up."),
    ("stream", "stream:app", PROJECT, "List streams, append events of your own, export."),
    ("secret", "secret:app", PROJECT, "Store, list and remove secrets."),
    ("github", "github:app", PROJECT, "GitHub connections, which sandboxes find as GH_TOKEN."),
    ("egress", "egress:app", PROJECT, "Rules of the way out, its audit, dry runs, approvals."),
    ("project", "project:app", PROJECT, "Create and list projects."),
    ("key", "key:app", PROJECT, "Create, list and revoke keys."),
    ("image", "image:app", PROJECT, "Build, list and remove images."),
    ("up", "installation:up", MACHINE, "Set up what is missing and start Kennel on this machine."),
    ("down", "installation:down", MACHINE, "Stop everything that `up` started."),
    ("doctor", "installation:doctor", MACHINE, "Check what this machine can do, with the remedy for what it cannot."),
    ("completion", "completion:completion", MACHINE, "Print a shell's completion script: bash, zsh or fish."),
    ("bench", "installation:bench", MACHINE, "Measure this installation beside the floors of this machine."),
):
    app.command(f"kennel.cli.{home}", name=name, group=group, help=text)
