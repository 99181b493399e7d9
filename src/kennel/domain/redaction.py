"""Owns hiding a value again in what comes back: every form the gateway can see is replaced by the placeholder.

Called by the gateway for responses to requests that carried a secret. Invariant: a form that is split over chunks is
still found; at most the bytes that could begin a form are kept back, so an event stream is not delayed by others.
"""

from __future__ import annotations

import base64
import html
import json
from urllib.parse import quote, quote_plus


def forms(value: str, basic: list[bytes] | None = None) -> list[bytes]:
    """Every spelling of a value to look for, longest first; `basic` are the Basic pairs it was sent in."""
    raw = value.encode("utf-8", "surrogatepass")
    inside = json.dumps(value)[1:-1]
    texts = {
        raw,
        quote(value, safe="").encode(),
        quote(value, safe="/").encode(),
        quote_plus(value).encode(),
        _lower_percent(quote(value, safe="")).encode(),
        inside.encode(),
        inside.replace("/", "\\/").encode(),
        json.dumps(value, ensure_ascii=False)[1:-1].encode("utf-8", "surrogatepass"),
        html.escape(value).encode("utf-8", "surrogatepass"),
        raw.hex().encode(),
        *_base64_forms(raw),
    }
    for pair in basic or []:
        texts.add(base64.b64encode(pair))
        texts.add(base64.urlsafe_b64encode(pair))
    return sorted((text for text in texts if text), key=len, reverse=True)


def _lower_percent(text: str) -> str:
    return "".join(
        char.lower() if index and "%" in text[max(0, index - 2) : index] else char for index, char in enumerate(text)
    )


def _base64_forms(raw: bytes) -> set[bytes]:
    """Base64 of the value at each of its three alignments inside a longer text, without the characters that mix."""
    found = set()
    for shift in range(3):
        encoded = base64.b64encode(b"\0" * shift + raw).rstrip(b"=")
        start = (0, 2, 3)[shift]
        end = len(encoded) - (1 if (shift + len(raw)) % 3 else 0)
        core = encoded[start:end]
        if len(core) >= 8:
            found |= {core, core.replace(b"+", b"-").replace(b"/", b"_")}
    return found


class Redactor:
    """Replaces every form in a stream of bytes; feed it, then take what `end` gives."""

    def __init__(self, spellings: list[bytes], instead: bytes) -> None:
        self._forms = spellings
        self._instead = instead
        self._kept = b""
        self.replaced = 0

    def feed(self, data: bytes) -> bytes:
        """What may go on now."""
        text = self._replace(self._kept + data)
        cut = self._cut(text)
        self._kept = text[cut:]
        return text[:cut]

    def end(self) -> bytes:
        """What was kept back."""
        text, self._kept = self._kept, b""
        return text

    def whole(self, data: bytes) -> bytes:
        """A text of its own, such as a header's value."""
        return self._replace(data)

    def _replace(self, text: bytes) -> bytes:
        for form in self._forms:
            if form in text:
                self.replaced += text.count(form)
                text = text.replace(form, self._instead)
        return text

    def _cut(self, text: bytes) -> int:
        """Where the longest end of the text begins that could be the beginning of a form."""
        cut = len(text)
        for form in self._forms:
            position = text.find(form[:1], max(0, len(text) - len(form) + 1))
            while position != -1 and position < cut:
                if form.startswith(text[position:]):
                    cut = position
                    break
                position = text.find(form[:1], position + 1)
        return cut
