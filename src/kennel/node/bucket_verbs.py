"""Owns the commands about buckets: mount one, unmount one or all, list.

Called by server; what may wait for a store has threads of its own. Invariant: what control says is checked here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kennel.domain import bucket as rules
from kennel.domain.bucket import Bucket, Credentials
from kennel.node.buckets.mounts import Mounted
from kennel.node.unit import Units
from kennel.wire import node as wire
from kennel.wire.errors import error

Answer = tuple[Any, list[int]]


def mount(units: Units, request: wire.MountBucket, _: Sequence[int]) -> Answer:
    bucket = rules.checked(
        Bucket(
            bucket=request.bucket,
            mount_path=request.mount_path,
            endpoint=request.endpoint,
            prefix=request.prefix,
            read_only=request.read_only,
            options=tuple(request.options),
        )
    )
    given = None
    if request.access_key_id is not None and request.secret_access_key is not None:
        given = Credentials(request.access_key_id, request.secret_access_key, request.session_token)
    rules.checked_credentials(given, bucket.options)
    lacking = units.buckets.lacking()
    if lacking is not None:
        hint = "install s3fs on the machine: apt-get install s3fs; 'kennel doctor' says what is missing"
        raise error("NOT_SUPPORTED", f"no bucket can be mounted here: {lacking} is missing", hint=hint, admitted="no")
    if units.gateway is None:
        raise error("NOT_SUPPORTED", "there is no way out of sandboxes here (KENNEL_EGRESS=false)", admitted="no")
    with units.inhabited(request.sandbox) as (home, cut):
        return _shown(units.buckets.mount(home, bucket, given, cut), alive=True), []


def unmount(units: Units, request: wire.UnmountBucket, _: Sequence[int]) -> Answer:
    with units.inhabited(request.sandbox, now=request.mount_path is None) as (home, _cut):
        if request.mount_path is None:
            units.buckets.clear(home)
        else:
            units.buckets.unmount(home, rules.checked_path(request.mount_path), force=request.force)
    return None, []


def listed(units: Units, request: wire.ListBuckets, _: Sequence[int]) -> Answer:
    home = units.home(request.sandbox)
    found = [mounted for mounted in units.buckets.records(home) if mounted.attached]
    return [_shown(mounted, alive=units.buckets.alive(home, mounted)) for mounted in found], []


def _shown(mounted: Mounted, *, alive: bool) -> wire.BucketHere:
    bucket = mounted.bucket
    return wire.BucketHere(
        bucket.bucket, bucket.mount_path, bucket.endpoint, bucket.prefix, bucket.read_only, mounted.since, alive
    )


def waits(request: wire.Request) -> bool:
    """Whether a store may make it wait."""
    return isinstance(request, wire.MountBucket) or (
        isinstance(request, wire.UnmountBucket) and request.mount_path is not None
    )


VERBS: dict[type, Callable[[Units, Any, Sequence[int]], Answer]] = {
    wire.MountBucket: mount,
    wire.UnmountBucket: unmount,
    wire.ListBuckets: listed,
}
