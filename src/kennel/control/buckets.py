"""Owns mounting buckets of an object store in sandboxes.

Called by the API. Invariant: credentials go to node and nowhere else: no event, answer or log line has any; a mount is
answered only when the sandbox sees the bucket, an unmount only when it sees it no more; a sleep ends every mount.
"""

from __future__ import annotations

from typing import Any

from kennel.control.sandboxes import Sandboxes
from kennel.domain import bucket as rules
from kennel.domain.bucket import Bucket, Credentials
from kennel.domain.event import fact
from kennel.domain.principal import Principal
from kennel.ports.event_log import EventLog
from kennel.ports.node import NodeLink
from kennel.wire.errors import error
from kennel.wire.node import BucketHere, MountBucket
from kennel.wire.results import MountView

_MOUNTED, _UNMOUNTED = "sandbox/bucket-mounted", "sandbox/bucket-unmounted"


class Buckets:
    """The service; `path` is the sandbox's."""

    def __init__(self, sandboxes: Sandboxes, node: NodeLink, log: EventLog) -> None:
        self._sandboxes, self._node, self._log = sandboxes, node, log

    async def mount(
        self, who: Principal, project: str, path: str, asked: Bucket, given: Credentials | None
    ) -> MountView:
        """Mounts a bucket, waking the sandbox; INVALID_MOUNT_CONFIG, MISSING_CREDENTIALS, BUCKET_MOUNT_ERROR."""
        bucket = rules.checked(asked)
        given = rules.checked_credentials(given, bucket.options)
        async with self._sandboxes.guest(who, project, path) as (live, _):
            request = MountBucket(
                live.sandbox, bucket.bucket, bucket.mount_path, bucket.endpoint, bucket.prefix, bucket.read_only,
                list(bucket.options),
            )  # fmt: skip
            if given is not None:
                request.access_key_id, request.secret_access_key = given.access_key_id, given.secret_access_key
                request.session_token = given.session_token
            found = await self._node.mount_bucket(request)
            told: dict[str, Any] = {
                "bucket": found.bucket,
                "mountPath": found.mount_path,
                "endpoint": found.endpoint,
                "readOnly": found.read_only,
            }
            await self._log.append(
                project, path, [fact(who, _MOUNTED, told | ({} if found.prefix is None else {"prefix": found.prefix}))]
            )
        return _shown(found)

    async def unmount(self, who: Principal, project: str, path: str, mount_path: str, *, force: bool) -> None:
        """Takes it away; BUCKET_UNMOUNT_ERROR while it is in use, unless it is forced. Wakes nothing."""
        where = rules.checked_path(mount_path)
        sandbox = await self._sandboxes.awake_id(project, path)
        if sandbox is None:
            raise error("INVALID_MOUNT_CONFIG", "it sleeps, and so has no mounts", admitted="no")
        await self._node.unmount_bucket(sandbox, where, force=force)
        await self._log.append(project, path, [fact(who, _UNMOUNTED, {"mountPath": where})])

    async def list(self, project: str, path: str) -> list[MountView]:
        """What is mounted now; nothing in a sandbox that sleeps, which this does not wake."""
        sandbox = await self._sandboxes.awake_id(project, path)
        return [] if sandbox is None else [_shown(each) for each in await self._node.list_buckets(sandbox)]


def _shown(found: BucketHere) -> MountView:
    return MountView(
        bucket=found.bucket,
        mount_path=found.mount_path,
        endpoint=found.endpoint,
        prefix=found.prefix,
        read_only=found.read_only,
        mounted_at=found.since,
        alive=found.alive,
    )
