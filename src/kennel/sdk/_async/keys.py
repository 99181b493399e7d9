"""Owns an installation's keys as its administrator sees them: making, listing, revoking.

Called by programs through `itx.keys`. Invariant: a key's token is in the answer to its creation and nowhere else.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence

from kennel.sdk._async.transport import AsyncTransport
from kennel.sdk.answers import KeyList, KeyView, NewKey
from kennel.sdk.names import new_request_id, segment


class AsyncKeys:
    """The keys of an installation."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def create(
        self, name: str, *, scopes: Sequence[str], project: str | None = None, request_id: str | None = None
    ) -> NewKey:
        """Makes a key for one project, or for the whole installation when `project` is None; keep its `token`."""
        body = {"name": name, "scopes": list(scopes)} | ({} if project is None else {"project": project})
        return await self._transport.call(
            "POST", "/v1/keys", NewKey, body=body, request_id=request_id or new_request_id()
        )

    async def list(self) -> builtins.list[KeyView]:
        """Every key, the revoked ones too."""
        answer = await self._transport.call("GET", "/v1/keys", KeyList, repeat=True)
        return answer.keys

    async def revoke(self, key_id: str) -> None:
        """Makes a key useless from now on; KEY_NOT_FOUND when there is none of this id."""
        await self._transport.call("DELETE", f"/v1/keys/{segment(key_id)}", type(None))
