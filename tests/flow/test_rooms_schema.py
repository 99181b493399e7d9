"""The rooms' part of the document against the real server: generated requests, right and wrong ones."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.config import SchemathesisConfig
from schemathesis.core.parameters import ParameterLocation
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from installation import Installation

REFUSALS = [400, 401, 403, 404, 405, 409, 413, "5xx"]
CONFIG = SchemathesisConfig.from_dict({"checks": {"negative_data_rejection": {"expected-statuses": REFUSALS}}})
ROOM = "/api/rooms/{roomId}"
OPERATIONS = [
    ("/api/rooms", "get"), (ROOM, "get"), (ROOM, "put"), (f"{ROOM}/message", "post"), (f"{ROOM}/sandbox/exec", "post"),
    (f"{ROOM}/members", "get"), (f"{ROOM}/members", "post"), (f"{ROOM}/members", "delete"), (f"{ROOM}/links", "get"),
    (f"{ROOM}/links", "post"), (f"{ROOM}/links", "delete"), (ROOM, "delete"),
]  # fmt: skip
"""All but the events, which never end."""


@pytest.fixture(scope="module")
def room(installation: Installation) -> Iterator[str]:
    """A room of these requests' own, so that a made-up id does not make a sandbox."""
    name = f"schema-{uuid.uuid4().hex[:8]}"
    yield name
    with installation.client() as itx:
        assert itx.rooms.get(name).cleanup().errors == []


def check(installation: Installation, room: str, path: str, method: str, examples: int) -> None:
    headers = {"Authorization": f"Bearer {installation.key}"}
    schema = schemathesis.openapi.from_url(f"{installation.url}/openapi.json", headers=headers, config=CONFIG)

    def wrong(case: Any, *parts: ParameterLocation) -> bool:
        components = case.meta.components
        return any(components[part].mode is GenerationMode.NEGATIVE for part in parts if part in components)

    for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):

        @settings(
            max_examples=examples, derandomize=True, deadline=None, database=None,
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        @given(case=schema[path][method].as_strategy(generation_mode=mode))
        def holds(case: Any) -> None:
            if "roomId" in case.path_parameters and not wrong(case, ParameterLocation.PATH):
                case.path_parameters["roomId"] = room
            excluded = [] if wrong(case, ParameterLocation.BODY, ParameterLocation.PATH) else [negative_data_rejection]
            # Room and link limits, a cursor that is no path, and a command that cannot be started are refused too.
            excluded.append(positive_data_acceptance)
            if path.endswith("/message"):
                excluded.append(not_a_server_error)  # there is no model here, and it says so with 503
            case.call_and_validate(headers=headers, excluded_checks=excluded)

        try:
            holds()
        except Unsatisfiable:
            assert mode is GenerationMode.NEGATIVE


@pytest.mark.parametrize(("path", "method"), OPERATIONS)
def test_the_document_is_true(installation: Installation, room: str, path: str, method: str) -> None:
    check(installation, room, path, method, 10)


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("path", "method"), OPERATIONS)
def test_the_document_is_true_for_long(installation: Installation, room: str, path: str, method: str) -> None:
    check(installation, room, path, method, 200)
