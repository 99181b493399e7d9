"""Owns what browsers send: urlencoded forms as bounded text, and their words held against the API's own models.

Called by the console's door and pages. Invariants: a form has at most MAX_FIELDS fields; line ends are `\\n`; what the
JSON API refuses is refused here with the same messages, because the same models check it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from kennel.api.failures import field_messages, invalid

MAX_FIELDS = 256
_LASTS = {"": None, "hour": 3600, "day": 86400, "week": 7 * 86400, "month": 30 * 86400}
_TYPE = "application/x-www-form-urlencoded"

M = TypeVar("M", bound=BaseModel)


class Form:
    """The fields of one submission."""

    def __init__(self, pairs: list[tuple[str, str]] | None = None) -> None:
        self._pairs = pairs or []

    def text(self, name: str, default: str = "") -> str:
        """The field's last value."""
        return next((value for key, value in reversed(self._pairs) if key == name), default)

    def all(self, name: str) -> list[str]:
        """Every value of a field, in order."""
        return [value for key, value in self._pairs if key == name]

    def flag(self, name: str) -> bool:
        """Whether a box was ticked."""
        return bool(self.text(name))


async def read_form(request: Request) -> Form:
    """The submitted form; VALIDATION_FAILED for anything but a small urlencoded one in UTF-8."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _TYPE:
        raise invalid({"body": ["must be a form"]})
    try:
        pairs = parse_qsl(
            (await request.body()).decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS
        )
    except ValueError:
        raise invalid({"body": ["could not be read"]}) from None
    return Form([(name, value.replace("\r\n", "\n").replace("\r", "\n")) for name, value in pairs])


def checked(model: type[M], words: Mapping[str, Any]) -> M:
    """The model of these words, in their wire names; VALIDATION_FAILED with messages by field."""
    try:
        return model.model_validate(dict(words))
    except ValidationError as failure:
        raise invalid(field_messages([{**one, "loc": ("body", *one["loc"])} for one in failure.errors()])) from None


def lasting(form: Form) -> int | None:
    """The seconds that the field `lasts` means, None for good; VALIDATION_FAILED for what is no choice of it."""
    chosen = form.text("lasts")
    if chosen not in _LASTS:
        raise invalid({"lasts": ["one of the choices"]})
    return _LASTS[chosen]


def assignments(field: str, text: str) -> dict[str, str]:
    """`NAME=VALUE` lines as a map; blank lines are skipped, VALIDATION_FAILED names the line that is none."""
    found: dict[str, str] = {}
    for number, line in enumerate(text.split("\n"), 1):
        name, equals, value = line.partition("=")
        if not line.strip():
            continue
        if not equals or not name.strip():
            raise invalid({field: [f"line {number} is not NAME=VALUE"]})
        found[name.strip()] = value
    return found
