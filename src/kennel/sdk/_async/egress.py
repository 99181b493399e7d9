"""Owns a project's way out for programs: secrets, rules, the audit, dry runs, approvals.

Called by programs through `itx.secrets`, `itx.egress` and `itx.approvals`. Invariant: a secret's material goes in and
is in no answer.
"""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from typing import Any

from kennel.sdk._async.following import AsyncFollowing
from kennel.sdk._async.transport import AsyncTransport
from kennel.sdk.egress_records import (
    ApprovalList,
    ApprovalView,
    ConnectionList,
    ConnectionView,
    Finding,
    HostCounters,
    HostList,
    Replay,
    SecretList,
    SecretView,
)
from kennel.sdk.messages import event_of
from kennel.sdk.names import segment
from kennel.sdk.records import Event, EventList


class AsyncSecrets:
    """The secrets of a project. A path is `/secrets/…`, or what follows that."""

    def __init__(self, transport: AsyncTransport, project: str) -> None:
        self._transport = transport
        self._route = f"/v1/projects/{segment(project)}/secrets"

    async def set(
        self,
        path: str,
        material: str | Mapping[str, Any],
        *,
        origins: Sequence[str],
        methods: Sequence[str] | None = None,
        path_prefix: str | None = None,
        headers: Sequence[str] | None = None,
        refresh: Mapping[str, str] | None = None,
    ) -> SecretView:
        """Stores or replaces a secret and says where it may go (`https://api.example.com`).

        `refresh` is a strategy: `{"strategy": "oauth-refresh-token", "endpoint": "https://…/token"}`; the material is
        then a mapping, and requests name its field `accessToken`.
        """
        given = {"methods": methods, "headers": headers}
        body: dict[str, Any] = {name: list(value) for name, value in given.items() if value is not None}
        body |= {"material": material, "origins": list(origins)}
        if path_prefix is not None:
            body["pathPrefix"] = path_prefix
        if refresh is not None:
            body["refresh"] = dict(refresh)
        return await self._transport.call("PUT", self._of(path), SecretView, body=body, repeat=True)

    async def get(self, path: str) -> SecretView:
        """Where it may go and how it has been used; SECRET_NOT_FOUND."""
        return await self._transport.call("GET", self._of(path), SecretView, repeat=True)

    async def list(self) -> builtins.list[SecretView]:
        """Every secret of the project, by path."""
        return (await self._transport.call("GET", self._route, SecretList, repeat=True)).secrets

    async def remove(self, path: str) -> None:
        """Forgets a secret; SECRET_NOT_FOUND."""
        await self._transport.call("DELETE", self._of(path), type(None))

    def _of(self, path: str) -> str:
        return self._route + "".join(f"/{segment(part)}" for part in path.removeprefix("/secrets/").split("/"))


class AsyncGithub:
    """A project's GitHub connections; the first by name is planted in its sandboxes as `GH_TOKEN`."""

    def __init__(self, transport: AsyncTransport, project: str) -> None:
        self._transport = transport
        self._route = f"/v1/projects/{segment(project)}/connections/github"

    async def connect(
        self,
        name: str,
        *,
        token: str | None = None,
        app_id: str | None = None,
        installation_id: str | None = None,
        private_key: str | None = None,
    ) -> ConnectionView:
        """Makes or replaces a connection: of a token, or of an app's installation (its private key as PEM)."""
        given = {"token": token, "appId": app_id, "installationId": installation_id, "privateKey": private_key}
        body = {key: value for key, value in given.items() if value is not None}
        return await self._transport.call("PUT", self._of(name), ConnectionView, body=body, repeat=True)

    async def get(self, name: str) -> ConnectionView:
        """One; NOT_FOUND."""
        return await self._transport.call("GET", self._of(name), ConnectionView, repeat=True)

    async def list(self) -> builtins.list[ConnectionView]:
        """All, by name."""
        return (await self._transport.call("GET", self._route, ConnectionList, repeat=True)).connections

    async def disconnect(self, name: str) -> None:
        """Forgets a connection; NOT_FOUND."""
        await self._transport.call("DELETE", self._of(name), type(None))

    def _of(self, name: str) -> str:
        return f"{self._route}/{segment(name)}"


class AsyncEgress:
    """A project's rules and audit."""

    def __init__(self, transport: AsyncTransport, project: str) -> None:
        self._transport = transport
        self._route = f"/v1/projects/{segment(project)}/egress"

    async def rules(self) -> dict[str, Any]:
        """The policy in force: `rules`, `default`, `version`."""
        return await self._transport.call("GET", f"{self._route}/rules", dict[str, Any], repeat=True)

    async def set_rules(
        self,
        rules: Sequence[Mapping[str, Any]],
        *,
        default: str | None = None,
        audit_only: bool | None = None,
        approvers: Sequence[str] | None = None,
    ) -> dict[str, Any]:
        """Replaces the whole policy; the rules' form is the API's (camelCase).

        `approvers` are P-256 public keys (PEM): with any, an approving decision needs a signature of one of them.
        """
        body = _policy(rules, default, audit_only, approvers)
        return await self._transport.call("PUT", f"{self._route}/rules", dict[str, Any], body=body, repeat=True)

    async def replay(
        self,
        rules: Sequence[Mapping[str, Any]],
        *,
        default: str | None = None,
        audit_only: bool | None = None,
        last: int = 1000,
    ) -> Replay:
        """What this policy would have done to the last recorded requests; nothing changes."""
        body = {"policy": _policy(rules, default, audit_only, None), "last": last}
        return await self._transport.call("POST", f"{self._route}/replay", Replay, body=body, repeat=True)

    async def hosts(self) -> list[HostCounters]:
        """Requests and bytes per host since the gateway started, the busiest first."""
        return (await self._transport.call("GET", f"{self._route}/hosts", HostList, repeat=True)).hosts

    async def log(self, *, after: int = 0, limit: int = 500) -> list[Event]:
        """The audit after an offset, oldest first, at most 500."""
        query = {"after": str(after), "limit": str(limit)}
        return (await self._transport.call("GET", f"{self._route}/log", EventList, query=query, repeat=True)).events

    def events(self, *, after: int = 0) -> AsyncFollowing[Event]:
        """An iterator over the audit, then over what comes, without end. Use it in a `with` block, or `close` it."""
        query = {"after": str(after), "follow": "true"}
        return AsyncFollowing(self._transport, f"{self._route}/log", query, event_of, resume=True)

    async def test(self, method: str, url: str, *, sandbox: str, headers: Mapping[str, str] | None = None) -> Finding:
        """What this request of this sandbox would meet; nothing is sent."""
        body = {"sandbox": sandbox, "method": method, "url": url, "headers": dict(headers or {})}
        return await self._transport.call("POST", f"{self._route}/test", Finding, body=body, repeat=True)


def _policy(
    rules: Sequence[Mapping[str, Any]], default: str | None, audit_only: bool | None, approvers: Sequence[str] | None
) -> dict[str, Any]:
    given = {"default": default, "auditOnly": audit_only, "approvers": None if approvers is None else list(approvers)}
    return {"rules": list(rules)} | {name: value for name, value in given.items() if value is not None}


class AsyncApprovals:
    """What waits for a person."""

    def __init__(self, transport: AsyncTransport, project: str) -> None:
        self._transport = transport
        self._route = f"/v1/projects/{segment(project)}/approvals"

    async def list(self, *, status: str | None = None) -> builtins.list[ApprovalView]:
        """Newest first; `status="open"` for those that wait."""
        query = {} if status is None else {"status": status}
        return (await self._transport.call("GET", self._route, ApprovalList, query=query, repeat=True)).approvals

    async def get(self, approval_id: str) -> ApprovalView:
        """One; NOT_FOUND."""
        return await self._transport.call("GET", f"{self._route}/{segment(approval_id)}", ApprovalView, repeat=True)

    async def decide(
        self,
        approval_id: str,
        approve: bool | Sequence[bool],
        *,
        reason: str = "",
        key_id: str | None = None,
        signature: str | None = None,
    ) -> ApprovalView:
        """Answers all requests of a batch alike, or each; RESOURCE_BUSY when it is over."""
        body: dict[str, Any] = {"approve": approve if isinstance(approve, bool) else list(approve), "reason": reason}
        body |= {k: v for k, v in {"keyId": key_id, "signature": signature}.items() if v is not None}
        return await self._transport.call("POST", f"{self._route}/{segment(approval_id)}", ApprovalView, body=body)
