"""Batches of seeds, each tried in a process of its own: all seeds are tried in order, and the first one that fails is reported."""

from collections.abc import Sequence
from typing import Any

import pytest

from agents.lane.opening.start_offsets import StartOffsets
from tests.simulator.batches import BATCH, Tally, tallies
from tests.simulator.runner import Runner
from tests.simulator.worlds import WORLDS

SEEDS = BATCH + 5
FIRST = 1_000


def _tally(jobs: int, count: int = SEEDS) -> Tally:
    tally = Tally()
    for item in tallies(FIRST, ["lanes"], jobs, count, lambda: tally.failure is None):
        tally.add(item)
    return tally


def test_first_that_fails(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reported number counts the schedule among all schedules that were tried, in all processes."""
    correct = StartOffsets._next

    async def mistaken(
        self: StartOffsets, topic: str, committed: int | None, facts: object, meta: Any
    ) -> int:
        return await correct(self, topic, None, facts, meta) + 1  # type: ignore[arg-type]

    def failing(seeds: Sequence[int]) -> int:
        return next(seed for seed in seeds if runner.run(WORLDS["lanes"](seed)).faults)

    monkeypatch.setattr(StartOffsets, "_next", mistaken)
    found = _tally(2).failure

    assert found is not None
    assert found.seed == failing(range(FIRST, FIRST + SEEDS))
    assert found.number == found.seed - FIRST + 1
