"""Owns what a file is called on the web: its media type by name, else by its first bytes; and whether it is text.

Called by the API. Invariant: the machine's own tables are not asked, so that a file has the same type everywhere.
"""

from __future__ import annotations

import mimetypes

BYTES = "application/octet-stream"
PLAIN = "text/plain"
SNIFFED = 512
"""First bytes that are looked at."""

_OFFICE = "application/vnd.openxmlformats-officedocument"
_MORE = {
    ".md": "text/markdown", ".markdown": "text/markdown", ".ts": "text/typescript", ".tsx": "text/tsx",
    ".jsx": "text/jsx", ".mjs": "text/javascript", ".cjs": "text/javascript", ".yaml": "application/yaml",
    ".yml": "application/yaml", ".toml": "application/toml", ".ini": PLAIN, ".cfg": PLAIN, ".conf": PLAIN,
    ".log": PLAIN, ".env": PLAIN, ".lock": PLAIN, ".rs": "text/x-rust", ".go": "text/x-go", ".java": "text/x-java",
    ".kt": "text/x-kotlin", ".rb": "text/x-ruby", ".php": "text/x-php", ".sql": "application/sql",
    ".ipynb": "application/x-ipynb+json", ".jsonl": "application/jsonl", ".ndjson": "application/x-ndjson",
    ".geojson": "application/geo+json", ".map": "application/json", ".vue": "text/x-vue", ".svelte": "text/x-svelte",
    ".scss": "text/x-scss", ".less": "text/x-less", ".graphql": "application/graphql", ".proto": "text/x-protobuf",
    ".docx": f"{_OFFICE}.wordprocessingml.document", ".xlsx": f"{_OFFICE}.spreadsheetml.sheet",
    ".pptx": f"{_OFFICE}.presentationml.presentation", ".odt": "application/vnd.oasis.opendocument.text",
    ".ods": "application/vnd.oasis.opendocument.spreadsheet", ".epub": "application/epub+zip",
    ".parquet": "application/vnd.apache.parquet", ".arrow": "application/vnd.apache.arrow.file",
    ".sqlite": "application/vnd.sqlite3", ".db": "application/vnd.sqlite3", ".wasm": "application/wasm",
    ".webp": "image/webp", ".avif": "image/avif", ".heic": "image/heic", ".woff": "font/woff", ".woff2": "font/woff2",
    ".ttf": "font/ttf", ".otf": "font/otf", ".gz": "application/gzip", ".tgz": "application/gzip",
    ".bz2": "application/x-bzip2", ".xz": "application/x-xz", ".zst": "application/zstd",
    ".7z": "application/x-7z-compressed",
    ".whl": "application/zip", ".jar": "application/java-archive", ".webm": "video/webm", ".flac": "audio/flac",
    ".opus": "audio/ogg", ".m4a": "audio/mp4",
}  # fmt: skip
_TABLE = {**mimetypes.MimeTypes(()).types_map[True], **_MORE}
_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF8", "image/gif"),
    (b"%PDF-", "application/pdf"), (b"PK\x03\x04", "application/zip"), (b"\x1f\x8b", "application/gzip"),
    (b"\x7fELF", "application/x-executable"), (b"BZh", "application/x-bzip2"), (b"\xfd7zXZ\0", "application/x-xz"),
    (b"\x28\xb5\x2f\xfd", "application/zstd"), (b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed"),
    (b"SQLite format 3\0", "application/vnd.sqlite3"), (b"\0asm", "application/wasm"), (b"OggS", "audio/ogg"),
    (b"fLaC", "audio/flac"), (b"ID3", "audio/mpeg"), (b"#!", "text/x-shellscript"), (b"<?xml", "application/xml"),
)  # fmt: skip
_TEXTUAL = frozenset(
    {
        *("application/json", "application/xml", "application/javascript", "application/yaml", "application/toml"),
        *("application/sql", "application/graphql", "application/jsonl", "application/x-ndjson", "application/x-sh"),
        *("application/x-tex", "application/x-ipynb+json", "application/geo+json", "application/ld+json"),
        *("application/manifest+json", "application/x-csh", "application/x-python", "application/x-latex"),
        *("image/svg+xml", "message/rfc822"),
    }
)


def media_type(name: bytes, head: bytes) -> str:
    """The type of a file called `name` that begins with `head` (SNIFFED bytes are enough)."""
    base = name.rpartition(b"/")[2].decode("latin-1").lower()
    _, dot, extension = base.rpartition(".")
    known = _TABLE.get(f".{extension}") if dot else None
    if known is not None:
        return known
    for magic, kind in _MAGIC:
        if head.startswith(magic):
            return kind
    return PLAIN if looks_textual(head[:SNIFFED]) else BYTES


def looks_textual(head: bytes) -> bool:
    """Whether the beginning of a file reads as UTF-8 text; a character cut at its end does not count against it."""
    if b"\0" in head:
        return False
    try:
        head.decode()
    except UnicodeDecodeError as fault:
        return fault.reason == "unexpected end of data" and fault.end == len(head) and len(head) >= SNIFFED
    return True


def is_text(kind: str) -> bool:
    """Whether files of this type are text."""
    return kind.startswith("text/") or kind in _TEXTUAL
