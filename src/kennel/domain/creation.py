"""Owns the rules of a sandbox's beginning: what a create may ask for, the events of a birth, the view of a sandbox.

Called by control/sandboxes.py. Invariant: nothing that is not valid reaches the log; the birth is one batch whose key
does not depend on the environment, so a creation cut off anywhere finishes as it was claimed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kennel.domain import idle, leave_out, names
from kennel.domain.claim import Claim
from kennel.domain.command import DEFAULT_CWD, Command, Outcome
from kennel.domain.create_options import CreateOptions
from kennel.domain.event import NewEvent, fact
from kennel.domain.instance_type import INSTANCE_TYPES
from kennel.domain.principal import Principal
from kennel.domain.sandbox import Projection
from kennel.wire.errors import KennelError, error
from kennel.wire.results import SandboxView

ISOLATIONS = ("container",)
KNOWN_ISOLATIONS = ("container", "gvisor")
PERSISTS = ("workspace", "disk")
MAX_ENV = 64 * 1024
MAX_LABELS = 64
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}")
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,62}")


def _invalid(field: str, message: str) -> KennelError:
    return error("VALIDATION_FAILED", "invalid request", details={field: [message]}, admitted="no")


def check(options: CreateOptions) -> None:
    """Raises VALIDATION_FAILED, or ISOLATION_UNAVAILABLE for a level that cannot be given here."""
    if options.instance_type not in INSTANCE_TYPES:
        raise _invalid("instanceType", f"one of {', '.join(INSTANCE_TYPES)}")
    if options.isolation not in KNOWN_ISOLATIONS:
        raise _invalid("isolation", f"one of {', '.join(KNOWN_ISOLATIONS)}")
    if options.isolation not in ISOLATIONS:
        raise error(
            "ISOLATION_UNAVAILABLE",
            f"isolation {options.isolation!r} is not available on this machine, and is never downgraded",
            details={"asked": options.isolation, "available": list(ISOLATIONS)},
            admitted="no",
        )
    if options.persist not in PERSISTS:
        raise _invalid("persist", f"one of {', '.join(PERSISTS)}")
    idle.seconds(options.sleep_after)
    check_env(options.env)
    check_labels(options.labels)
    leave_out.checked(options.leave_out)


def check_env(env: Mapping[str, str | None]) -> dict[str, str | None]:
    """The same map; names are those of a shell, values hold no NUL, all of it is under 64 KiB."""
    size = 0
    for name, value in env.items():
        if not _ENV_NAME.fullmatch(name):
            raise _invalid("env", f"{name[:80]!r} is not a variable's name")
        if value is not None and "\0" in value:
            raise _invalid("env", f"the value of {name} holds a NUL")
        size += len(name) + len(value or "")
    if size > MAX_ENV:
        raise _invalid("env", f"all names and values together have at most {MAX_ENV} characters")
    return dict(env)


def check_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """The same map; at most 64 labels, names of 1 to 63 characters, values of at most 255."""
    if len(labels) > MAX_LABELS:
        raise _invalid("labels", f"at most {MAX_LABELS} labels")
    for name, value in labels.items():
        if not _LABEL.fullmatch(name):
            raise _invalid("labels", f"{name[:80]!r} is not a label's name")
        if len(value) > 255:
            raise _invalid("labels", f"the value of {name} has more than 255 characters")
    return dict(labels)


def birth(who: Principal, claim: Claim) -> list[NewEvent]:
    """`created`, and the first `configured` where the claim carries settings, as one batch."""
    options = claim.options
    config = {
        "instanceType": options.instance_type,
        "image": options.image,
        "imageDigest": claim.image_digest,
        "isolation": options.isolation,
        "persist": options.persist,
        "sandboxId": claim.sandbox_id,
    }
    events = [fact(who, "sandbox/created", {"config": config}, key=f"created:{claim.sandbox_id}")]
    settings: dict[str, Any] = {}
    if options.env:
        settings["env"] = options.env
    if options.sleep_after is not None:
        settings["sleepAfter"] = options.sleep_after
    if options.keep_alive:
        settings["keepAlive"] = True
    if options.labels:
        settings["labels"] = options.labels
    if options.leave_out:
        settings["leaveOut"] = options.leave_out
    if options.points:
        settings["points"] = True
    if settings:
        events.append(fact(who, "sandbox/configured", settings, key=f"first-configured:{claim.sandbox_id}"))
    if options.origin is not None:
        events.append(fact(who, "sandbox/backup-created", options.origin, key="pointer:0"))
    return events


def view(claim: Claim, state: Projection) -> SandboxView:
    """The sandbox as answers show it; one whose creation has not finished has status `creating`."""
    options = claim.options
    return SandboxView(
        path=claim.path,
        name=names.name_of(claim.path),
        project=claim.project,
        status=state.status or "creating",
        running=state.running,
        instance_type=options.instance_type,
        image=options.image,
        image_digest=claim.image_digest,
        isolation=options.isolation,
        created_at=state.created_at or claim.claimed_at,
        sandbox_id=claim.sandbox_id,
        env=state.env,
        labels=state.labels if state.status else options.labels,
        sleep_after=state.sleep_after if state.status else options.sleep_after,
        keep_alive=state.keep_alive if state.status else options.keep_alive,
        persist=options.persist,
        last_backup_id=state.last_backup_id,
        leave_out=state.leave_out if state.status else options.leave_out,
        last_backup_at=state.workspace.saved_at if state.last_backup_id is not None else None,
        points=state.points if state.status else options.points,
    )


COMMAND_LOGGED = 500
"""Characters of a command that are kept in the log."""


def started(exec_id: str, command: Command) -> dict[str, Any]:
    """The payload of `exec-started`: what was asked for, cut to what a log can keep."""
    text = command.command if command.command is not None else " ".join(command.argv or ())
    # A lone surrogate is legal JSON but no text that a log can keep.
    logged = text[:COMMAND_LOGGED].encode(errors="backslashreplace").decode()
    cwd = command.cwd if command.session_id is not None else command.cwd or DEFAULT_CWD
    return {
        "execId": exec_id,
        "command": logged[:COMMAND_LOGGED],
        **({} if cwd is None else {"cwd": cwd}),
        **({"timeoutMs": command.timeout_ms} if command.timeout_ms else {}),
    }


def finished(exec_id: str, outcome: Outcome) -> dict[str, Any]:
    """The payload of `exec-finished`: how it ended, never what it printed."""
    return {
        "execId": exec_id,
        "exitCode": outcome.exit_code,
        **({"signal": outcome.signal} if outcome.signal else {}),
        "timedOut": outcome.timed_out,
        "durationMs": round(outcome.duration_ms, 3),
        "stdoutBytes": outcome.stdout_bytes,
        "stderrBytes": outcome.stderr_bytes,
    }
