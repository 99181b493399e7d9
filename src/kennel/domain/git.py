"""Owns what git's words mean: addresses of repositories, why a command failed, the states it prints; no I/O.

Called by control/git. Invariant: a password never stays in an address, a message or a detail that leaves this file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from kennel.wire.errors import KennelError, error

MAX_URL = 2048
_SHORTEST = 4
"""Characters of a secret worth hiding: a shorter one would tear words apart, and guessing it takes no log."""
_SCHEMES = ("https", "http", "ssh", "git", "file")
_SCP = re.compile(r"[A-Za-z0-9_.-]+@[A-Za-z0-9_.-]+:(?!/?/)[^\s:][^\s]*")
_PLAIN = re.compile(r"[^\s\x00-\x1f\x7f]+")
_USERINFO = re.compile(r"(?<=://)[^/@\s]+@")
_BRANCH = re.compile(r"(?![-/.])(?!.*(?:\.\.|@\{|//|\.lock(?:/|$)))[^\s~^:?*\[\\\x00-\x20\x7f]{1,255}(?<![./])")

HELPER = (
    '!f() { test "$1" = get && '
    'printf "username=%s\\npassword=%s\\n" "$KENNEL_GIT_USERNAME" "$KENNEL_GIT_PASSWORD"; }; f'
)
"""A credential helper that knows one pair, from the environment of one command."""

_REASONS = (
    (r"remote branch .* not found|couldn't find remote ref|pathspec .* did not match|invalid reference",
     "GIT_BRANCH_NOT_FOUND"),
    (r"no space left on device", "NO_SPACE"),
    (r"authentication failed|could not read (?:username|password)|terminal prompts disabled|permission denied"
     r"|invalid (?:username|credentials)|returned error: 40[13]|host key verification failed", "GIT_AUTH_FAILED"),
    (r"repository .*not found|does not appear to be a git repository|does not exist|returned error: 404"
     r"|access denied or repository not exported|not a git repository", "GIT_REPOSITORY_NOT_FOUND"),
    (r"could not resolve|failed to connect|connection (?:refused|timed out|reset|closed)|unreachable|operation too slow"
     r"|early eof|rpc failed|ssl|unable to connect|hung up unexpectedly|unable to access|transfer closed"
     r"|returned error: 5", "GIT_NETWORK_ERROR"),
)  # fmt: skip
_WHY = tuple((re.compile(pattern), code) for pattern, code in _REASONS)


@dataclass(frozen=True, slots=True)
class Repository:
    """An address without a password, and the credentials that were in it."""

    url: str
    name: str
    username: str | None = None
    password: str | None = None


def repository(url: str) -> Repository:
    """Reads an address: https, http, ssh, git, file, or user@host:path; INVALID_GIT_URL."""
    if len(url) > MAX_URL or not _PLAIN.fullmatch(url) or url.startswith("-"):
        raise _invalid(f"an address has at most {MAX_URL} characters, none of them blank")
    if _SCP.fullmatch(url):
        return Repository(url, _name(url.rpartition(":")[2]))
    try:
        parts = urlsplit(url)
        host, user, password = parts.hostname, parts.username, parts.password
        _ = parts.port
    except ValueError:
        raise _invalid("this is not an address") from None
    if parts.scheme not in _SCHEMES or (parts.scheme != "file" and not host) or not parts.path.strip("/"):
        raise _invalid(f"an address is one of {', '.join(_SCHEMES)}:// or user@host:path")
    if parts.scheme == "ssh":
        if password is not None:
            raise _invalid("ssh takes keys, not a password")
        return Repository(url, _name(parts.path))
    plain = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    pair = (None if user is None else unquote(user), None if password is None else unquote(password))
    return Repository(plain, _name(parts.path), *pair)


def _invalid(message: str) -> KennelError:
    return error("INVALID_GIT_URL", message, admitted="no")


def _name(path: str) -> str:
    name = unquote(path.rstrip("/").rpartition("/")[2]).removesuffix(".git")
    if not name or name in (".", "..") or "/" in name or "\0" in name:
        raise _invalid("this address has no name at its end")
    return name


def check_branch(name: str) -> str:
    """A branch or tag name that git would take, and that is no option; GIT_BRANCH_NOT_FOUND."""
    if not _BRANCH.fullmatch(name):
        raise error("GIT_BRANCH_NOT_FOUND", "no branch can have this name", admitted="no")
    return name


def redacted(text: str, *secrets: str | None) -> str:
    """Text without these secrets, as they are and percent-encoded, and without userinfo in addresses."""
    for secret in secrets:
        if secret and len(secret) >= _SHORTEST:
            for form in {secret, quote(secret, safe="")}:
                text = text.replace(form, "***")
    return _USERINFO.sub("***@", text)


def failure(
    code: int,
    words: str,
    *,
    timed_out: bool,
    fallback: str,
    details: dict[str, Any],
    secrets: tuple[str | None, ...] = (),
) -> KennelError:
    """Why a git command failed; `words` are its stderr, in which the `secrets` are hidden once it is understood."""
    shown = redacted(words, *secrets)
    details = {**details, "stderr": shown[-2000:], "exitCode": code}
    lines = [line.strip() for line in shown.splitlines() if line.strip()]
    told = next((line for line in lines if line.startswith(("fatal:", "error:"))), lines[-1] if lines else "it failed")
    if timed_out:
        return error("GIT_NETWORK_ERROR", "git did not end in time", details=details, admitted="yes")
    if code == 127:
        return error("NOT_SUPPORTED", "this image has no git", details=details, admitted="no")
    lowered = words.lower()
    found = next((name for pattern, name in _WHY if pattern.search(lowered)), fallback)
    return error(found, f"git: {told[:500]}", details=details, admitted="yes")


def parse_status(data: bytes) -> dict[str, Any]:
    """What `git status --porcelain=v2 --branch -z` says."""
    told: dict[str, Any] = {
        "branch": None, "commit": None, "upstream": None, "ahead": 0, "behind": 0, "files": [],
    }  # fmt: skip
    fields = iter(data.decode("utf-8", "replace").split("\0"))
    for field in fields:
        kind, _, rest = field.partition(" ")
        if kind == "#":
            _header(told, rest)
        elif kind in ("1", "u"):
            _file(told, rest, rest.split(" ", 7 if kind == "1" else 9)[-1])
        elif kind == "2":
            _file(told, rest, rest.split(" ", 8)[-1], next(fields, ""))
        elif kind in ("?", "!"):
            told["files"].append({"path": rest, "index": kind, "worktree": kind, "original": None})
    told["clean"] = not told["files"]
    return told


def _header(told: dict[str, Any], text: str) -> None:
    name, _, value = text.partition(" ")
    if name == "branch.oid":
        told["commit"] = None if value == "(initial)" else value
    elif name == "branch.head":
        told["branch"] = None if value == "(detached)" else value
    elif name == "branch.upstream":
        told["upstream"] = value
    elif name == "branch.ab" and (match := re.fullmatch(r"\+(\d{1,9}) -(\d{1,9})", value)):
        told["ahead"], told["behind"] = int(match[1]), int(match[2])


def _file(told: dict[str, Any], rest: str, path: str, original: str | None = None) -> None:
    letters = rest[:2].replace(".", " ").ljust(2)
    told["files"].append({"path": path, "index": letters[0], "worktree": letters[1], "original": original})
