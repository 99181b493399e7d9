"""Owns git in a sandbox: clone, status, diff, commit, push, branches; each a git process inside, never on the host.

Called by the API. Invariant: a hostile repository runs what it likes where it lies, in its sandbox; credentials reach
git by the environment of one command and are in no argument, file, log or answer.
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kennel.control.files import Admission
from kennel.domain import git as rules
from kennel.domain.command import Command, Outcome
from kennel.domain.principal import Principal
from kennel.wire.errors import error

HOME = "/workspace"
QUICK_MS = 120_000
"""What a command that needs no network may take."""
_ENVIRONMENT = {
    "LC_ALL": "C.UTF-8",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_PAGER": "cat",
    "GIT_SSH_COMMAND": "ssh -oBatchMode=yes -oStrictHostKeyChecking=accept-new",
}
_SLOW = ("-c", "http.lowSpeedLimit=1024", "-c", "http.lowSpeedTime=30")


@dataclass(frozen=True, slots=True)
class Place:
    """Whose call it is, and in which sandbox."""

    who: Principal
    project: str
    box: str


@dataclass(frozen=True, slots=True)
class Clone:
    """What to clone; `timeout_ms` bounds all of it."""

    url: str
    branch: str | None = None
    target: str | None = None
    depth: int | None = None
    timeout_ms: int = 600_000
    username: str | None = None
    password: str | None = None


class Git:
    """Git commands in sandboxes."""

    def __init__(self, sandboxes: Admission) -> None:
        self._sandboxes = sandboxes

    async def checkout(self, place: Place, asked: Clone) -> dict[str, Any]:
        """Clones; the typed failures of the contract."""
        where = rules.repository(asked.url)
        user = asked.username if asked.username is not None else where.username
        password = asked.password if asked.password is not None else where.password
        target = posixpath.join(HOME, asked.target or where.name)
        words = ["clone"]
        if asked.depth is not None:
            words += ["--depth", str(asked.depth)]
        if asked.branch is not None:
            words += ["--branch", rules.check_branch(asked.branch)]
        details = {"repository": where.url, "targetDir": target, "branch": asked.branch}
        await self._run(
            place, [*words, "--", where.url, target], cwd="/", timeout_ms=asked.timeout_ms, user=user,
            password=password, fallback="GIT_CLONE_FAILED", details=details,
        )  # fmt: skip
        state = await self.status(place, target)
        return {
            "success": True, "repoUrl": where.url, "branch": state["branch"] or asked.branch or "HEAD",
            "targetDir": target, "commit": state["commit"],
        }  # fmt: skip

    async def status(self, place: Place, directory: str) -> dict[str, Any]:
        """Branch, commit, changed files."""
        outcome = await self._run(place, ["status", "--porcelain=v2", "--branch", "-z"], cwd=directory)
        return rules.parse_status(outcome.stdout)

    async def diff(self, place: Place, directory: str, *, staged: bool, ref: str | None) -> dict[str, Any]:
        """What changed, as a patch."""
        words = ["diff", "--no-color", "--no-ext-diff", *(["--cached"] if staged else [])]
        if ref is not None:
            words += ["--end-of-options", rules.check_branch(ref)]
        outcome = await self._run(place, [*words, "--"], cwd=directory)
        text = outcome.stdout.decode("utf-8", "replace")
        return {"success": True, "output": text, "truncated": outcome.stdout_truncated}

    async def commit(
        self, place: Place, directory: str, message: str, *, paths: Sequence[str] | None, everything: bool
    ) -> dict[str, Any]:
        """Commits; the new commit's id."""
        if paths is not None:
            await self._run(place, ["add", "-A", "--", *paths], cwd=directory)
        elif everything:
            await self._run(place, ["add", "-A"], cwd=directory)
        words = ["commit", "-q", "-F", "-", *(["--only", "--", *paths] if paths is not None else [])]
        await self._run(place, words, cwd=directory, stdin=message.encode())
        outcome = await self._run(place, ["rev-parse", "HEAD"], cwd=directory)
        return {"success": True, "output": outcome.stdout.decode("ascii", "replace").strip()}

    async def push(
        self,
        place: Place,
        directory: str,
        *,
        remote: str,
        branch: str | None,
        username: str | None,
        password: str | None,
        timeout_ms: int,
    ) -> dict[str, Any]:
        """Pushes a branch, HEAD's without a name."""
        words = ["push", "--porcelain", "--", remote, rules.check_branch(branch) if branch else "HEAD"]
        outcome = await self._run(
            place, words, cwd=directory, timeout_ms=timeout_ms, user=username, password=password,
            details={"remote": rules.redacted(remote)},
        )  # fmt: skip
        text = (outcome.stdout + outcome.stderr).decode("utf-8", "replace")
        return {"success": True, "output": rules.redacted(text, username, password)}

    async def branches(self, place: Place, directory: str) -> dict[str, Any]:
        """Local and remote branches, and the current one."""
        words = ["for-each-ref", "--format=%(HEAD)%(refname)", "refs/heads", "refs/remotes"]
        outcome = await self._run(place, words, cwd=directory)
        told: dict[str, Any] = {"current": None, "branches": [], "remotes": []}
        for line in outcome.stdout.decode("utf-8", "replace").splitlines():
            mark, name = line[:1], line[1:]
            kind = "branches" if name.startswith("refs/heads/") else "remotes"
            name = name.removeprefix("refs/heads/").removeprefix("refs/remotes/")
            told[kind].append(name)
            if mark == "*":
                told["current"] = name
        return told

    async def switch(self, place: Place, directory: str, branch: str, *, create: bool) -> dict[str, Any]:
        """Checks another branch out."""
        words = ["switch", *(["-c"] if create else []), rules.check_branch(branch)]
        outcome = await self._run(place, words, cwd=directory, fallback="GIT_CHECKOUT_FAILED")
        return {"success": True, "output": outcome.stderr.decode("utf-8", "replace").strip()}

    async def _run(
        self,
        place: Place,
        words: Sequence[str],
        *,
        cwd: str,
        timeout_ms: int = QUICK_MS,
        stdin: bytes = b"",
        user: str | None = None,
        password: str | None = None,
        fallback: str = "GIT_OPERATION_FAILED",
        details: dict[str, Any] | None = None,
    ) -> Outcome:
        """One git command; a failure as the contract's error."""
        options: list[str] = [*_SLOW]
        env = dict(_ENVIRONMENT)
        if password is not None or user is not None:
            # The empty one first forgets every helper that the image or a repository has configured.
            options += ["-c", "credential.helper=", "-c", f"credential.helper={rules.HELPER}"]
            env |= {"KENNEL_GIT_USERNAME": user or "git", "KENNEL_GIT_PASSWORD": password or ""}
        argv = ("git", *options, *words)
        async with self._sandboxes.guest(place.who, place.project, place.box) as (live, state):
            command = Command(argv=argv, cwd=cwd, env={**state.env, **env}, stdin=stdin, timeout_ms=timeout_ms)
            outcome = await live.guest.exec(command)
        if outcome.exit_code or outcome.timed_out:
            raise rules.failure(
                outcome.exit_code, outcome.stderr.decode("utf-8", "replace"), timed_out=outcome.timed_out,
                fallback=fallback, details={"directory": cwd} if details is None else details,
                secrets=(password, user),
            )  # fmt: skip
        return outcome


def check_directory(directory: str) -> str:
    """An absolute directory, from /workspace on when it is relative; INVALID_PATH."""
    if not directory or "\0" in directory or len(directory) > 4095:
        raise error("INVALID_PATH", "a directory is a path without NUL", admitted="no")
    return posixpath.join(HOME, directory)
