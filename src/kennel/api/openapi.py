"""Owns the OpenAPI document: shapes of answers, the errors of each route, the key scheme, the limits.

Called by app.py (to serve it) and by the routes (to say what they answer). Invariant: an answer whose status is not in
the document is a bug; schemathesis looks for one on every test run.
"""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from kennel.api.body import MAX_BODY, MAX_EXEC_BODY, MAX_STDIN
from kennel.control.rooms import RoomTalk, RoomView
from kennel.control.streams import Verification
from kennel.control.turns import Reply
from kennel.domain.connection import ConnectionView
from kennel.domain.egress_state import ApprovalView, SecretView
from kennel.domain.event import Event
from kennel.domain.membership import LinkView, MemberView
from kennel.domain.replay import Replay
from kennel.domain.sandbox import Projection
from kennel.wire.errors import STATUS
from kennel.wire.results import BackupView, DiffView, ExecResult, MountView, SandboxView, SnapshotView, UsageView

Responses = dict[int | str, dict[str, Any]]

EVERYWHERE = (
    "VALIDATION_FAILED", "HOST_REFUSED", "UNAUTHORIZED", "FORBIDDEN", "ORIGIN_REFUSED", "INTERNAL_ERROR",
    "LOG_UNAVAILABLE",
)  # fmt: skip
WITH_BODY = ("BODY_TOO_LARGE", "WAIT_TIMEOUT")
IN_PROJECT = ("PROJECT_NOT_FOUND",)
OF_SANDBOX = ("SANDBOX_NOT_FOUND", "SANDBOX_CREATING", "SANDBOX_DESTROYED")
OF_NODE = (
    "NODE_UNAVAILABLE", "NO_CAPACITY", "CONTAINER_UNAVAILABLE", "SANDBOX_LOST", "SANDBOX_START_FAILED",
    "SANDBOX_BUILD_FAILED", "ISOLATION_UNAVAILABLE", "OPERATION_INTERRUPTED", "NO_SPACE", "PROTOCOL_VIOLATION",
)  # fmt: skip
OF_EXEC = (
    "INVALID_COMMAND", "INVALID_PROCESS_CWD", "INVALID_PROCESS_ENVIRONMENT", "INVALID_USER", "SESSION_NOT_FOUND",
    "COMMAND_NOT_FOUND", "COMMAND_PERMISSION_DENIED", "PROCESS_SPAWN_FAILED", "SESSION_TERMINATED",
    "SESSION_DESTROYED", "RESOURCE_BUSY", "COMMAND_EXECUTION_ERROR", "PAYLOAD_TOO_LARGE", "NOT_SUPPORTED",
)  # fmt: skip

_SHAPES = (
    ExecResult,
    SandboxView,
    Event,
    Projection,
    Verification,
    RoomView,
    RoomTalk,
    Reply,
    MemberView,
    LinkView,
    SecretView,
    ApprovalView,
    Replay,
    ConnectionView,
    SnapshotView,
    BackupView,
    DiffView,
    UsageView,
    MountView,
)

ERROR_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["error", "code"],
    "properties": {
        "error": {"type": "string", "description": "for people"},
        "code": {"type": "string", "description": "for programs; never renamed"},
        "details": {"description": "by code; for VALIDATION_FAILED messages by field"},
        "hint": {"type": "string", "description": "what to do next"},
        "admitted": {"enum": ["yes", "no", "unknown"], "description": "whether the work may have been started"},
        "retryAfterMs": {"type": "integer", "minimum": 0},
    },
}


def ref(name: str) -> dict[str, str]:
    """A reference to a named shape."""
    return {"$ref": f"#/components/schemas/{name}"}


def listing(field: str, item: dict[str, Any], **more: dict[str, Any]) -> dict[str, Any]:
    """An object whose `field` holds a list, with more fields beside it."""
    properties = {field: {"type": "array", "items": item}, **more}
    return {"type": "object", "required": [field, *more], "properties": properties}


def answers(status: int, schema: dict[str, Any] | None, *codes: str) -> Responses:
    """What a route answers: its success (no schema: an empty body) and the errors of EVERYWHERE and `codes`."""
    success: dict[str, Any] = {"description": "done"}
    if schema is not None:
        success["content"] = {"application/json": {"schema": schema}}
    by_status: dict[int, list[str]] = {}
    for code in (*EVERYWHERE, *codes):
        by_status.setdefault(STATUS[code], []).append(code)
    found: Responses = {status: success}
    for failed, names in sorted(by_status.items()):
        found[failed] = {
            "description": ", ".join(dict.fromkeys(names)),
            "content": {"application/json": {"schema": ref("Error")}},
        }
    return found


def _description() -> str:
    return (
        "Sandboxes kept like pets. JSON in and out; a body has at most "
        f"{MAX_BODY} bytes (exec: {MAX_EXEC_BODY}, of which {MAX_STDIN} decoded standard input). Every answer that is "
        "not 2xx has `error` and a stable `code` with a fixed status. An unknown route answers 404 NOT_FOUND, a wrong "
        "method 405 METHOD_NOT_ALLOWED with `Allow`, a plain GET where a WebSocket is served 426 UPGRADE_REQUIRED; "
        "without a valid key everything but `GET /health` answers 401."
    )


def document(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI 3.1 document of this application; made once."""
    if app.openapi_schema:
        return app.openapi_schema
    doc = get_openapi(title="Kennel", version=app.version, routes=app.routes, description=_description())
    components = doc.setdefault("components", {})
    schemas: dict[str, Any] = components.setdefault("schemas", {})
    for generated in ("HTTPValidationError", "ValidationError"):
        schemas.pop(generated, None)
    _, shapes = msgspec.json.schema_components(
        _SHAPES,
        ref_template="#/components/schemas/{name}",
    )
    schemas.update(shapes)
    schemas["Error"] = ERROR_SCHEMA
    components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    doc["security"] = [{"key": []}]
    for path, item in doc["paths"].items():
        for operation in item.values():
            _drop_generated_422(operation)
            if path == "/health":
                operation["security"] = []
    app.openapi_schema = doc
    return doc


def _drop_generated_422(operation: dict[str, Any]) -> None:
    """FastAPI documents its own validation status; here validation answers 400."""
    generated = operation["responses"].get("422")
    if generated is not None and generated.get("description") == "Validation Error":
        del operation["responses"]["422"]
