"""Owns the templates: one environment that escapes everything, and the address of each static file.

Called by `visit` for pages and by `live` for rows. Invariants: escaping is never off and an undefined name is an error;
templates and static files are found beside this file, also where the service sees nothing but the code.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from kennel.api.console import text

HERE = Path(__file__).parent
STATIC = HERE / "static"
ROOT = "/console"
MAX_JSON = 16 * 1024
"""Characters of a payload that are shown."""


@cache
def static(name: str) -> str:
    """The address of a static file; it changes with its content, so that it may be cached for ever."""
    digest = hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:12]
    return f"{ROOT}/static/{name}?v={digest}"


def pretty(value: Any) -> str:
    """A value as indented JSON, cut at MAX_JSON characters."""
    shown = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    return shown if len(shown) <= MAX_JSON else f"{shown[:MAX_JSON]}\n… {len(shown) - MAX_JSON} characters more"


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        auto_reload=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "size": text.size, "age": text.age, "exact": text.exact, "duration": text.duration,
        "one_line": text.one_line, "words": text.words, "pretty": pretty,
    }  # fmt: skip
    environment.globals |= {"static": static, "root": ROOT}
    return environment


ENVIRONMENT = _environment()


def render(template: str, **context: Any) -> str:
    """A template with its context as HTML."""
    return ENVIRONMENT.get_template(template).render(**context)
