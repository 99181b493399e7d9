"""Owns the public names of Kennel for programs; each is imported when it is first used.

Invariant: `__all__` is everything visible here, and importing this module imports nothing else.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kennel.sdk._async.client import AsyncKennel as AsyncKennel
    from kennel.sdk._async.rooms import AsyncRoom as AsyncRoom
    from kennel.sdk._async.sandbox import AsyncSandbox as AsyncSandbox
    from kennel.sdk._async.session import AsyncSession as AsyncSession
    from kennel.sdk._sync.client import Kennel as Kennel
    from kennel.sdk._sync.rooms import Room as Room
    from kennel.sdk._sync.sandbox import Sandbox as Sandbox
    from kennel.sdk._sync.session import Session as Session
    from kennel.sdk.answers import ImageView as ImageView
    from kennel.sdk.answers import KeyView as KeyView
    from kennel.sdk.answers import Message as Message
    from kennel.sdk.answers import NewKey as NewKey
    from kennel.sdk.answers import ProjectView as ProjectView
    from kennel.sdk.answers import RoomCleanup as RoomCleanup
    from kennel.sdk.answers import RoomReply as RoomReply
    from kennel.wire.errors import Conflict as Conflict
    from kennel.wire.errors import Failed as Failed
    from kennel.wire.errors import Forbidden as Forbidden
    from kennel.wire.errors import Gone as Gone
    from kennel.wire.errors import InvalidRequest as InvalidRequest
    from kennel.wire.errors import KennelError as KennelError
    from kennel.wire.errors import NotFound as NotFound
    from kennel.wire.errors import TimedOut as TimedOut
    from kennel.wire.errors import Unauthorized as Unauthorized
    from kennel.wire.errors import Unavailable as Unavailable
    from kennel.wire.errors import Unsupported as Unsupported
    from kennel.wire.results import ExecResult as ExecResult
    from kennel.wire.results import SandboxView as SandboxView

_HOMES = {
    "kennel.sdk._async.client": ("AsyncKennel",),
    "kennel.sdk._async.rooms": ("AsyncRoom",),
    "kennel.sdk._async.sandbox": ("AsyncSandbox",),
    "kennel.sdk._async.session": ("AsyncSession",),
    "kennel.sdk._sync.client": ("Kennel",),
    "kennel.sdk._sync.rooms": ("Room",),
    "kennel.sdk._sync.sandbox": ("Sandbox",),
    "kennel.sdk._sync.session": ("Session",),
    "kennel.sdk.answers": (
        "ImageView", "KeyView", "Message", "NewKey", "ProjectView", "RoomCleanup", "RoomReply",
    ),
    "kennel.wire.errors": (
        "Conflict", "Failed", "Forbidden", "Gone", "InvalidRequest", "KennelError", "NotFound", "TimedOut",
        "Unauthorized", "Unavailable", "Unsupported",
    ),
    "kennel.wire.results": ("ExecResult", "SandboxView"),
}  # fmt: skip
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "AsyncKennel",
    "AsyncRoom",
    "AsyncSandbox",
    "AsyncSession",
    "Conflict",
    "ExecResult",
    "Failed",
    "Forbidden",
    "Gone",
    "ImageView",
    "InvalidRequest",
    "Kennel",
    "KennelError",
    "KeyView",
    "Message",
    "NewKey",
    "NotFound",
    "ProjectView",
    "Room",
    "RoomCleanup",
    "RoomReply",
    "Sandbox",
    "SandboxView",
    "Session",
    "TimedOut",
    "Unauthorized",
    "Unavailable",
    "Unsupported",
]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'kennel' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(home), name)
    return value


def __dir__() -> list[str]:
    return list(__all__)
