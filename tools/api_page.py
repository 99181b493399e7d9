"""Writes docs/api.md from the API's own OpenAPI document (`python tools/api_page.py > docs/api.md`)."""

from __future__ import annotations

import sys
from typing import Any, cast
from unittest.mock import MagicMock

from kennel.api.app import create_app
from kennel.api.openapi import document
from kennel.api.services import ApiSettings, Services
from kennel.wire.errors import HINTS, STATUS

HEAD = """# API reference

Made from the application's own OpenAPI 3.1 document (`GET /openapi.json`); a test keeps the two equal. Every answer
that is not 2xx is `{"error", "code", "details"?, "hint"?, "admitted"?, "retryAfterMs"?}`; `admitted` says whether the
work may have been started. Every route but `/health` asks for `Authorization: Bearer KEY`.
"""


def shape(schema: dict[str, Any]) -> str:
    """A schema in a few words."""
    if "$ref" in schema:
        return str(schema["$ref"].rsplit("/", 1)[-1])
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return " \\| ".join(f"`{value}`" for value in schema["enum"])
    for word in ("anyOf", "oneOf"):
        if word in schema:
            return " \\| ".join(dict.fromkeys(shape(one) for one in schema[word]))
    kind = schema.get("type", "any")
    if kind == "array":
        return f"list of {shape(schema.get('items', {}))}"
    if kind == "object" and schema.get("properties"):
        return "{" + ", ".join(schema["properties"]) + "}"
    return str(kind)


def fields(schema: dict[str, Any], schemas: dict[str, Any]) -> list[str]:
    """The fields of a body, a line each."""
    if "$ref" in schema:
        schema = schemas[schema["$ref"].rsplit("/", 1)[-1]]
    needed = set(schema.get("required", ()))
    rows = []
    for name, inner in schema.get("properties", {}).items():
        text = inner.get("description", "").split("\n")[0]
        rows.append(f"  - `{name}`{'' if name in needed else '?'}: {shape(inner)}{f'. {text}' if text else ''}")
    return rows


def operation(method: str, path: str, told: dict[str, Any], schemas: dict[str, Any]) -> list[str]:
    """One route."""
    lines = [f"### `{method.upper()} {path}`", "", (told.get("description") or told.get("summary", "")).strip(), ""]
    for parameter in told.get("parameters", ()):
        if parameter["in"] != "path":
            text = parameter.get("description", "")
            lines.append(
                f"- {parameter['in']} `{parameter['name']}`: {shape(parameter['schema'])}{f'. {text}' if text else ''}"
            )
    for kind, body in told.get("requestBody", {}).get("content", {}).items():
        lines += [f"- body ({kind}): {shape(body.get('schema', {}))}", *fields(body.get("schema", {}), schemas)]
    for status, answer in sorted(told.get("responses", {}).items()):
        kinds = ", ".join(
            f"{kind}: {shape(body.get('schema', {}))}" for kind, body in answer.get("content", {}).items()
        )
        text = answer.get("description", "").replace("\n", " ")
        lines.append(f"- **{status}** {text}{f' ({kinds})' if kinds and status < '300' else ''}")
    return [*lines, ""]


def page() -> str:
    """The whole page."""
    nothing = cast(Services, MagicMock(spec=Services))  # a description calls no service
    told = document(create_app(nothing, ApiSettings()))
    schemas = told["components"]["schemas"]
    lines = [HEAD]
    nouns: dict[str, list[str]] = {}
    for path, item in told["paths"].items():
        for method, one in item.items():
            noun = (one.get("tags") or ["other"])[0]
            nouns.setdefault(noun, []).extend(operation(method, path, one, schemas))
    for noun, rows in nouns.items():
        lines += [f"## {noun.capitalize()}", "", *rows]
    lines += ["## Shapes", ""]
    for name, schema in sorted(schemas.items()):
        lines += [f"### {name}", "", *(row[2:] for row in fields(schema, schemas)), ""]
    lines += ["## Codes", "", "| code | status | hint |", "| --- | --- | --- |"]
    for code, status in sorted(STATUS.items(), key=lambda row: (row[1], row[0])):
        lines.append(row(code, status))
    return "\n".join(line.rstrip() for line in lines).rstrip() + "\n"


def row(code: str, status: int) -> str:
    """One error code."""
    hint = HINTS.get(code, "").replace("|", "\\|")
    return f"| `{code}` | {status} | {hint} |"


if __name__ == "__main__":
    sys.stdout.write(page())
