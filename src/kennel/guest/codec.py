"""Owns how control payloads become JSON and back, under limits; both ends of the guest's socket use it.

Called by framing's users for OPEN, EXIT, RESULT, ERROR and HELLO. Invariant: whatever bytes arrive, `decode`
returns a flat-ish dictionary within MAX_DEPTH or raises CodecError, and nothing else. The accelerator of the
standard library's json is used without its package: importing `json` costs the guest 6 ms of CPU at start.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

try:
    from _json import encode_basestring_ascii, make_encoder, make_scanner
except ImportError:  # an interpreter without the accelerator: slower to start, same behaviour
    from json.encoder import JSONEncoder
    from json.scanner import py_make_scanner as make_scanner  # type: ignore[attr-defined, no-redef, unused-ignore]

    make_encoder = None  # type: ignore[assignment, misc]

MAX_DEPTH = 8
"""Levels of nesting a control payload may have; ours have three."""


class CodecError(ValueError):
    """A control payload that is not JSON of the agreed kind."""


def _refuse_constant(name: str) -> Any:
    raise CodecError(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if value - value != 0:
        raise CodecError("a number out of range")
    return value


def _refuse_object(value: object) -> Any:
    raise CodecError(f"{type(value).__name__} cannot go into a control payload")


class _Reading:
    """What the scanner asks of its context."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = staticmethod(_finite)
    parse_int = int
    parse_constant = staticmethod(_refuse_constant)
    memo: dict[str, str] = {}


_scan = make_scanner(_Reading())  # type: ignore[arg-type]
_encode: Callable[[object, int], tuple[str, ...]] | None = None
if make_encoder is not None:
    _encode = make_encoder(None, _refuse_object, encode_basestring_ascii, None, ":", ",", False, False, False)


def encode(value: dict[str, Any]) -> bytes:
    """Compact ASCII JSON; lone surrogates (bytes of a name that is not UTF-8) survive as escapes."""
    if _encode is None:
        return JSONEncoder(separators=(",", ":"), allow_nan=False).encode(value).encode()
    return "".join(_encode(value, 0)).encode()


def decode(data: bytes) -> dict[str, Any]:
    """The dictionary in `data`; CodecError for anything else, or deeper than MAX_DEPTH."""
    try:
        text = data.decode("utf-8")
        value, end = _scan(text, 0)
    except (ValueError, RecursionError, StopIteration, SystemError) as problem:
        # SystemError: the accelerator looks for its error class in json.decoder, which is not imported here.
        raise CodecError(f"not JSON: {type(problem).__name__}") from None
    if end != len(text):
        raise CodecError("bytes after the end")
    if type(value) is not dict:
        raise CodecError("not an object")
    if _too_deep(value):
        raise CodecError("nested too deeply")
    return value


def _too_deep(value: Any) -> bool:
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for item in level:
            if type(item) is dict:
                below.extend(item.values())
            elif type(item) is list:
                below.extend(item)
        level = [item for item in below if type(item) in (dict, list)]
        if not level:
            return False
    return True
