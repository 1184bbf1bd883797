"""Worlds whose address sets its number of lanes: a lane and a transaction hold several partitions, and accepted records have numbers."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from agents.lane.open import Opening
from agents.lane.transactions import Transactions
from agents.output import build
from agents.output.sequences import sequence_header
from tests.simulator.lanes.envelopes import envelope_schedule
from tests.simulator.lanes.schedules import schedule
from tests.simulator.runner import Runner
from tests.simulator.schedules import Schedule
from tests.simulator.shrink import kind_of

FIRST, SEEDS = 50_000_000, 300


def _plans(made: Any = schedule) -> list[Schedule]:
    plans = map(made, range(FIRST, FIRST + SEEDS))
    return [plan for plan in plans if plan.lanes and plan.lanes < plan.partitions]


@pytest.mark.parametrize("made", [schedule, envelope_schedule])
def test_corpus_of_fixed_lanes(runner: Runner, made: Any) -> None:
    plans = _plans(made)

    assert {plan.seed: found for plan in plans if (found := runner.run(plan).faults)} == {}
    assert {plan.lanes for plan in plans} >= {1, 2}


def test_what_happens_in_them(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Transactions have batches of several partitions. Lanes move with all their partitions, and open again when the input grows."""
    seen: Counter[str] = Counter()
    transact, opening = Transactions._transact, Opening._open
    owners: list[dict[str, set[str]]] = []

    async def counted(self: Transactions, due: Sequence[Any], opened: Any) -> dict[int, int]:
        seen["several"] += len(due) > 1
        return await transact(self, due, opened)

    async def opened(self: Opening, ownership: Any, given: Any) -> Any:
        made = await opening(self, ownership, given)
        places = [partition for topic, partition in made.cursors if topic == self.address.input_topic]
        seen["grown"] += max(places) >= plan.partitions
        owners[-1].setdefault(self.name, set()).add(ownership._consumer._network.name)
        return made

    monkeypatch.setattr(Transactions, "_transact", counted)
    monkeypatch.setattr(Opening, "_open", opened)
    for plan in _plans():
        owners.append({})
        runner.run(plan)

    assert seen["several"] > 20
    assert seen["grown"] > 2
    assert sum(len(several) > 1 for lanes in owners for several in lanes.values()) > 20


@pytest.mark.parametrize(("shift", "name"), [(1, "NUMBERED"), (-1, "FORGOTTEN")])
def test_wrong_numbers_are_named(
    runner: Runner, monkeypatch: pytest.MonkeyPatch, shift: int, name: str
) -> None:
    monkeypatch.setattr(build, "sequence_header", lambda number: sequence_header(max(0, number + shift)))

    assert name in {kind_of(runner.run(plan)) for plan in _plans()[:10]}
