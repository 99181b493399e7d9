"""Owns buckets in a sandbox as programs use them: mount, unmount, list.

Part of the sandbox's handle. Invariant: credentials are sent with the one call that mounts and kept nowhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kennel.sdk._async.transport import AsyncTransport
from kennel.sdk.bucket_credentials import found
from kennel.wire.results import MountView

SECONDS = 60.0


class AsyncMountMethods:
    """The part of a sandbox's handle that is about buckets."""

    _transport: AsyncTransport
    _route: str

    async def mount_bucket(
        self,
        bucket: str,
        mount_path: str,
        *,
        endpoint: str,
        prefix: str | None = None,
        read_only: bool = False,
        credentials: Mapping[str, str] | None = None,
        s3fs_options: Sequence[str] = (),
    ) -> MountView:
        """Shows a bucket of an S3 store, or what is below `prefix` in it, at `mount_path` below /workspace.

        `credentials` are `access_key_id` and `secret_access_key`, maybe `session_token`; without them those of this
        program's environment (AWS_…, then R2_…). They never enter the sandbox. A mount ends when the sandbox stops.
        """
        body: dict[str, Any] = {"bucket": bucket, "mountPath": mount_path, "endpoint": endpoint, "readOnly": read_only}
        if prefix is not None:
            body["prefix"] = prefix
        if s3fs_options:
            body["s3fsOptions"] = list(s3fs_options)
        if "public_bucket=1" not in s3fs_options:
            body["credentials"] = found(credentials)
        return await self._transport.call("POST", f"{self._route}/mounts", MountView, body=body, extra=SECONDS)

    async def unmount_bucket(self, mount_path: str, *, force: bool = False) -> None:
        """Takes a bucket away; BUCKET_UNMOUNT_ERROR while it is in use.

        With `force` also then: what was not written yet is lost.
        """
        query = {"mountPath": mount_path, **({"force": "true"} if force else {})}
        await self._transport.call("DELETE", f"{self._route}/mounts", type(None), query=query, extra=SECONDS)

    async def list_mounts(self) -> list[MountView]:
        """What is mounted now; nothing in a sandbox that sleeps, which this does not wake."""
        found = await self._transport.call("GET", f"{self._route}/mounts", dict[str, list[MountView]], repeat=True)
        return found["mounts"]
