"""A state machine of pets that change, sleep, are killed, rolled back and forked, beside a model of what they hold."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from installation import Installation, make_installation
from kennel import Kennel
from workspace_model import CHANGES, HAND, LOOK, Model, Op, seen, words

pytestmark = pytest.mark.root
_numbers = itertools.count()
_number = st.integers(0, 10_000)
TURNS = ("sleep", "sleep", "sleep", "kill", "nap", "snapshot", "rollback", "fork")
_change = st.tuples(st.sampled_from(CHANGES), _number, _number, _number)


class Pets(RuleBasedStateMachine):
    """One pet at a time; its forks take its place."""

    itx: Kennel
    installation: Installation
    cycles = 20

    @initialize()
    def create(self) -> None:
        self.box = self.itx.sandboxes.get(self._path()).create()
        self.model, self.saved = Model(), dict[str, Model]()
        self.slept, self.asleep, self.disk = 0, False, True
        self._do(self.model.found())

    @staticmethod
    def _path() -> str:
        return f"/sandboxes/model-{next(_numbers)}"

    def _python(self, script: str, text: str = "") -> str:
        self.asleep = False
        result = self.box.exec(argv=["python3", "-c", script], cwd="/", stdin=text, max_bytes=1 << 24)
        assert result.exit_code == 0, result.stderr
        return str(result.stdout)

    def _do(self, operations: list[Op]) -> None:
        self._python(HAND, words(operations))
        self.disk = True

    def _look(self) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = json.loads(self._python(LOOK))
        return found

    def _check(self) -> None:
        """The whole tree is the model's."""
        found, expected = seen(self._look()), self.model.rows()
        wrong = {path: (found.get(path), expected.get(path)) for path in found.keys() | expected.keys()
                 if found.get(path) != expected.get(path)}  # fmt: skip
        if wrong:
            pytest.fail("\n".join(f"{path!r}: is {pair[0]}, should be {pair[1]}" for path, pair in wrong.items()))

    def _settled(self, model: Model) -> None:
        """From now on the tree is the one of a stack of layers."""
        self.model, self.disk = model.packed(), False

    @rule(changes=st.lists(_change, min_size=1, max_size=12))
    def change(self, changes: list[tuple[str, int, int, int]]) -> None:
        done = [self.model.change(*each) for each in changes]
        self._do([each for each in done if each is not None])

    @rule(turn=st.sampled_from(TURNS), number=_number)
    def turn(self, turn: str, number: int) -> None:
        getattr(self, f"_{turn}")(number)

    def _sleep(self, number: int) -> None:
        """And wake; at times on a machine that has lost the layers."""
        if self.slept == self.cycles:
            return
        self.slept += 1
        times = self._times()
        self.box.sleep()
        self._settled(self.model.without(git=True))
        if number % 3 == 0:
            for path in (self.installation.data / "node/layers").glob("*.erofs"):
                path.unlink()
        self._check()
        assert self._times().items() <= times.items()

    def _times(self) -> dict[str, int]:
        """Also of directories, whose times the model does not know."""
        return {path: row[3] for path, row in self._look().items()}

    def _kill(self, _: int) -> None:
        self.box.kill()
        self.asleep = True

    def _nap(self, _: int) -> None:
        """A sleep without a look after it: what comes next meets a pet that sleeps."""
        running = not self.asleep
        self.box.sleep()
        if running:
            self._settled(self.model.without(git=True))
        self.asleep = True

    def _kept(self) -> Model:
        """What a backup of now holds: nobody asks git in a pet that does not run."""
        if not self.disk and self.asleep:
            return self.model.packed()
        return self.model.without(git=not self.asleep).packed()

    def _snapshot(self, _: int) -> None:
        kept = self._kept()
        self.saved[self.box.snapshot().id] = kept

    def _rollback(self, number: int) -> None:
        if not self.saved:
            return
        chosen = sorted(self.saved)[number % len(self.saved)]
        self.box.rollback(chosen)
        self._settled(self.saved[chosen])
        self._check()

    def _fork(self, number: int) -> None:
        """The pet's twin goes on in its place, with what the pet has now or what a snapshot has."""
        old, kept = self.box, self._kept()
        chosen = [None, *sorted(self.saved)][number % (1 + len(self.saved))]
        self.box = old.fork(self._path(), chosen)
        self._settled(kept if chosen is None else self.saved[chosen])
        self.saved = {}
        self._check()
        old.destroy()

    def teardown(self) -> None:
        if hasattr(self, "model"):
            self._check()
            told = [event["type"] for event in self.installation.events(self.box.path)]
            assert not {"sandbox/backup-failed", "sandbox/restore-failed"} & set(told), told
            self.box.destroy()


@pytest.fixture(scope="module")
def shallow() -> Iterator[Installation]:
    """An installation that merges layers as soon as there are three."""
    yield from make_installation(warm_pool="0", stack_depth="1")


def _run(installation: Installation, examples: int, steps: int, **words: Any) -> None:
    with installation.client() as itx:

        class Bound(Pets):
            pass

        Bound.itx, Bound.installation = itx, installation
        # First one life that is sure to have a merge in it, whatever the dice say.
        first = Bound()
        first.create()
        for number in range(5):
            first.change([(kind, number * 7 + at, number * 5 + at * 3, number + at) for at, kind in enumerate(CHANGES)])
            first._sleep(number)
        first.teardown()
        made: Callable[[], Any] = Bound
        run_state_machine_as_test(
            made,
            settings=settings(
                max_examples=examples,
                stateful_step_count=steps,
                deadline=None,
                database=None,
                print_blob=False,
                suppress_health_check=list(HealthCheck),
                **words,
            ),
        )
    depths = [len(e["payload"]["layers"]) for path in _streams(installation) for e in installation.events(path)
              if e["type"] == "sandbox/compacted"]  # fmt: skip
    assert depths, "nothing was merged"
    assert max(depths) == 1


def _streams(installation: Installation) -> list[str]:
    return [f"/sandboxes/model-{number}" for number in range(next(_numbers))]


def test_what_a_pet_holds_is_what_a_model_says(shallow: Installation) -> None:
    _run(shallow, 3, 30, derandomize=True, phases=[Phase.generate])


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_what_a_pet_holds_after_many_lives(shallow: Installation) -> None:
    examples = int(os.environ.get("KENNEL_MODEL_EXAMPLES", "60"))
    _run(shallow, examples, 60, phases=[Phase.generate, Phase.shrink])
