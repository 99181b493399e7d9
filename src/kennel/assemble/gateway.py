"""Owns the wiring of gateway: its options from the settings; without egress it holds its place and refuses."""

from __future__ import annotations

import msgspec

from kennel.gateway import process, refusal
from kennel.gateway.options import Options, PlatformKey
from kennel.settings import Settings


def run(settings: Settings) -> None:
    """Serves until SIGTERM."""
    if settings.egress:
        process.run(options(settings))
    else:
        refusal.serve()


def options(settings: Settings) -> Options:
    """The gateway's options as this installation decides them."""
    return Options(
        data=str(settings.data),
        listener=settings.listener,
        control_uid=settings.control_uid,
        resolver=settings.egress_resolver,
        extra_roots=None if settings.egress_roots is None else str(settings.egress_roots),
        openings=settings.egress_openings,
        max_connections=settings.egress_connections,
        preview_listener=settings.preview_listener,
        preview_base=settings.preview_base or "",
        preview_connections=settings.preview_connections,
        requests_per_second=settings.egress_requests,
        bytes_per_second=settings.egress_bytes,
        ai_base_url=settings.lane_base_url,
        ai_key=settings.lane_key,
        ai_cache_ttl=settings.lane_cache_ttl,
        platform_keys=msgspec.convert(settings.egress_platform_keys, dict[str, PlatformKey]),
    )
