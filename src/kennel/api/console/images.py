"""Owns the page of images: what a sandbox can be made of here. Invariant: listing builds and fetches nothing."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from kennel.api.console.visit import Visit, get


async def _images(visit: Visit) -> list[dict[str, Any]]:
    return [dict(image) for image in await visit.services.images()]


async def image_names(visit: Visit) -> list[str]:
    """The names a new sandbox may be given, in the order of the list."""
    return [str(image["name"]) for image in await _images(visit) if image.get("name")]


@get("/images")
async def page(visit: Visit) -> Response:
    """The page."""
    return visit.page("images.html", images=await _images(visit))


routes = [page]
