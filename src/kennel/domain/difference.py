"""Owns the least change between two JSON values, as operations of JSON Patch (RFC 6902): add, remove, replace.

Called by live state. Invariant: `patched(old, difference(old, new)) == new` for any two JSON values; a list is
one value and is replaced whole.
"""

from __future__ import annotations

import copy
from typing import Any

from kennel.domain.chain import canonical


def _word(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def difference(old: Any, new: Any, at: str = "") -> list[dict[str, Any]]:
    """The operations that turn `old` into `new`, in the order of the keys."""
    if not (isinstance(old, dict) and isinstance(new, dict)):
        # Compared as text: to Python 1, 1.0 and True are equal.
        return [] if canonical(old) == canonical(new) else [{"op": "replace", "path": at, "value": new}]
    found: list[dict[str, Any]] = []
    for key in sorted(old.keys() | new.keys()):
        where = f"{at}/{_word(key)}"
        if key not in new:
            found.append({"op": "remove", "path": where})
        elif key not in old:
            found.append({"op": "add", "path": where, "value": new[key]})
        else:
            found += difference(old[key], new[key], where)
    return found


def patched(value: Any, operations: list[dict[str, Any]]) -> Any:
    """A copy of `value` with the operations of a `difference` applied."""
    value = copy.deepcopy(value)
    for operation in operations:
        if operation["path"] == "":
            value = copy.deepcopy(operation["value"])
            continue
        *way, last = (w.replace("~1", "/").replace("~0", "~") for w in operation["path"][1:].split("/"))
        where = value
        for word in way:
            where = where[word]
        if operation["op"] == "remove":
            del where[last]
        else:
            where[last] = copy.deepcopy(operation["value"])
    return value
