# Generated from sdk/_async by tools/make_sync.py; change it there.
"""Owns git in a sandbox as programs use it: clone, status, diff, commit, push, branches.

Part of the sandbox's handle. Invariant: credentials travel in the body of one call and are in no URL that is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from kennel.sdk._sync.transport import Transport
from kennel.sdk.execution import milliseconds
from kennel.sdk.file_records import GitBranches, GitCheckout, GitOutcome, GitStatus

T = TypeVar("T")
CLONE_SECONDS = 600.0


class GitMethods:
    """The part of a sandbox's handle that is about git; `directory` is a repository inside."""

    _transport: Transport
    _route: str

    def git_checkout(
        self,
        url: str,
        *,
        branch: str | None = None,
        target_dir: str | None = None,
        depth: int | None = None,
        timeout: float = CLONE_SECONDS,
        username: str | None = None,
        password: str | None = None,
    ) -> GitCheckout:
        """Clones a repository into /workspace/NAME, or `target_dir`; `timeout` is in seconds.

        Raises GIT_REPOSITORY_NOT_FOUND, GIT_BRANCH_NOT_FOUND, GIT_AUTH_FAILED, GIT_NETWORK_ERROR, GIT_CLONE_FAILED.
        """
        body = {
            "url": url, "branch": branch, "targetDir": target_dir, "depth": depth, "timeout": milliseconds(timeout),
            "username": username, "password": password,
        }  # fmt: skip
        return self._git("checkout", GitCheckout, body, timeout)

    def git_status(self, directory: str = "/workspace") -> GitStatus:
        """Branch, commit and changed files."""
        return self._git("status", GitStatus, {"directory": directory})

    def git_diff(self, directory: str = "/workspace", *, staged: bool = False, ref: str | None = None) -> str:
        """What changed, as a patch: in the work tree, in the index (`staged`), or since `ref`."""
        body = {"directory": directory, "staged": staged, "ref": ref}
        return (self._git("diff", GitOutcome, body)).output

    def git_commit(
        self, message: str, directory: str = "/workspace", *, paths: Sequence[str] | None = None, all: bool = True
    ) -> str:
        """Commits everything that changed, or `paths`, or what is staged (`all=False`); the new commit's id."""
        body = {"directory": directory, "message": message, "paths": None if paths is None else list(paths), "all": all}
        return (self._git("commit", GitOutcome, body)).output

    def git_push(
        self,
        directory: str = "/workspace",
        *,
        remote: str = "origin",
        branch: str | None = None,
        username: str | None = None,
        password: str | None = None,
        timeout: float = CLONE_SECONDS,
    ) -> str:
        """Pushes the current branch, or `branch`; what git said."""
        body = {
            "directory": directory, "remote": remote, "branch": branch, "username": username, "password": password,
            "timeout": milliseconds(timeout),
        }  # fmt: skip
        return (self._git("push", GitOutcome, body, timeout)).output

    def git_branches(self, directory: str = "/workspace") -> GitBranches:
        """Local and remote branches."""
        return self._git("branches", GitBranches, {"directory": directory})

    def git_switch(self, branch: str, directory: str = "/workspace", *, create: bool = False) -> str:
        """Checks another branch out; with `create` a new one."""
        body = {"directory": directory, "branch": branch, "create": create}
        return (self._git("switch", GitOutcome, body)).output

    def _git(self, verb: str, shape: type[T], body: dict[str, Any], extra: float = 0.0) -> T:
        told = {name: value for name, value in body.items() if value is not None}
        return self._transport.call("POST", f"{self._route}/git/{verb}", shape, body=told, extra=extra)
