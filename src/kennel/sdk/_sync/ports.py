# Generated from sdk/_async by tools/make_sync.py; change it there.
"""Owns the ports of a sandbox as programs use them: previews, waiting, requests and WebSockets to a server inside.

Part of the sandbox's handle. Invariant: exposing and looking wake nothing; a request or a WebSocket does, and carries
the caller's words without the key.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from kennel.sdk._sync.transport import Transport
from kennel.sdk._sync.web_socket import WebSocket
from kennel.sdk.deadline import SLICE, Deadline
from kennel.sdk.fetched import Fetched, fetched
from kennel.sdk.running import PortInfo, PortList, PortReady
from kennel.wire.errors import KennelError, error


class PortMethods:
    """The part of a sandbox's handle that is about ports."""

    _transport: Transport
    _route: str

    def expose_port(self, port: int, *, name: str | None = None, wake: bool = False) -> PortInfo:
        """Gives a port a preview that lasts until `unexpose_port`; `wake` lets its visitors wake the sandbox."""
        body = {"port": port, "wake": wake} | ({} if name is None else {"name": name})
        return self._transport.call("POST", f"{self._route}/ports", PortInfo, body=body)

    def get_exposed_ports(self) -> list[PortInfo]:
        """The ports that have a preview; wakes nothing."""
        return (self._transport.call("GET", f"{self._route}/ports", PortList, repeat=True)).ports

    def is_port_exposed(self, port: int) -> bool:
        """Whether a port has a preview."""
        return any(info.port == port for info in self.get_exposed_ports())

    def validate_port_token(self, port: int, token: str) -> bool:
        """Whether this is the token of the port's preview; in constant time."""
        infos = self.get_exposed_ports()
        return any(info.port == port and hmac.compare_digest(info.token, token) for info in infos)

    def unexpose_port(self, port: int) -> None:
        """Takes its preview away at once and for good; nothing happens without one."""
        self._transport.call("DELETE", f"{self._route}/ports/{port}", type(None), repeat=True)

    def wait_for_port(
        self, port: int, timeout: float = 60.0, *, mode: str = "tcp", path: str = "/"
    ) -> PortReady:  # fmt: skip
        """Until anything in the sandbox accepts connections on a port; PROCESS_READY_TIMEOUT."""
        deadline = Deadline(timeout)
        while True:
            query = {"mode": mode, "path": path, "timeoutMs": deadline.slice()}
            try:
                route = f"{self._route}/ports/{port}/wait"
                return self._transport.call("GET", route, PortReady, query=query, extra=SLICE, repeat=True)
            except KennelError as failure:
                if failure.code != "PROCESS_READY_TIMEOUT" or deadline.over:
                    raise

    def fetch(
        self,
        port: int,
        path: str = "/",
        *,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
        timeout: float | None = None,
    ) -> Fetched:
        """A request to a server in the sandbox; its answer whatever the status, redirects not followed.

        SERVICE_NOT_RESPONDING when nothing listens there. `path` may hold a query; the answer is held in memory.
        """
        route = f"{self._route}/proxy/{port}/{path.removeprefix('/')}"
        return fetched(*self._transport.fetch(method, route, dict(headers or {}), content, timeout))

    def container_fetch(
        self,
        url: str,
        port: int,
        *,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
        timeout: float | None = None,
    ) -> Fetched:
        """As `fetch`, for a whole URL: its path and query count, its host does not."""
        parts = urlsplit(url)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        return self.fetch(port, path, method=method, headers=headers, content=content, timeout=timeout)

    def ws_connect(
        self,
        port: int,
        path: str = "/",
        *,
        headers: Mapping[str, str] | None = None,
        subprotocols: Sequence[str] = (),
    ) -> WebSocket:
        """A WebSocket to a server in the sandbox; use it in a `with` block. SERVICE_NOT_RESPONDING."""
        if any(word.startswith("kennel.") for word in subprotocols):
            raise error("VALIDATION_FAILED", "subprotocols that begin with 'kennel.' are Kennel's own", admitted="no")
        given = {name: value for name, value in (headers or {}).items() if name.lower() != "authorization"}
        if subprotocols:
            given["Sec-WebSocket-Protocol"] = ", ".join(subprotocols)
        route = f"{self._route}/proxy/{port}/{path.removeprefix('/')}"
        return WebSocket(self._transport.socket(route, {}, given))
