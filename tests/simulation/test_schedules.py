"""Simulated worlds: known and fresh seeds, seeds that once failed, and a bug that they must find."""

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from agents.lane.opening.start_offsets import StartOffsets
from tests.simulator.batches import BATCH, Tally, tallies
from tests.simulator.consumers.schedules import consumer_schedule
from tests.simulator.lanes.schedules import schedule
from tests.simulator.runner import Runner
from tests.simulator.schedules import Kind, Schedule
from tests.simulator.shrink import kind_of, shrunk
from tests.simulator.worlds import WORLDS
from tests.support.checkout import ROOT

CORPUS = Path(__file__).with_name("corpus.txt")
FIRST = 70_000_000
SCHEDULES = BATCH
FRESH_S = 60.0


def _corpus(world: str) -> list[int]:
    lines = (line.split("#")[0].split() for line in CORPUS.read_text("utf-8").splitlines())
    return [int(line[1]) for line in lines if line and line[0] == world]


@pytest.mark.parametrize("world", WORLDS)
def test_corpus(runner: Runner, world: str) -> None:
    failed = {seed: found for seed in _corpus(world) if (found := runner.run(WORLDS[world](seed)).faults)}

    assert failed == {}
    assert _corpus(world)


@pytest.mark.usefixtures("runner")
def test_known_seeds() -> None:
    _require_passing(FIRST, SCHEDULES, lambda: True)


@pytest.mark.long
@pytest.mark.usefixtures("runner")
def test_fresh_seeds() -> None:
    """As many fresh seeds as the time allows pass; each failure reports how to run it again."""
    deadline = time.monotonic() + FRESH_S
    count = _require_passing(secrets.randbelow(2**40), None, lambda: time.monotonic() < deadline)

    assert count >= BATCH


def _require_passing(first: int, count: int | None, more: Callable[[], bool]) -> int:
    """Return how many schedules passed; the first that fails ends the test."""
    tally = Tally()
    for item in tallies(first, list(WORLDS), 1, count, more):
        tally.add(item)
        assert (found := tally.failure) is None, (
            f"python -m tests.simulator --seed {found.seed} --world {found.world} --count 1: {found.said}"
        )
    return tally.count


@pytest.mark.parametrize("world", WORLDS)
def test_replays_identically(runner: Runner, world: str) -> None:
    """A seed gives the same run to the last callback, and another seed gives another run."""
    again = [runner.run(WORLDS[world](seed), watched=True) for seed in (7, 7, 8)]

    assert again[0] == again[1]
    assert again[0].trace
    assert again[0].signature != again[2].signature


def test_replays_in_another_process() -> None:
    """A seed gives the same run in each process, whatever its addresses of objects and its hashes of text."""

    def shown(hashes: str) -> str:
        command = [sys.executable, "-m", "tests.simulator", "--seed", "13", "--schedule"]
        environment = {**os.environ, "PYTHONHASHSEED": hashes}
        return subprocess.run(
            command, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True
        ).stdout

    assert (first := shown("1")) == shown("2")
    assert first.count("well") == len(WORLDS)


@pytest.mark.parametrize(("made", "limit_s"), [(schedule, 30), (consumer_schedule, 100)])
def test_without_faults(runner: Runner, made: Callable[..., Schedule], limit_s: float) -> None:
    """A world settles in a few virtual seconds when nothing happens but messages."""
    found = [runner.run(made(seed, faults=0)) for seed in range(15)]

    assert [result.faults for result in found] == [[]] * 15
    assert max(result.seconds for result in found) < limit_s


def test_finds_a_bug_and_makes_it_short(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worlds find, and shorten, a bug: the group's offset counts instead of the changelog's."""
    correct = StartOffsets._next

    async def mistaken(
        self: StartOffsets, topic: str, committed: int | None, facts: object, _: object
    ) -> int:
        return await correct(self, topic, committed, facts, None)  # type: ignore[arg-type]

    monkeypatch.setattr(StartOffsets, "_next", mistaken)
    plan = next(
        item
        for item in map(schedule, range(100_000))
        if not item.small
        and any(happening.kind is Kind.OFFSETS for happening in item.happenings)
        and runner.run(item).faults
    )
    short = shrunk(plan, runner)
    result = runner.run(short, watched=True)

    assert len(short.happenings) < len(plan.happenings)
    assert kind_of(result) == kind_of(runner.run(plan))
    assert Kind.OFFSETS in {happening.kind for happening in short.happenings}
