"""Random lives on a real log against a model: appends, conflicts, folds, restarts, a second process."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from kennel.adapters.sql.event_log import SqlEventLog, open_log
from kennel.control.projection import Projections
from kennel.domain.event import NewEvent, fact
from kennel.domain.principal import SYSTEM
from kennel.domain.sandbox import EMPTY, evolve
from kennel.wire.errors import KennelError

_names = itertools.count()
CONFIG = {
    "instanceType": "basic", "image": "host", "imageDigest": "sha256:1", "isolation": "container",
    "persist": "workspace", "sandboxId": "sb1",
}  # fmt: skip
FACTS: list[tuple[str, dict[str, Any]]] = [
    ("sandbox/created", {"config": CONFIG}), ("sandbox/started", {}), ("sandbox/stopped", {}),
    ("sandbox/backup-created", {"backupId": "b1"}), ("sandbox/configured", {"env": {"A": "1"}}),
    ("sandbox/configured", {"env": {"A": None}}), ("sandbox/destroyed", {}),
]  # fmt: skip
PATHS = st.sampled_from(["/sandboxes/a", "/sandboxes/b"])
BATCH = st.lists(
    st.tuples(
        st.sampled_from(FACTS), st.sampled_from([None, None, "k1", "k2"]), st.sampled_from([None, None, None, 0, 1])
    ),
    min_size=1,
    max_size=4,
)


def machine(url: str) -> type[RuleBasedStateMachine]:
    """The machine over one database; each run has a project of its own."""

    class Lives(RuleBasedStateMachine):
        @initialize()
        def start(self) -> None:
            self.runner = asyncio.Runner()
            self.project = f"m{next(_names)}"
            self.logs: list[SqlEventLog] = [self._wait(open_log(url)), self._wait(open_log(url))]
            self.projections = [Projections(log) for log in self.logs]
            self.model: dict[str, list[tuple[str, dict[str, Any], str | None, bool]]] = {}

        def _wait(self, call: Any) -> Any:
            return self.runner.run(call)

        def teardown(self) -> None:
            if hasattr(self, "runner"):
                for log in self.logs:
                    self._wait(log.close())
                self.runner.close()

        def _outcome(
            self, path: str, batch: list[tuple[str, dict[str, Any], str | None, int | None]]
        ) -> list[int] | None:
            """What the model says: the offsets, after taking the batch in; None for a refusal."""
            rows = list(self.model.get(path, [("stream/created", {}, None, True)]))
            offsets = []
            for type_, payload, key, offset in batch:
                at = next((i + 1 for i, row in enumerate(rows) if key is not None and row[2] == key), None)
                if at is not None and rows[at - 1][:2] != (type_, payload):
                    return None
                landing = at if at is not None else len(rows) + 1
                if offset is not None and offset != landing:
                    return None
                if at is None:
                    rows.append((type_, payload, key, True))
                offsets.append(landing)
            self.model[path] = rows
            return offsets

        @rule(path=PATHS, batch=BATCH, who=st.integers(0, 1))
        def append_and_fold(self, path: str, batch: list[Any], who: int) -> None:
            here = len(self.model.get(path, [None]))
            asked = [(t, p, k, None if d is None else here + 1 + d) for (t, p), k, d in batch]
            expected = self._outcome(path, asked)
            events = [fact(SYSTEM, t, p, key=k, offset=o) for t, p, k, o in asked]
            try:
                state = self._wait(self.projections[who].append_and_fold(self.project, path, events))
            except KennelError as refusal:
                self._refused(refusal.code, expected)
                return
            assert expected is not None
            assert state == self._fold(path)

        @staticmethod
        def _refused(code: str, expected: object) -> None:
            assert code in ("IDEMPOTENCY_CONFLICT", "OFFSET_CONFLICT")
            assert expected is None

        @rule(path=PATHS, fact_=st.sampled_from(FACTS), who=st.integers(0, 1))
        def forge(self, path: str, fact_: tuple[str, dict[str, Any]], who: int) -> None:
            with pytest.raises(KennelError):
                self._wait(self.logs[who].append(self.project, path, [NewEvent(type=fact_[0], payload=fact_[1])]))

        @rule(who=st.integers(0, 1))
        def restart(self, who: int) -> None:
            self._wait(self.projections[who].save())
            self._wait(self.logs[who].close())
            self.logs[who] = self._wait(open_log(url))
            self.projections[who] = Projections(self.logs[who])

        def _fold(self, path: str) -> Any:
            state = EMPTY
            for event in self._wait(self.logs[0].read(self.project, path)):
                state = evolve(state, event)
            return state

        async def _seen(self, projections: Projections, path: str) -> tuple[int, Any]:
            """Offset and state as this process has them once it has looked."""
            fold = await projections.fold(self.project, path)
            await fold.refresh()
            return fold.offset, fold.state

        @invariant()
        def both_processes_hold_the_model(self) -> None:
            for path, rows in getattr(self, "model", {}).items():
                for log, projections in zip(self.logs, self.projections, strict=True):
                    events = self._wait(log.read(self.project, path))
                    assert [e.offset for e in events] == list(range(1, len(rows) + 1))
                    assert [(e.type, e.payload) for e in events[1:]] == [row[:2] for row in rows[1:]]
                    assert self._wait(self._seen(projections, path)) == (len(rows), self._fold(path))
                assert self._wait(self.logs[0].verify(self.project, path)) == []

    return Lives


@pytest.mark.parametrize("examples", [8, pytest.param(150, marks=pytest.mark.full)])
def test_lives_follow_the_model(log_url: str, examples: int) -> None:
    run_state_machine_as_test(
        machine(log_url),
        settings=settings(
            max_examples=examples, stateful_step_count=12, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
