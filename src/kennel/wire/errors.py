"""Owns every error a caller can meet: stable codes, their HTTP status, and the exception tree.

Called by every layer that refuses something; the API writes these to the wire, the SDK reads them back.
Invariant: a code is never renamed and never changes its status; an unknown code read from a wire
becomes a plain KennelError, so nothing a server or sandbox names is ever imported or instantiated.

    KennelError
    ├── InvalidRequest (ValueError)         400, 405, 413, 416, 422, 426   the caller's words are wrong
    ├── Unauthorized                        401                  no key, or a key that is unknown or revoked
    ├── Forbidden (PermissionError)         403                  the key or the policy does not allow it
    ├── NotFound (LookupError)              404                  no such thing
    ├── Conflict                            409                  it exists, or something else holds it
    ├── Gone                                410                  it existed; it will not come back
    ├── TimedOut (TimeoutError)             408, 504             a wait ran out
    ├── Unsupported (NotImplementedError)   501                  this installation or image cannot do it
    ├── Unavailable (ConnectionError)       429, 502, 503        try again, or free something
    └── Failed                              500                  it was tried and did not work
"""

from __future__ import annotations

from typing import Any, Literal

Admitted = Literal["yes", "no", "unknown"]


class KennelError(Exception):
    """A refusal or failure with a stable code.

    `message` is for people, `code` for programs, `hint` says what to do next, `admitted` whether the work
    may have been started (`yes`, `no`, `unknown`), `retry_after_ms` when a retry can help (milliseconds).
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        details: Any = None,
        hint: str | None = None,
        admitted: Admitted | None = None,
        retry_after_ms: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details = details
        self.hint = hint if hint is not None else HINTS.get(code)
        self.admitted = admitted
        self.retry_after_ms = retry_after_ms

    @property
    def status(self) -> int:
        """The fixed HTTP status of this code; codes this version does not know are 500."""
        return STATUS.get(self.code, 500)

    def to_wire(self) -> dict[str, Any]:
        """The JSON body of `spec/api.md`: `error` and `code` always, the rest where it is set."""
        body: dict[str, Any] = {"error": self.message, "code": self.code}
        if self.details is not None:
            body["details"] = self.details
        if self.hint:
            body["hint"] = self.hint
        if self.admitted is not None:
            body["admitted"] = self.admitted
        if self.retry_after_ms is not None:
            body["retryAfterMs"] = self.retry_after_ms
        return body

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


class InvalidRequest(KennelError, ValueError): ...


class Unauthorized(KennelError): ...


class Forbidden(KennelError, PermissionError): ...


class NotFound(KennelError, LookupError): ...


class Conflict(KennelError): ...


class Gone(KennelError): ...


class TimedOut(KennelError, TimeoutError): ...


class Unsupported(KennelError, NotImplementedError): ...


class Unavailable(KennelError, ConnectionError): ...


class Failed(KennelError): ...


_CODES: dict[int, str] = {
    400: "VALIDATION_FAILED INVALID_COMMAND INVALID_PROCESS_CWD INVALID_PROCESS_ENVIRONMENT INVALID_USER"
    " IS_DIRECTORY NOT_DIRECTORY INVALID_PORT INVALID_PORT_NUMBER INVALID_GIT_URL CUSTOM_DOMAIN_REQUIRED"
    " INVALID_JSON_RESPONSE NAME_TOO_LONG MISSING_CREDENTIALS INVALID_MOUNT_CONFIG BACKUP_EXPIRED"
    " INVALID_BACKUP_CONFIG INVALID_PROCESS_CURSOR INVALID_PATH INVALID_EVENT HOST_REFUSED",
    401: "UNAUTHORIZED GIT_AUTH_FAILED",
    403: "FORBIDDEN PERMISSION_DENIED COMMAND_PERMISSION_DENIED PROCESS_PERMISSION_DENIED READ_ONLY"
    " EGRESS_DENIED APPROVAL_REJECTED APPROVAL_EXPIRED ORIGIN_REFUSED PLATFORM_TYPE_REFUSED"
    " PLATFORM_KEY_REFUSED",
    404: "NOT_FOUND SANDBOX_NOT_FOUND PROJECT_NOT_FOUND STREAM_NOT_FOUND KEY_NOT_FOUND IMAGE_NOT_FOUND"
    " SESSION_NOT_FOUND FILE_NOT_FOUND COMMAND_NOT_FOUND PROCESS_NOT_FOUND PORT_NOT_EXPOSED INVALID_TOKEN"
    " GIT_REPOSITORY_NOT_FOUND GIT_BRANCH_NOT_FOUND CONTEXT_NOT_FOUND WATCH_NOT_FOUND BACKUP_NOT_FOUND"
    " TERMINAL_NOT_FOUND SNAPSHOT_NOT_FOUND BLOB_NOT_FOUND LAYER_MISSING SECRET_NOT_FOUND",
    405: "METHOD_NOT_ALLOWED",
    408: "PROCESS_READY_TIMEOUT PROCESS_WAIT_TIMEOUT WAIT_TIMEOUT PACK_TIMEOUT",
    409: "SANDBOX_EXISTS SANDBOX_CREATING PROJECT_EXISTS SNAPSHOT_MISSING FILE_EXISTS PORT_ALREADY_EXPOSED"
    " PORT_IN_USE RESOURCE_BUSY SESSION_ALREADY_EXISTS OPERATION_INTERRUPTED STALE_PROCESS_HANDLE"
    " STALE_TERMINAL_HANDLE PROCESS_ALREADY_EXISTS PROCESS_EXITED IDEMPOTENCY_CONFLICT OFFSET_CONFLICT"
    " STACK_MISMATCH POINTER_CONFLICT DISK_TOO_SMALL",
    410: "SANDBOX_DESTROYED SESSION_DESTROYED SESSION_TERMINATED CONTEXT_TERMINATED STALE_PREVIEW_URL",
    413: "BODY_TOO_LARGE FILE_TOO_LARGE PAYLOAD_TOO_LARGE PACK_TOO_LARGE",
    416: "RANGE_NOT_SATISFIABLE",
    422: "ISOLATION_UNAVAILABLE",
    426: "UPGRADE_REQUIRED",
    429: "QUOTA_EXCEEDED",
    500: "INTERNAL_ERROR UNKNOWN_ERROR SANDBOX_START_FAILED SANDBOX_BUILD_FAILED PROCESS_SPAWN_FAILED"
    " PROCESS_EXITED_BEFORE_READY NO_SPACE TOO_MANY_FILES TOO_MANY_LINKS FILESYSTEM_ERROR"
    " COMMAND_EXECUTION_ERROR STREAM_START_ERROR PROCESS_ERROR PORT_OPERATION_ERROR GIT_CLONE_FAILED"
    " GIT_CHECKOUT_FAILED GIT_OPERATION_FAILED CODE_EXECUTION_ERROR BUCKET_MOUNT_ERROR BUCKET_UNMOUNT_ERROR"
    " WATCH_START_ERROR WATCH_STOP_ERROR BACKUP_CREATE_FAILED BACKUP_RESTORE_FAILED PATH_TOO_LONG"
    " PROTOCOL_VIOLATION LOG_CORRUPT PACK_FAILED LAYER_CORRUPT BLOB_CORRUPT",
    501: "PYTHON_NOT_AVAILABLE JAVASCRIPT_NOT_AVAILABLE NOT_SUPPORTED",
    502: "SERVICE_NOT_RESPONDING GIT_NETWORK_ERROR MODEL_FAILED",
    503: "NODE_UNAVAILABLE NO_CAPACITY CONTAINER_UNAVAILABLE SANDBOX_LOST INTERPRETER_NOT_READY"
    " MODEL_NOT_CONFIGURED CONNECTION_LOST LOG_UNAVAILABLE BLOBS_UNAVAILABLE GATEWAY_UNAVAILABLE",
}

STATUS: dict[str, int] = {code: status for status, codes in _CODES.items() for code in codes.split()}
"""Every code this version knows, with its fixed status."""

HINTS: dict[str, str] = {
    "UNAUTHORIZED": "send 'Authorization: Bearer KEY'; on the same machine the key is in <data>/admin.key",
    "SANDBOX_NOT_FOUND": 'create it first: POST /v1/projects/{project}/sandboxes {"path": "/sandboxes/NAME"}',
    "SANDBOX_EXISTS": "use it by its path, or create under another name",
    "SANDBOX_DESTROYED": "a destroyed sandbox's name is retired; choose another name",
    "SANDBOX_CREATING": "its creation has not finished; repeat the create with the same Idempotency-Key",
    "NODE_UNAVAILABLE": "the node process is not answering; 'kennel doctor' says why",
    "ISOLATION_UNAVAILABLE": "'kennel doctor' lists what each runtime on this machine can do",
    "IMAGE_NOT_FOUND": "'kennel image list' shows what is here; 'kennel image build stock' makes the stock image",
    "HOST_REFUSED": "add the host name to KENNEL_ALLOWED_HOSTS",
    "ORIGIN_REFUSED": "call from the same origin, or add the host name to KENNEL_ALLOWED_HOSTS",
    "MODEL_NOT_CONFIGURED": "set KENNEL_AI_BASE_URL and KENNEL_AI_MODEL (and KENNEL_AI_KEY, if the server asks for one)"
    " and start Kennel again",
    "CONTEXT_TERMINATED": "make a new context; its variables are gone, files are not",
    "CONNECTION_LOST": "the server went away during the call; look before you repeat it",
}

_CLASSES: dict[int, type[KennelError]] = {
    400: InvalidRequest, 401: Unauthorized, 403: Forbidden, 404: NotFound, 405: InvalidRequest, 408: TimedOut,
    409: Conflict, 410: Gone, 413: InvalidRequest, 416: InvalidRequest, 422: InvalidRequest,
    426: InvalidRequest, 429: Unavailable,
    500: Failed, 501: Unsupported, 502: Unavailable, 503: Unavailable, 504: TimedOut,
}  # fmt: skip


def error(
    code: str,
    message: str,
    *,
    details: Any = None,
    hint: str | None = None,
    admitted: Admitted | None = None,
    retry_after_ms: int | None = None,
) -> KennelError:
    """The error of this code as the class of its status: `raise error("SANDBOX_EXISTS", "…")`."""
    cls = _CLASSES.get(STATUS.get(code, 0), KennelError)
    return cls(code, message, details=details, hint=hint, admitted=admitted, retry_after_ms=retry_after_ms)


def from_wire(status: int, body: Any) -> KennelError:
    """The error a server answered with; anything that is not its shape becomes UNKNOWN_ERROR."""
    if not isinstance(body, dict) or not isinstance(body.get("error"), str):
        return error("UNKNOWN_ERROR", f"the server answered {status} without an error body")
    code = body.get("code")
    admitted = body.get("admitted")
    retry = body.get("retryAfterMs")
    return error(
        code if isinstance(code, str) else "UNKNOWN_ERROR",
        body["error"],
        details=body.get("details"),
        hint=body["hint"] if isinstance(body.get("hint"), str) else None,
        admitted=admitted if admitted in ("yes", "no", "unknown") else None,
        retry_after_ms=retry if isinstance(retry, int) else None,
    )
