"""Owns where placeholders are found in a request and how values take their place, as the last step before the wire.

Called by the gateway: `survey` before policy (placeholders only), `fill` after it (values). Invariant: what `fill`
writes is never read again for placeholders; a placeholder where nothing is replaced is an error; parts of a target
without a placeholder keep their bytes.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from kennel.domain.denial import Refused
from kennel.domain.placeholder import MAX_REFERENCES, Reference, Span, disguised, exact, find, mentions

TEMPLATE_HEADER = b"x-kennel-secret-template"
MAX_TEMPLATE = 1024 * 1024
_FORBIDDEN = re.compile(
    r"host|user-agent|referer|cookie2?|origin|range|forwarded|via|te|trailer|connection|expect|upgrade|date|from"
    r"|content-.*|accept(?:-.*)?|x-forwarded-.*|sec-websocket-(?:key|version|extensions)|access-control-.*|sec-fetch-.*"
)
_BASIC = re.compile(r"[Bb][Aa][Ss][Ii][Cc] +([A-Za-z0-9+/_=-]+) *")
_JSON_TYPE = re.compile(r"application/(?:[a-z0-9.+-]+\+)?json\s*(?:;.*)?", re.IGNORECASE)
_UNFIT = re.compile(r"[\r\n\x00]")
# `getSecret` as base64 shows it, at each of its three alignments.
_ENCODED = re.compile("Z2V0U2VjcmV0|dldFNlY3JldC|nZXRTZWNyZX")
_SUSPECT = re.compile(b"ecret|" + _ENCODED.pattern.encode())
_HEX = re.compile(r"%[0-9A-Fa-f]{2}")

_LOOKED_AT = frozenset((b"authorization", b"proxy-authorization", TEMPLATE_HEADER))

Header = tuple[bytes, bytes]
Value = Callable[[Reference], str]


@dataclass(slots=True)
class Survey:
    """The references of a request and where they stand (`header authorization`, `basic`, `path`, `query`, `body`)."""

    references: list[Reference] = field(default_factory=list)
    places: list[str] = field(default_factory=list)
    headers: list[int] = field(default_factory=list)
    basic: list[int] = field(default_factory=list)
    in_path: bool = False
    in_query: bool = False
    template: bool = False

    @property
    def subjects(self) -> tuple[str, ...]:
        if not self.references:
            return ()
        return tuple(dict.fromkeys(reference.subject for reference in self.references))

    def add(self, place: str, spans: list[Span]) -> None:
        if spans:
            self.references += [span.reference for span in spans]
            if place not in self.places:
                self.places.append(place)
        if len(self.references) > MAX_REFERENCES:
            raise Refused("secret_reference_too_many", f"more than {MAX_REFERENCES} references in one request")

    def require_one(self) -> None:
        """Refused when a request names two secrets, or a platform key outside its headers."""
        if not self.references:
            return
        if len(self.subjects) > 1:
            raise Refused("secret_reference_foreign", "one request may name one secret")
        platform = any(reference.platform is not None for reference in self.references)
        if platform and (self.in_path or self.in_query or "body" in self.places):
            raise Refused("secret_reference_outside_url_path", "a platform key may stand in headers only")


NOTHING = Survey()
"""What nearly every request holds; shared, and never added to."""


def survey(headers: list[Header], raw_path: str, raw_query: str | None) -> Survey:
    """Every placeholder in a request's head; Refused for one that is malformed or where none may stand."""
    suspicious = _SUSPECT.search
    if not (
        "%" in raw_path
        or "ecret" in raw_path
        or (raw_query and ("%" in raw_query or "ecret" in raw_query))
        or any(name in _LOOKED_AT or suspicious(value) for name, value in headers)
    ):
        return NOTHING
    found = Survey()
    for index, (name, value) in enumerate(headers):
        if suspicious(value) or name in _LOOKED_AT:
            _survey_header(found, index, name, value.decode("latin-1"))
            found.template = found.template or name == TEMPLATE_HEADER
    if "ecret" in raw_path or "%" in raw_path:
        spans = find(_decoded(raw_path, plus=False)[0])
        found.add("path", spans)
        found.in_path = bool(spans)
    if raw_query and ("ecret" in raw_query or "%" in raw_query):
        _survey_query(found, raw_query)
    return found


def _survey_header(found: Survey, index: int, name: bytes, text: str) -> None:
    label = name.decode("latin-1")
    if b"authorization" in name and (match := _BASIC.fullmatch(text)):
        decoded = _unbase64(match.group(1))
        if decoded is not None and mentions(decoded):
            if re.search("[-_]", match.group(1)) or disguised(decoded):
                raise Refused("secret_reference_malformed", "Basic credentials must be standard base64")
            found.add("basic", find(decoded))
            found.basic.append(index)
        return
    spans = find(text)
    if disguised(text) or _ENCODED.search(text):
        raise Refused("secret_reference_malformed", f"header {label} holds a reference in a form that is not replaced")
    if spans and _FORBIDDEN.fullmatch(label):
        raise Refused("secret_reference_forbidden_header", f"header {label} may not carry a secret")
    if spans:
        found.headers.append(index)
        found.add(f"header {label}", spans)


def _survey_query(found: Survey, raw_query: str) -> None:
    for pair in raw_query.split("&"):
        name, equals, value = pair.partition("=")
        if mentions(_decoded(name, plus=True)[0]):
            raise Refused("secret_reference_outside_url_path", "a query's names cannot hold a reference")
        if equals:
            spans = find(_decoded(value, plus=True)[0])
            found.add("query", spans)
            found.in_query = found.in_query or bool(spans)


def _unbase64(text: str) -> str | None:
    clean = text.replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(clean + "=" * (-len(clean) % 4), validate=True).decode("utf-8", "surrogateescape")
    except (binascii.Error, ValueError):
        return None


def _decoded(raw: str, *, plus: bool) -> tuple[str, list[int]]:
    """The percent-decoded text, one character per octet, and the raw index of each (with the end appended)."""
    out: list[str] = []
    where: list[int] = []
    position = 0
    while position < len(raw):
        where.append(position)
        if raw[position] == "%" and _HEX.match(raw, position):
            out.append(chr(int(raw[position + 1 : position + 3], 16)))
            position += 3
        else:
            out.append(" " if plus and raw[position] == "+" else raw[position])
            position += 1
    where.append(position)
    return "".join(out), where


def fill_target(found: Survey, raw_path: str, raw_query: str | None, value: Value) -> tuple[str, str | None]:
    """Path and query with values, percent-encoded as one segment or one value; the rest byte for byte."""
    if found.in_path:
        raw_path = _fill_raw(raw_path, value, plus=False)
    if found.in_query and raw_query is not None:
        pairs = []
        for pair in raw_query.split("&"):
            name, equals, text = pair.partition("=")
            pairs.append(f"{name}{equals}{_fill_raw(text, value, plus=True)}" if equals else pair)
        raw_query = "&".join(pairs)
    return raw_path, raw_query


def _fill_raw(raw: str, value: Value, *, plus: bool) -> str:
    text, where = _decoded(raw, plus=plus)
    out, position = [], 0
    for span in find(text):
        out += [raw[position : where[span.start]], quote(_fit(value(span.reference)), safe="")]
        position = where[span.end]
    return "".join(out) + raw[position:]


def fill_headers(found: Survey, headers: list[Header], value: Value) -> list[Header]:
    """The headers with values, Basic credentials decoded and encoded again; the template header is gone."""
    filled = list(headers)
    for index in found.headers:
        name, text = filled[index]
        filled[index] = (name, _fill(text.decode("latin-1"), value, "latin-1"))
    for index in found.basic:
        name, text = filled[index]
        match = _BASIC.fullmatch(text.decode("latin-1"))
        decoded = _unbase64(match.group(1)) if match else None
        if decoded is not None:
            pair = _fill(decoded, value, "utf-8")
            filled[index] = (name, b"Basic " + base64.b64encode(pair))
    return [header for header in filled if header[0] != TEMPLATE_HEADER]


def _fill(text: str, value: Value, encoding: str) -> bytes:
    """Text with values as UTF-8; what stood around them in its own encoding."""
    out, position = [], 0
    for span in find(text):
        out += [text[position : span.start].encode(encoding, "surrogateescape"), _fit(value(span.reference)).encode()]
        position = span.end
    return b"".join(out) + text[position:].encode(encoding, "surrogateescape")


def _fit(value: str) -> str:
    if _UNFIT.search(value):
        raise Refused("secret_material_unfit", "the value holds a line break or NUL and cannot stand here")
    return value


def check_template(headers: list[Header], length: int | None) -> None:
    """Refused unless the template header's mode, the content type and the body's size fit."""
    modes = [value for name, value in headers if name == TEMPLATE_HEADER]
    if modes != [b"json"]:
        raise Refused("secret_json_template_invalid_mode", "the template header must be 'json', once")
    types = [value.decode("latin-1") for name, value in headers if name == b"content-type"]
    encoded = any(name == b"content-encoding" for name, _ in headers)
    if len(types) != 1 or not _JSON_TYPE.fullmatch(types[0].strip()) or encoded:
        raise Refused("secret_json_template_invalid_content_type", "the body must be plain JSON")
    if length is not None and length > MAX_TEMPLATE:
        raise Refused("secret_json_template_body_too_large", f"the body has more than {MAX_TEMPLATE} bytes")


def survey_body(found: Survey, body: bytes) -> Any:
    """The parsed JSON body, its references added to the survey; Refused when there are none or it is no JSON."""
    try:
        tree = json.loads(body)
    except (ValueError, RecursionError):
        raise Refused("secret_json_template_invalid_body", "the body is not JSON") from None
    references: list[Span] = []
    _walk(tree, lambda text: _note(text, references))
    found.add("body", references)
    if not references:
        raise Refused("secret_reference_required", "the body names no secret")
    return tree


def _note(text: str, references: list[Span]) -> str:
    if (reference := exact(text)) is not None:
        references.append(Span(0, len(text), reference))
    return text


def fill_body(tree: Any, value: Value) -> bytes:
    """The JSON body with values in place of strings that are exactly a placeholder."""
    filled = _walk(tree, lambda text: value(reference) if (reference := exact(text)) is not None else text)
    return json.dumps(filled, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def _walk(tree: Any, change: Callable[[str], str]) -> Any:
    try:
        return _walked(tree, change)
    except RecursionError:
        raise Refused("secret_json_template_invalid_body", "the body is nested too deeply") from None


def _walked(tree: Any, change: Callable[[str], str]) -> Any:
    if isinstance(tree, str):
        return change(tree)
    if isinstance(tree, list):
        return [_walked(item, change) for item in tree]
    if isinstance(tree, dict):
        return {name: _walked(item, change) for name, item in tree.items()}
    return tree
