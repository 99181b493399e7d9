"""Owns the files' page of a sandbox: directories, a file's text or picture, its bytes, and changing them.

Called by console/app.py. Invariants: a sandbox that sleeps is woken by a button, never by looking; nothing of a
sandbox is served as anything a browser runs: text is escaped in a page, bytes are a download, and of pictures only
kinds without scripts are shown; what was changed since it was opened is not overwritten.
"""

from __future__ import annotations

import base64
from typing import Any
from urllib.parse import quote

import msgspec
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute

from kennel.api.body_stream import body_of
from kennel.api.console import text, trouble
from kennel.api.console.file_place import HOME, Place, asked, new_name, sent
from kennel.api.console.sandbox import frame, path
from kennel.api.console.visit import Visit, get, post, put
from kennel.api.file_answer import FileAnswer, wanted_range
from kennel.api.services import Files, files_of
from kennel.domain.file import FileFacts, WriteOptions, mode_text, when
from kennel.domain.media_type import looks_textual, media_type
from kennel.wire.errors import KennelError, error

PAGE = 500
MAX_SHOWN = 256 * 1024
"""Bytes of a text that are shown."""
MAX_EDITED = 128 * 1024
"""Bytes of a text that can be edited: percent-encoded it is at most three times as long, a form at most 1 MiB."""
PICTURES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", "image/avif"})
SNIFFED = 512


def _service(visit: Visit) -> Files:
    return files_of(visit.request)


def _at(visit: Visit, place: Place) -> str:
    return visit.url("sandboxes", visit.request.path_params["name"], "files") + place.query


@get("/sandboxes/{name}/files", "files", link="files")
async def page(visit: Visit) -> Response:
    """A directory, or a file."""
    shown = await frame(visit)
    place = asked(visit, HOME)
    if not shown["view"].running:
        return visit.page("files-asleep.html", place=place, **shown)
    facts = await _service(visit).stat(visit.who, visit.project, path(visit), place.path)
    if facts.type == "directory":
        return visit.page("files.html", place=place, **await _directory(visit, place), **shown)
    return visit.page("file.html", place=Place(place.path, facts), mode=mode_text(facts.mode),
                      changed=when(facts.mtime_ns), **await _content(visit, place, facts), **shown)  # fmt: skip


async def _directory(visit: Visit, place: Place) -> dict[str, Any]:
    """A page of what it holds, directories first, and where the next page begins."""
    after = visit.request.query_params.get("after", "")
    try:
        start = base64.urlsafe_b64decode(after.encode()) if after else None
    except ValueError:
        raise error("VALIDATION_FAILED", "The address names no page of this directory.", admitted="no") from None
    options: dict[str, Any] = {"recursive": False, "hidden": True, "user": None, "limit": PAGE, "after": start}
    rows: list[Place] = []
    last = b""
    async with _service(visit).list(visit.who, visit.project, path(visit), place.path, **options) as listing:
        async for batch in listing:
            for entry in batch:
                rows.append(place.below(entry.name, entry.facts))
                last = entry.name
    more = base64.urlsafe_b64encode(last).decode() if listing.more else None
    rows.sort(key=lambda row: row.facts is None or row.facts.type != "directory")
    modes = {row.path: mode_text(row.facts.mode) for row in rows if row.facts is not None}
    times = {row.path: when(row.facts.mtime_ns) for row in rows if row.facts is not None}
    return {"rows": rows, "more": more, "modes": modes, "times": times, "name_of": text.name}


async def _content(visit: Visit, place: Place, facts: FileFacts) -> dict[str, Any]:
    """How a file is shown: `text`, `picture` or neither."""
    told: dict[str, Any] = {"text": None, "picture": False, "cut": False, "editable": False, "kind": facts.type}
    if facts.type != "file":
        return told
    head = bytearray()
    async with _service(visit).read(visit.who, visit.project, path(visit), place.path, count=MAX_SHOWN + 1) as download:
        async for piece in download:
            head += piece
    data = bytes(head)
    told["kind"] = media_type(place.path, data[:SNIFFED])
    if told["kind"] in PICTURES:
        return {**told, "picture": True}
    if not looks_textual(data[:SNIFFED]):
        return told
    kept = data[:MAX_SHOWN]
    return {**told, "text": text.visible(kept), "cut": len(data) > MAX_SHOWN, "editable": _editable(data)}


def _editable(data: bytes) -> bool:
    """Whether a browser's text field gives these bytes back as they are."""
    return len(data) <= MAX_EDITED and text.visible(data).encode() == data


def _disposition(place: Place) -> str:
    return f"attachment; filename*=UTF-8''{quote(place.name, safe='')}"


def _bytes(visit: Visit, place: Place, disposition: str | None) -> Response:
    """The file as it is; the headers of FileAnswer keep a browser from running it."""
    files, box = _service(visit), path(visit)
    return FileAnswer(
        place.path,
        lambda start, count: files.read(visit.who, visit.project, box, place.path, start=start, count=count),
        wanted_range(visit.request.headers.get("range")),
        disposition=disposition,
    )


@get("/sandboxes/{name}/download", "files", link="files")
async def download(visit: Visit) -> Response:
    """A file, to be kept."""
    place = asked(visit)
    return _bytes(visit, place, _disposition(place))


@get("/sandboxes/{name}/picture", "files", link="files")
async def picture(visit: Visit) -> Response:
    """A picture of a page; anything else is refused here."""
    place = asked(visit)
    async with _service(visit).read(visit.who, visit.project, path(visit), place.path, count=SNIFFED) as download:
        head = b"".join([piece async for piece in download])
    if media_type(place.path, head) not in PICTURES:
        raise error("NOT_FOUND", "This is no picture.", admitted="no")
    return _bytes(visit, place, None)


@post("/sandboxes/{name}/files/wake", "files", link="files")
async def wake(visit: Visit) -> Response:
    """Starts the sandbox, so that it can be looked into."""
    await visit.services.sandboxes.start(visit.who, visit.project, path(visit))
    return visit.go(_at(visit, sent(visit)))


@post("/sandboxes/{name}/files/folder", "files", link="files")
async def folder(visit: Visit) -> Response:
    """Makes a directory."""
    place = sent(visit)
    made = place.below(new_name(visit))
    await _change(visit, "mkdir", made, {"recursive": False, "mode": None})
    return visit.go(_at(visit, place), f"{made.name} was made.")


@post("/sandboxes/{name}/files/name", "files", link="files")
async def rename(visit: Visit) -> Response:
    """Gives what lies there another name; what has that name stays, and this is refused."""
    place = sent(visit)
    made = place.above.below(new_name(visit))
    await _change(visit, "move", place, {"to": made.path, "into": False, "overwrite": False})
    return visit.go(_at(visit, place.above), f"{place.name} is {made.name} now.")


@post("/sandboxes/{name}/files/delete", "files", link="files")
async def delete(visit: Visit) -> Response:
    """Deletes it, a directory with all below it."""
    place = sent(visit)
    await _change(visit, "delete", place, {"recursive": True})
    return visit.go(_at(visit, place.above), f"{place.name} was deleted.")


async def _change(visit: Visit, verb: str, place: Place, options: dict[str, Any]) -> None:
    await _service(visit).change(visit.who, visit.project, path(visit), verb, place.path, options)


@post("/sandboxes/{name}/files/save", "files", link="files")
async def save(visit: Visit) -> Response:
    """Writes an edited text, unless the file is not what it was when it was opened."""
    place, box = sent(visit), path(visit)
    facts = await _service(visit).stat(visit.who, visit.project, box, place.path)
    if facts.etag != visit.form.text("etag"):
        raise error("RESOURCE_BUSY", "The file changed since you opened it; nothing was written.", admitted="no",
                    hint="copy your text, load the page again and put the two together")  # fmt: skip
    content = visit.form.text("content").encode("utf-8", "surrogatepass")
    async with _service(visit).write(visit.who, visit.project, box, place.path, WriteOptions()) as upload:
        await upload.write(content)
        await upload.finish()
    return visit.go(_at(visit, place), f"{place.name} was saved.")


@put("/sandboxes/{name}/upload", "files", link="files")
async def upload(visit: Visit) -> Response:
    """A file's bytes into a place; an existing one is only replaced when the address says `replace=1`."""
    place = asked(visit)
    options = WriteOptions(exclusive=visit.request.query_params.get("replace") != "1", parents=False)
    try:
        async with _service(visit).write(visit.who, visit.project, path(visit), place.path, options) as taking:
            async for piece in body_of(visit.request):
                await taking.write(piece)
            facts, created = await taking.finish()
    except KennelError as failure:
        # The rest of the body was not read, so this connection cannot carry another request.
        answer = await trouble.refused(visit.request, failure)
        answer.headers["connection"] = "close"
        return answer
    return JSONResponse(msgspec.to_builtins({"created": created, "size": facts.size}))


routes: list[BaseRoute] = [page, download, picture, wake, folder, rename, delete, save, upload]
