"""Owns what may be mounted of an object store, and where: names, paths, endpoints, prefixes, options, credentials.

Called by control (a caller's words) and by node (control's words). Invariant: what passes here is one bucket, one
place below /workspace and options from a list; nothing of it can become another option, another file or another place.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import urlsplit

import msgspec

from kennel.wire.errors import KennelError, error

ROOT = "/workspace"
MOST = 8
"""Buckets of one sandbox: each is a process of 16 MB and more, and counts as the sandbox's memory."""
_MOST_OPTIONS = 16

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,61}[a-z0-9])?")
_HOST = re.compile(r"(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?|[0-9a-f:]{2,39}")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_KEY_ID, _SECRET, _TOKEN = re.compile("[!-~]{1,256}"), re.compile("[!-~]{1,512}"), re.compile("[!-~]{1,8192}")

_FLAGS = {
    "use_path_request_style", "nomixupload", "nomultipart", "nocopyapi", "norenameapi", "sigv2", "sigv4", "compat_dir",
    "complement_stat", "enable_noobj_cache", "listobjectsv2", "use_xattr",
}  # fmt: skip
_NUMBERS = {
    "uid": (0, 65535), "gid": (0, 65535), "retries": (0, 10), "connect_timeout": (1, 60), "readwrite_timeout": (1, 300),
    "stat_cache_expire": (0, 86400), "stat_cache_interval_expire": (0, 86400), "max_stat_cache_size": (1, 100_000),
    "multipart_size": (5, 512), "parallel_count": (1, 20), "multireq_max": (1, 50), "list_object_max_keys": (2, 1000),
    "public_bucket": (0, 1),
}  # fmt: skip
_WORDS = {
    "region": re.compile("[a-z0-9-]{1,32}"), "umask": re.compile("[0-7]{3,4}"), "mp_umask": re.compile("[0-7]{3,4}"),
    "storage_class": re.compile("[a-z_]{1,32}"), "default_acl": re.compile("[a-z-]{1,32}"),
}  # fmt: skip
OPTIONS = tuple(sorted({*_FLAGS, *_NUMBERS, *_WORDS}))

_STYLES = ("amazonaws.com", "storage.googleapis.com", "r2.cloudflarestorage.com")
"""Stores that are asked by a host name per bucket; every other one by a path."""


class Credentials(msgspec.Struct, frozen=True, rename="camel"):
    """What requests to the store are signed with; shown nowhere."""

    access_key_id: str
    secret_access_key: str
    session_token: str | None = None

    def __repr__(self) -> str:
        return "Credentials(…)"

    def hidden(self, text: str) -> str:
        """The text without any of this."""
        for word in (self.session_token, self.secret_access_key, self.access_key_id):
            if word and len(word) > 3:
                text = text.replace(word, "…")
        return text


class Bucket(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One bucket, or what is below `prefix` in it, at one place."""

    bucket: str
    mount_path: str
    endpoint: str
    prefix: str | None = None
    read_only: bool = False
    options: tuple[str, ...] = ()

    @property
    def parts(self) -> list[str]:
        """The names on the way from /workspace to the mount."""
        return self.mount_path.split("/")[2:]

    @property
    def source(self) -> str:
        """As s3fs names it."""
        return self.bucket if self.prefix is None else f"{self.bucket}:/{self.prefix}"

    def meets(self, path: str) -> bool:
        """Whether a mount at `path` would lie in this one, or this one in it."""
        mine, other = f"{self.mount_path}/", f"{path}/"
        return mine.startswith(other) or other.startswith(mine)

    def settings(self) -> list[str]:
        """The options in s3fs's words; what the caller said comes last and wins."""
        host = urlsplit(self.endpoint).hostname or ""
        style = next((known for known in _STYLES if host == known or host.endswith(f".{known}")), None)
        own = ["use_path_request_style"] if style is None else ["nomixupload"] if style == _STYLES[2] else []
        # Seconds: each question to a store that is gone ends with an error.
        own += ["connect_timeout=5", "readwrite_timeout=15", "retries=1"]
        said = [f"endpoint={each[7:]}" if each.startswith("region=") else each for each in self.options]
        named = {each.partition("=")[0] for each in said}
        return [each for each in own if each.partition("=")[0] not in named] + said


def checked(asked: Bucket) -> Bucket:
    """The bucket as it will be mounted; INVALID_MOUNT_CONFIG."""
    if ":" in asked.bucket:
        raise _invalid("a bucket's name holds no ':'", "name what is below it with prefix")
    if not _NAME.fullmatch(asked.bucket):
        raise _invalid("a bucket's name has 1 to 63 of a-z, 0-9, '.' and '-', and none of the last two at an end")
    return Bucket(
        bucket=asked.bucket,
        mount_path=checked_path(asked.mount_path),
        endpoint=_endpoint(asked.endpoint),
        prefix=_prefix(asked.prefix),
        read_only=asked.read_only,
        options=_options(asked.options),
    )


def checked_path(path: str) -> str:
    """The place without a trailing slash; INVALID_MOUNT_CONFIG unless it is below /workspace."""
    bare = path.rstrip("/")
    inside = bare.startswith(f"{ROOT}/") and len(bare) <= 1024
    if not inside or _CONTROL.search(bare) or not _plain(bare.split("/")[2:]):
        raise _invalid("a bucket is mounted below /workspace, at a path without '.', '..' and control characters")
    return bare


def checked_credentials(given: Credentials | None, options: Sequence[str]) -> Credentials | None:
    """None for a public bucket alone; MISSING_CREDENTIALS, INVALID_MOUNT_CONFIG."""
    if given is None:
        if "public_bucket=1" not in options:
            hint = "give credentials, or the option public_bucket=1 for a bucket that everybody may read"
            raise error("MISSING_CREDENTIALS", "a bucket is mounted with credentials", hint=hint, admitted="no")
        return None
    words = ((_KEY_ID, given.access_key_id), (_SECRET, given.secret_access_key), (_TOKEN, given.session_token))
    if not all(word is None or shape.fullmatch(word) for shape, word in words):
        raise _invalid("credentials are visible ASCII: an access key id, a secret access key and maybe a session token")
    return given


def _plain(parts: Sequence[str]) -> bool:
    return all(part not in ("", ".", "..") and len(part.encode()) <= 255 for part in parts)


def _endpoint(text: str) -> str:
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise _invalid("the endpoint is no URL") from None
    extra = parts.username or parts.password or parts.query or parts.fragment or parts.path not in ("", "/")
    if (
        parts.scheme not in ("http", "https")
        or extra
        or _CONTROL.search(text)
        or not _HOST.fullmatch(host)
        or port == 0
    ):
        raise _invalid(
            "an endpoint is http:// or https://, a host and maybe a port", "https://s3.eu-west-1.example.com"
        )
    shown = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{shown}{'' if port is None else f':{port}'}"


def _prefix(text: str | None) -> str | None:
    bare = (text or "").strip("/")
    if not bare:
        return None
    if len(bare.encode()) > 512 or _CONTROL.search(bare) or not _plain(bare.split("/")):
        raise _invalid("a prefix is names with '/' between them, without '.', '..' and control characters")
    return bare


def _options(given: Sequence[str]) -> tuple[str, ...]:
    if len(given) > _MOST_OPTIONS:
        raise _invalid(f"at most {_MOST_OPTIONS} options")
    for each in given:
        name, equals, value = each.partition("=")
        low, high = _NUMBERS.get(name, (1, 0))
        number = value.isascii() and value.isdecimal() and len(value) < 7 and low <= int(value) <= high
        word = name in _WORDS and _WORDS[name].fullmatch(value) is not None
        if not ((name in _FLAGS and not equals) or number or word):
            raise _invalid(f"no such option: {each[:64]!r}", f"options: {', '.join(OPTIONS)}")
    return tuple(given)


def _invalid(message: str, hint: str | None = None) -> KennelError:
    return error("INVALID_MOUNT_CONFIG", message, hint=hint, admitted="no")
