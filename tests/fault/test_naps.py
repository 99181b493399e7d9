"""Commands that come as a pet falls asleep: each runs once, or is refused and has not run; none sees half a sandbox."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from inside import run
from installation import Installation, make_installation
from kennel import Kennel, KennelError

pytestmark = [pytest.mark.root, pytest.mark.full]

PETS, CALLERS, ROUNDS = 8, 10, 125
NAP = 1.0


@pytest.fixture
def drowsy() -> Iterator[Installation]:
    yield from make_installation(warm_pool="0")


class Visits:
    """One pet's callers: they come around the moment at which it would fall asleep."""

    def __init__(self, itx: Kennel, number: int) -> None:
        self.box = itx.sandboxes.get(f"/sandboxes/drowsy{number}").create(sleep_after=int(NAP), env={"SET": "yes"})
        self.numbers = itertools.count()
        self.ran: list[int] = []
        self.refused: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.gate = threading.Barrier(CALLERS)
        self.wait = 0.0
        run(self.box, "echo kept > kept")

    def call(self) -> None:
        for _ in range(ROUNDS):
            if self.gate.wait() == 0:
                self.wait = NAP + random.uniform(-0.1, 0.5)
            self.gate.wait()
            time.sleep(self.wait + random.expovariate(20))
            self._visit(next(self.numbers))

    def _visit(self, number: int) -> None:
        try:
            done = self.box.exec(f"echo {number} >> visits; cat kept; echo $SET", timeout=60)
        except KennelError as failure:
            self.refused[failure.code] += 1
            if failure.admitted != "no":
                self.wrong.append(f"{number}: {failure.code}, admitted {failure.admitted}")
            return
        self.ran.append(number)
        if (done.exit_code, done.stdout) != (0, "kept\nyes\n"):
            self.wrong.append(f"{number}: {done}")


@pytest.mark.timeout(1800)
def test_ten_thousand_commands_around_the_moment_of_sleep(drowsy: Installation) -> None:
    with drowsy.client() as itx:
        visits = [Visits(itx, number) for number in range(PETS)]
        threads = [threading.Thread(target=each.call) for each in visits for _ in range(CALLERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        naps = 0
        for each in visits:
            assert each.wrong == []
            seen = Counter(map(int, run(each.box, "cat visits").split()))
            assert seen == Counter(each.ran), "a command ran twice, or though it was refused"
            told = [event["type"] for event in drowsy.events(each.box.path)]
            naps += told.count("sandbox/stopped")
            assert told.count("sandbox/started") - told.count("sandbox/stopped") in (0, 1)
            each.box.destroy()
    refused = sum((each.refused for each in visits), Counter())
    print(f"{PETS * CALLERS * ROUNDS} commands, {naps} naps, refused: {dict(refused)}")
    assert naps > PETS * ROUNDS / 10
