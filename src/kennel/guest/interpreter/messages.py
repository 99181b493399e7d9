"""Owns what a Jupyter message means to whoever runs a cell; no I/O.

Called by the Python contexts for every message of their kernel, which is the user's own program: whatever it says is of
the right type afterwards, or nothing. Invariant: a message of another cell, or of no known kind, is nothing.
"""

from __future__ import annotations

import re
from typing import Any

from .budget import shortened

_SGR = re.compile(r"\x1b\[[0-9;]*m")
_NAME = 200
_VALUE = 16 * 1024
_MOST_FORMATS = 32


def events(kind: str, content: dict[str, Any], metadata: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """The events of one message on a kernel's publishing channel."""
    if kind == "stream":
        stream, text = content.get("name"), content.get("text")
        if stream in ("stdout", "stderr") and isinstance(text, str) and text:
            return [{"event": stream, "text": text}]
    elif kind in ("execute_result", "display_data", "update_display_data"):
        return _result(kind, content)
    elif kind == "error":
        return [failure(content)]
    elif kind == "clear_output":
        return [{"event": "clear", "wait": content.get("wait") is True}]
    return []


def _result(kind: str, content: dict[str, Any]) -> list[dict[str, Any]]:
    data = content.get("data")
    if not isinstance(data, dict):
        return []
    found: dict[str, Any] = {"event": "result", "main": kind == "execute_result", "data": bundle(data)}
    told = content.get("metadata")
    if isinstance(told, dict) and told:
        found["metadata"] = told
    transient = content.get("transient")
    identity = transient.get("display_id") if isinstance(transient, dict) else None
    if isinstance(identity, str):
        found |= {"displayId": identity[:_NAME], "update": kind == "update_display_data"}
    return [found]


def bundle(data: dict[str, Any]) -> dict[str, Any]:
    """The formats of a result; lists of lines, which old libraries send, become texts."""
    found: dict[str, Any] = {}
    for name, value in list(data.items())[:_MOST_FORMATS]:
        if not isinstance(name, str) or not 0 < len(name) <= _NAME:
            continue
        if name.startswith(("text/", "image/", "application/javascript", "application/pdf")):
            if isinstance(value, list):
                value = "".join(part for part in value if isinstance(part, str))
            if not isinstance(value, str):
                continue
        found[name] = value
    return found


def failure(content: dict[str, Any]) -> dict[str, Any]:
    """An exception: name, value, the traceback's lines without colours."""
    lines: list[str] = []
    told = content.get("traceback")
    for part in told if isinstance(told, list) else []:
        lines += _SGR.sub("", part).split("\n") if isinstance(part, str) else []
    return {
        "event": "error",
        "name": _text(content.get("ename"), "Error", _NAME),
        "value": _text(content.get("evalue"), "", _VALUE),
        "traceback": shortened(lines),
    }


def count_of(content: dict[str, Any]) -> int | None:
    """How many cells this kernel has run, if the message says so."""
    count = content.get("execution_count")
    return count if type(count) is int and 0 <= count < 1 << 53 else None


def _text(value: object, default: str, most: int) -> str:
    return value[:most] if isinstance(value, str) else default


def paged(reply: dict[str, Any]) -> list[dict[str, Any]]:
    """What a cell wants to show in a pager (`name?`), as a result."""
    payload = reply.get("payload")
    found: list[dict[str, Any]] = []
    for part in payload[:_MOST_FORMATS] if isinstance(payload, list) else []:
        if isinstance(part, dict) and part.get("source") == "page" and isinstance(part.get("data"), dict):
            found += _result(
                "display_data", {"data": {"text/plain": _SGR.sub("", str(part["data"].get("text/plain")))}}
            )
    return found
