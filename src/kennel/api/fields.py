"""Owns the constrained values that requests are made of: names, environments, limits.

Called by the routes' models. Invariant: every text and collection has a bound, and nothing that reaches a service holds
a NUL or a value of another JSON type than the contract's.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from fastapi import Path, Query
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    StringConstraints,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel

from kennel.domain.names import KNOWN_NAME

MAX_ARGUMENT = 128 * 1024 - 1
"""Bytes of one argument: Linux's MAX_ARG_STRLEN without its NUL; a longer one could never be started."""
MAX_ARGUMENTS = 1024 * 1024
"""Bytes of all arguments together; the kernel's own bound is a quarter of the stack limit, 2 MiB."""
MAX_ENV = 512
MAX_SLEEP_AFTER = 365 * 24 * 3600
MAX_SESSION_ID = 64


class Model(BaseModel):
    """A request body: camelCase, strict types, unknown fields refused."""

    model_config = ConfigDict(strict=True, extra="forbid", alias_generator=to_camel, validate_by_name=False)


def _no_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("must not hold a NUL character")
    return text


def _argument(text: str) -> str:
    if len(text) * 4 > MAX_ARGUMENT and len(text.encode()) > MAX_ARGUMENT:
        raise ValueError(f"has at most {MAX_ARGUMENT} bytes")
    return _no_nul(text)


def _environment(env: dict[str, Any]) -> dict[str, Any]:
    for name in env:
        if not name or "=" in name or "\0" in name or len(name) > 256:
            raise ValueError("a variable's name has 1 to 256 characters, none of them '=' or NUL")
    return env


def _labels(labels: dict[str, str]) -> dict[str, str]:
    if not all(_LABEL_NAME.fullmatch(name) for name in labels):
        raise ValueError("a label's name has 1 to 64 of A-Z, a-z, 0-9 and '_./-'")
    return labels


def _whole(value: Any) -> Any:
    # JSON has one kind of number: 5.0 is as whole as 5.
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _filled(text: Any) -> Any:
    if text == "":
        raise ValueError("Command cannot be empty")
    return text


def _sleep_after(value: Any) -> str | int:
    # One check instead of a union, whose complaints would carry the names of its branches.
    value = _whole(value)
    if isinstance(value, str) and len(value) <= 32:
        return value
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_SLEEP_AFTER:
        return value
    raise ValueError(f"seconds from 0 to {MAX_SLEEP_AFTER}, or text such as '10m'")


NO_NUL: dict[str, Any] = {"not": {"pattern": r"\u0000"}}
_LABEL_NAME = re.compile(r"[A-Za-z0-9_./-]{1,64}")
_LABEL_NAMES: dict[str, Any] = {"propertyNames": {"pattern": f"^{_LABEL_NAME.pattern}$"}}
_VARIABLES: dict[str, Any] = {"propertyNames": {"minLength": 1, "maxLength": 256, "pattern": r"^[^=\u0000]+$"}}

Argument = Annotated[
    str, StringConstraints(max_length=MAX_ARGUMENT), AfterValidator(_argument), Field(json_schema_extra=NO_NUL)
]
CommandText = Annotated[Argument, BeforeValidator(_filled), Field(min_length=1)]
AbsolutePath = Annotated[
    str,
    StringConstraints(max_length=4096, pattern=r"^/"),
    AfterValidator(_no_nul),
    Field(json_schema_extra=NO_NUL),
]
User = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,31}(?::[0-9]{1,10})?$")]
SESSION_PATTERN = rf"^[A-Za-z0-9_][A-Za-z0-9_.-]{{0,{MAX_SESSION_ID - 1}}}$"
SessionId = Annotated[str, StringConstraints(pattern=SESSION_PATTERN)]
Environment = Annotated[
    dict[str, Argument | None], Field(max_length=MAX_ENV, json_schema_extra=_VARIABLES), AfterValidator(_environment)
]
Label = Annotated[str, StringConstraints(max_length=256)]
Labels = Annotated[dict[str, Label], Field(max_length=64, json_schema_extra=_LABEL_NAMES), AfterValidator(_labels)]
INTEGRAL = BeforeValidator(_whole)
"""Goes last in an annotation, so that the bounds stay in the document."""
SleepAfter = Annotated[
    Any,
    PlainValidator(_sleep_after),
    WithJsonSchema(
        {"anyOf": [{"type": "string", "maxLength": 32}, {"type": "integer", "minimum": 0, "maximum": MAX_SLEEP_AFTER}]}
    ),
]

ProjectName = Annotated[str, Path(min_length=1, max_length=63)]
SandboxName = Annotated[str, Path(pattern=f"^{KNOWN_NAME}$")]
Limit = Annotated[int, Query(ge=1, le=1000)]
Cursor = Annotated[str | None, Query(max_length=1024)]

IDEMPOTENCY_KEY = re.compile(r"[!-~]{1,128}")
"""Visible ASCII: Kennel's own request ids hold a blank and so cannot be met."""

Pattern = Annotated[
    str, StringConstraints(min_length=1, max_length=256), AfterValidator(_no_nul), Field(json_schema_extra=NO_NUL)
]


class LeaveOut(Model):
    """What snapshots leave out: `node_modules`, what git ignores in checkouts, and paths that match patterns."""

    node_modules: bool = True
    gitignore: bool = True
    patterns: Annotated[list[Pattern], Field(max_length=64)] = []

    def words(self) -> dict[str, Any]:
        """What was said, as it is stored."""
        return self.model_dump(by_alias=True, exclude_unset=True)
