"""Owns previews under the name of tunnels: one a port, the same one again until it is destroyed.

Reached as `box.tunnels`. Invariant: a tunnel is a preview and nothing beside it; none of this wakes the sandbox.
"""

from __future__ import annotations

from collections.abc import Sequence

from kennel.sdk._async.transport import AsyncTransport
from kennel.sdk.running import PortInfo, PortList, TunnelInfo, tunnel_of
from kennel.wire.errors import error


class AsyncTunnels:
    """The tunnels of one sandbox."""

    def __init__(self, transport: AsyncTransport, route: str) -> None:
        self._transport, self._route = transport, route

    async def get(self, port: int, *, name: str | None = None) -> TunnelInfo:
        """The port's tunnel, made when there is none; PORT_ALREADY_EXPOSED when there is one of another name."""
        for info in await self._ports():
            if info.port == port:
                if name is not None and name != info.name:
                    hint = "destroy it first, or ask without a name"
                    raise error("PORT_ALREADY_EXPOSED", f"port {port} has a tunnel of another name", hint=hint)
                return tunnel_of(info)
        body = {"port": port} if name is None else {"port": port, "name": name}
        return tunnel_of(await self._transport.call("POST", f"{self._route}/ports", PortInfo, body=body))

    async def list(self) -> list[TunnelInfo]:
        """All of them, by port."""
        return [tunnel_of(info) for info in await self._ports()]

    async def destroy(self, tunnel: int | TunnelInfo) -> None:
        """Ends one, by its port or itself; what is open is cut. Without one nothing happens."""
        port = tunnel if isinstance(tunnel, int) else tunnel.port
        await self._transport.call("DELETE", f"{self._route}/ports/{port}", type(None), repeat=True)

    async def _ports(self) -> Sequence[PortInfo]:
        return (await self._transport.call("GET", f"{self._route}/ports", PortList, repeat=True)).ports
