"""Owns the public names of Kennel for programs; each is imported when it is first used.

Invariant: `__all__` is everything visible here, and importing this module imports nothing else.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kennel.sdk._async.client import AsyncKennel as AsyncKennel
    from kennel.sdk._async.exec_stream import AsyncExecStream as AsyncExecStream
    from kennel.sdk._async.exec_stream import AsyncInteraction as AsyncInteraction
    from kennel.sdk._async.following import AsyncExport as AsyncExport
    from kennel.sdk._async.following import AsyncFollowing as AsyncFollowing
    from kennel.sdk._async.interpreter import AsyncCodeContext as AsyncCodeContext
    from kennel.sdk._async.interpreter import AsyncCodeStream as AsyncCodeStream
    from kennel.sdk._async.process import AsyncProcess as AsyncProcess
    from kennel.sdk._async.rooms import AsyncRoom as AsyncRoom
    from kennel.sdk._async.sandbox import AsyncSandbox as AsyncSandbox
    from kennel.sdk._async.session import AsyncSession as AsyncSession
    from kennel.sdk._async.streams import AsyncStream as AsyncStream
    from kennel.sdk._async.terminal import AsyncTerminal as AsyncTerminal
    from kennel.sdk._async.web_socket import AsyncWebSocket as AsyncWebSocket
    from kennel.sdk._sync.client import Kennel as Kennel
    from kennel.sdk._sync.exec_stream import ExecStream as ExecStream
    from kennel.sdk._sync.exec_stream import Interaction as Interaction
    from kennel.sdk._sync.following import Export as Export
    from kennel.sdk._sync.following import Following as Following
    from kennel.sdk._sync.interpreter import CodeContext as CodeContext
    from kennel.sdk._sync.interpreter import CodeStream as CodeStream
    from kennel.sdk._sync.process import Process as Process
    from kennel.sdk._sync.rooms import Room as Room
    from kennel.sdk._sync.sandbox import Sandbox as Sandbox
    from kennel.sdk._sync.session import Session as Session
    from kennel.sdk._sync.streams import Stream as Stream
    from kennel.sdk._sync.terminal import Terminal as Terminal
    from kennel.sdk._sync.web_socket import WebSocket as WebSocket
    from kennel.sdk.advice import KennelWarning as KennelWarning
    from kennel.sdk.answers import ImageView as ImageView
    from kennel.sdk.answers import KeyView as KeyView
    from kennel.sdk.answers import Message as Message
    from kennel.sdk.answers import NewKey as NewKey
    from kennel.sdk.answers import ProjectView as ProjectView
    from kennel.sdk.answers import RoomCleanup as RoomCleanup
    from kennel.sdk.answers import RoomReply as RoomReply
    from kennel.sdk.code_records import CodeContextInfo as CodeContextInfo
    from kennel.sdk.code_records import CodeError as CodeError
    from kennel.sdk.code_records import CodeEvent as CodeEvent
    from kennel.sdk.code_records import CodeResult as CodeResult
    from kennel.sdk.code_records import Execution as Execution
    from kennel.sdk.egress_records import ApprovalView as ApprovalView
    from kennel.sdk.egress_records import ConnectionView as ConnectionView
    from kennel.sdk.egress_records import Finding as Finding
    from kennel.sdk.egress_records import HostCounters as HostCounters
    from kennel.sdk.egress_records import Replay as Replay
    from kennel.sdk.egress_records import Replayed as Replayed
    from kennel.sdk.egress_records import SecretPin as SecretPin
    from kennel.sdk.egress_records import SecretView as SecretView
    from kennel.sdk.fetched import Fetched as Fetched
    from kennel.sdk.records import Event as Event
    from kennel.sdk.records import Fault as Fault
    from kennel.sdk.records import LiveUpdate as LiveUpdate
    from kennel.sdk.records import Projection as Projection
    from kennel.sdk.records import ProjectionSnapshot as ProjectionSnapshot
    from kennel.sdk.records import Verification as Verification
    from kennel.sdk.running import ExecEvent as ExecEvent
    from kennel.sdk.running import ExecExit as ExecExit
    from kennel.sdk.running import LogEvent as LogEvent
    from kennel.sdk.running import LogLine as LogLine
    from kennel.sdk.running import PortInfo as PortInfo
    from kennel.sdk.running import PortReady as PortReady
    from kennel.sdk.running import ProcessExit as ProcessExit
    from kennel.sdk.running import ProcessInfo as ProcessInfo
    from kennel.sdk.running import ProcessLogs as ProcessLogs
    from kennel.sdk.running import TerminalInfo as TerminalInfo
    from kennel.sdk.running import TunnelInfo as TunnelInfo
    from kennel.sdk.subscription import AsyncSubscription as AsyncSubscription
    from kennel.sdk.subscription import Subscription as Subscription
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
    from kennel.wire.results import BackupRestored as BackupRestored
    from kennel.wire.results import BackupView as BackupView
    from kennel.wire.results import DiffView as DiffView
    from kennel.wire.results import ExecResult as ExecResult
    from kennel.wire.results import MountView as MountView
    from kennel.wire.results import PathChange as PathChange
    from kennel.wire.results import SandboxView as SandboxView
    from kennel.wire.results import SnapshotView as SnapshotView
    from kennel.wire.results import UsageView as UsageView

_HOMES = {
    "kennel.sdk._async.client": ("AsyncKennel",),
    "kennel.sdk._async.following": ("AsyncExport", "AsyncFollowing"),
    "kennel.sdk._async.rooms": ("AsyncRoom",),
    "kennel.sdk._async.sandbox": ("AsyncSandbox",),
    "kennel.sdk._async.session": ("AsyncSession",),
    "kennel.sdk._async.streams": ("AsyncStream",),
    "kennel.sdk._sync.client": ("Kennel",),
    "kennel.sdk._sync.following": ("Export", "Following"),
    "kennel.sdk._sync.rooms": ("Room",),
    "kennel.sdk._sync.sandbox": ("Sandbox",),
    "kennel.sdk._sync.session": ("Session",),
    "kennel.sdk._sync.streams": ("Stream",),
    "kennel.sdk.advice": ("KennelWarning",),
    "kennel.sdk.answers": (
        "ImageView", "KeyView", "Message", "NewKey", "ProjectView", "RoomCleanup", "RoomReply",
    ),
    "kennel.sdk.records": ("Event", "Fault", "LiveUpdate", "Projection", "ProjectionSnapshot", "Verification"),
    "kennel.sdk._async.exec_stream": ("AsyncExecStream", "AsyncInteraction",),
    "kennel.sdk._async.process": ("AsyncProcess",),
    "kennel.sdk._async.terminal": ("AsyncTerminal",),
    "kennel.sdk._sync.exec_stream": ("ExecStream", "Interaction",),
    "kennel.sdk._sync.process": ("Process",),
    "kennel.sdk._sync.terminal": ("Terminal",),
    "kennel.sdk._async.interpreter": ("AsyncCodeContext", "AsyncCodeStream"),
    "kennel.sdk._sync.interpreter": ("CodeContext", "CodeStream"),
    "kennel.sdk.code_records": ("CodeContextInfo", "CodeError", "CodeEvent", "CodeResult", "Execution"),
    "kennel.sdk._async.web_socket": ("AsyncWebSocket",),
    "kennel.sdk._sync.web_socket": ("WebSocket",),
    "kennel.sdk.egress_records": (
        "ApprovalView", "ConnectionView", "Finding", "HostCounters", "Replay", "Replayed", "SecretPin", "SecretView",
    ),
    "kennel.sdk.fetched": ("Fetched",),
    "kennel.sdk.running": (
        "ExecEvent", "ExecExit", "LogEvent", "LogLine", "PortInfo", "PortReady",
        "ProcessExit", "ProcessInfo", "ProcessLogs", "TerminalInfo", "TunnelInfo",
    ),
    "kennel.sdk.subscription": ("AsyncSubscription", "Subscription"),
    "kennel.wire.errors": (
        "Conflict", "Failed", "Forbidden", "Gone", "InvalidRequest", "KennelError", "NotFound", "TimedOut",
        "Unauthorized", "Unavailable", "Unsupported",
    ),
    "kennel.wire.results": (
        "BackupRestored", "BackupView", "DiffView", "ExecResult", "MountView", "PathChange", "SandboxView",
        "SnapshotView", "UsageView",
    ),
}  # fmt: skip
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "ApprovalView",
    "AsyncCodeContext",
    "AsyncCodeStream",
    "AsyncExecStream",
    "AsyncExport",
    "AsyncFollowing",
    "AsyncInteraction",
    "AsyncKennel",
    "AsyncProcess",
    "AsyncRoom",
    "AsyncSandbox",
    "AsyncSession",
    "AsyncStream",
    "AsyncSubscription",
    "AsyncTerminal",
    "AsyncWebSocket",
    "BackupRestored",
    "BackupView",
    "CodeContext",
    "CodeContextInfo",
    "CodeError",
    "CodeEvent",
    "CodeResult",
    "CodeStream",
    "Conflict",
    "ConnectionView",
    "DiffView",
    "Event",
    "ExecEvent",
    "ExecExit",
    "ExecResult",
    "ExecStream",
    "Execution",
    "Export",
    "Failed",
    "Fault",
    "Fetched",
    "Finding",
    "Following",
    "Forbidden",
    "Gone",
    "HostCounters",
    "ImageView",
    "Interaction",
    "InvalidRequest",
    "Kennel",
    "KennelError",
    "KennelWarning",
    "KeyView",
    "LiveUpdate",
    "LogEvent",
    "LogLine",
    "Message",
    "MountView",
    "NewKey",
    "NotFound",
    "PathChange",
    "PortInfo",
    "PortReady",
    "Process",
    "ProcessExit",
    "ProcessInfo",
    "ProcessLogs",
    "ProjectView",
    "Projection",
    "ProjectionSnapshot",
    "Replay",
    "Replayed",
    "Room",
    "RoomCleanup",
    "RoomReply",
    "Sandbox",
    "SandboxView",
    "SecretPin",
    "SecretView",
    "Session",
    "SnapshotView",
    "Stream",
    "Subscription",
    "Terminal",
    "TerminalInfo",
    "TimedOut",
    "TunnelInfo",
    "Unauthorized",
    "Unavailable",
    "Unsupported",
    "UsageView",
    "Verification",
    "WebSocket",
]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'kennel' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(home), name)
    return value


def __dir__() -> list[str]:
    return list(__all__)
