"""Owns what a request to run something means: checks its words and makes the job a subreaper carries out.

Called by exec and session. Invariant: a job is complete: the subreaper looks nothing up and decides nothing.
"""

from __future__ import annotations

import os

from .accounts import Account, Accounts
from .refusal import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
BASHES = ("/bin/bash", "/usr/bin/bash")
SH = "/bin/sh"
_MOST_ENV = 10_000
_MOST_ARGUMENT = 128 * 1024 - 1
"""Bytes the kernel takes in one argument."""

Identity = tuple[int, int, tuple[int, ...]]
Job = tuple[tuple[bytes, ...], tuple[bytes, ...], dict[bytes, bytes], bytes, Identity | None]
"""(files to try, arguments, environment, working directory, identity to take on or None); marshalled to a subreaper."""


def text_of(args: dict[str, Any], name: str, default: str | None = None) -> str | None:
    """An optional text among the arguments of a call; no NUL, which no argument of a program can hold."""
    value = args.get(name)
    if value is None:
        return default
    if type(value) is not str or "\0" in value:
        raise Refusal("INVALID_COMMAND", f"{name} must be a text without NUL")
    return value


def int_of(args: dict[str, Any], name: str, low: int, high: int) -> int | None:
    """An optional whole number among the arguments, within its bounds."""
    value = args.get(name)
    if value is None:
        return None
    if type(value) is not int or not low <= value <= high:
        raise Refusal("INVALID_COMMAND", f"{name} must be a whole number from {low} to {high}")
    return value


def env_of(args: dict[str, Any]) -> dict[str, str]:
    """The `env` argument: names without '=' and NUL, values without NUL."""
    value = args.get("env")
    if value is None:
        return {}
    if type(value) is not dict or len(value) > _MOST_ENV:
        raise Refusal("INVALID_PROCESS_ENVIRONMENT", "env must map names to texts")
    for name, text in value.items():
        if not name or "=" in name or "\0" in name or type(text) is not str or "\0" in text:
            raise Refusal("INVALID_PROCESS_ENVIRONMENT", f"{name[:100]!r} cannot be an environment variable")
    return value


def bash() -> str | None:
    """The image's bash, if it has one."""
    return next((path for path in BASHES if os.access(path, os.X_OK)), None)


_GIVEN = "KENNEL_GIVEN_"
"""Prefix under which the host puts what every command is given (the roots that programs trust)."""
GIVEN = {name[len(_GIVEN) :]: value for name, value in os.environ.items() if name.startswith(_GIVEN)}


_PLANTED: dict[str, str] = {}
"""What the host planted at this start (a connection's token): the sandbox's own variables come before it."""


def plant(args: dict[str, Any]) -> dict[str, Any]:
    """Replaces what every command from now on is given beside `GIVEN`."""
    env = env_of(args)
    _PLANTED.clear()
    _PLANTED.update(env)
    return {"count": len(env)}


def environment(account: Account, extra: dict[str, str]) -> dict[str, str]:
    """The guest's minimal environment, what the host gives, then the caller's."""
    own = {"PATH": PATH, "HOME": account.home, "USER": account.name, "LANG": "C.UTF-8"}
    return {**own, **GIVEN, **_PLANTED, **extra}


def job_for(args: dict[str, Any], accounts: Accounts, spill: Callable[[bytes, Account], str]) -> Job:
    """The job of an exec: its shell or program, environment, directory and identity.

    `spill` makes a file of a command that is longer than one argument may be; its path.
    """
    account = accounts.find(text_of(args, "user"))
    env = environment(account, env_of(args))
    command, argv = text_of(args, "command"), args.get("argv")
    if (command is None) is (argv is None):
        raise Refusal("INVALID_COMMAND", "exactly one of command and argv is needed")
    words: tuple[str, ...]
    if command is not None:
        shell = bash() or SH
        script = _bytes(command)
        if len(script) > _MOST_ARGUMENT:
            command = f". {spill(script, account)}"
        words, files = (shell.rpartition("/")[2], "-c", command), [shell]
    else:
        words = words_of(argv)
        files = _candidates(words[0], env.get("PATH", PATH))
    return assemble(files, words, env, text_of(args, "cwd", "/") or "/", account)


def assemble(files: list[str], words: tuple[str, ...], env: dict[str, str], cwd: str, account: Account) -> Job:
    """The job in the bytes the kernel takes."""
    if not cwd.startswith("/"):
        raise Refusal("INVALID_PROCESS_CWD", "the working directory must be an absolute path", cwd=cwd[:200])
    identity = None
    if account.uid != os.getuid() or account.gid != os.getgid():
        identity = (account.uid, account.gid, tuple(account.groups))
    return (
        tuple(map(_bytes, files)),
        tuple(map(_bytes, words)),
        {_bytes(name): _bytes(value) for name, value in env.items()},
        _bytes(cwd),
        identity,
    )


def words_of(argv: Any) -> tuple[str, ...]:
    """The `argv` argument: a program and its arguments."""
    if type(argv) is not list or not argv or not argv[0]:
        raise Refusal("INVALID_COMMAND", "argv must be a list that begins with a program")
    for word in argv:
        if type(word) is not str or "\0" in word:
            raise Refusal("INVALID_COMMAND", "argv must hold texts without NUL")
    return tuple(argv)


def _candidates(program: str, path: str) -> list[str]:
    if "/" in program:
        return [program]
    return [f"{folder or '.'}/{program}" for folder in path.split(":")[:1000]]


def _bytes(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise Refusal("INVALID_COMMAND", "a text holds half a character") from None
