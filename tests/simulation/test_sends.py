"""Worlds whose handlers send: each acknowledged message has its sends once, with the exact total of its group, and no other has any."""

import dataclasses
from collections.abc import Callable, Sequence

import pytest

from tests.simulator.consumers.schedule_parts import AGES, Task, after
from tests.simulator.consumers.schedules import ConsumerSchedule
from tests.simulator.runner import Runner
from tests.simulator.schedules import Happening, Kind, in_its_way
from tests.simulator.sends import check
from tests.simulator.sends.handlers import LEDGER, PLAIN
from tests.simulator.sends.schedules import LARGE_CACHE_BYTES, TINY_CACHE_BYTES
from tests.simulator.sends.world import STATE

RUNS = 12
GROUPS = (b"g0", b"g0", b"g1", b"g0", b"g1")


def _sent(outcomes: Sequence[str], partition: int = 0, within: float = 0.0) -> Happening:
    tasks = tuple(
        Task(GROUPS[number % len(GROUPS)], 0.02, outcome) for number, outcome in enumerate(outcomes)
    )
    return Happening(AGES, within, Kind.SEND, partition=partition, messages=tasks)


def _plan(*happenings: Happening, partitions: int = 1) -> ConsumerSchedule:
    return ConsumerSchedule(
        0, partitions, 2, 8, divert=False, happenings=happenings, concurrency=3, prefetch=4, sends=True,
        state_cache=LARGE_CACHE_BYTES,
    )  # fmt: skip


def _found(runner: Runner, plan: ConsumerSchedule) -> dict[int, Sequence[str]]:
    """Return what is wrong by seed; each seed has other delays and another way to write transactions."""
    plans = [in_its_way(dataclasses.replace(plan, seed=seed)) for seed in range(RUNS)]
    return {item.seed: faults for item in plans if (faults := runner.run(item).faults)}


def test_attempts_that_fail(runner: Runner) -> None:
    """Nothing of a failed, released or rejected attempt is sent, and the state is as before."""
    outcomes = ("ok", "fail", "release", "retry", "reject", "unsendable", "ok", "hopeless", "fail", "ok")

    assert _found(runner, _plan(_sent(outcomes))) == {}


@pytest.mark.parametrize("at", ["produce", "end"])
def test_processes_that_die(runner: Runner, at: str) -> None:
    """A process dies while it writes; its messages come again, and one copy is committed."""
    happenings: list[Happening] = []
    for requests in (1, 2, 3, 1, 2, 3):  # before it dies
        happenings += (_sent(("ok",) * 5, within=0.5), *(after(3.0, at) for _ in range(requests)))
        happenings.append(Happening(AGES, 3.0, Kind.CRASH, at, seconds=0.5))

    assert _found(runner, _plan(*happenings)) == {}


@pytest.mark.parametrize("cache", [TINY_CACHE_BYTES, LARGE_CACHE_BYTES])
def test_holders_that_freeze(runner: Runner, cache: int) -> None:
    """Two processes freeze by turns for longer than the lease; each continues with the totals that the other one has left."""
    happenings: list[Happening] = []
    for number in range(4):
        frozen = Happening(AGES, 0.5, Kind.PAUSE, process=number % 2, seconds=12.0)
        happenings += (_sent(("ok",) * 5, within=1.0), frozen, _sent(("ok",) * 3, within=11.0), after(6.0))

    assert _found(runner, dataclasses.replace(_plan(*happenings), state_cache=cache)) == {}


def test_partitions_that_move(runner: Runner) -> None:
    """Partitions go to and fro between two processes while messages are handled; the last transaction has the last states."""
    moved = Happening(AGES, 0.15, Kind.REBALANCE)
    rounds = [(_sent(("ok",) * 8, 0, 0.5), _sent(("ok",) * 8, 1), moved) for _ in range(10)]
    plan = _plan(*(item for row in rounds for item in row), partitions=2)

    assert _found(runner, plan) == {}


def test_batches_that_fail(runner: Runner) -> None:
    """A failed batch does not count as an attempt at its messages, even if they have only one attempt."""
    outcomes = ("ok", "ok", "fail", "ok", "ok", "reject", "ok", "ok")
    tasks = tuple(Task(b"g0", 0.02, outcome) for outcome in outcomes)
    plan = _plan(*(Happening(AGES, 0.5, Kind.SEND, messages=tasks) for _ in range(3)))

    assert _found(runner, dataclasses.replace(plan, batch=4, max_attempts=1)) == {}


@pytest.mark.parametrize("topic", [PLAIN, LEDGER, STATE])
def test_topics_that_refuse(runner: Runner, topic: str) -> None:
    """A topic takes nothing for a while: messages fail or come again, and nothing is half-sent."""
    refused = Happening(AGES, 1.0, Kind.TARGET, request=topic, seconds=3.0)
    plan = _plan(_sent(("ok",) * 3), refused, _sent(("ok",) * 5), _sent(("ok",) * 5, within=2.0))

    assert _found(runner, plan) == {}


@pytest.mark.parametrize(
    ("name", "mistaken", "expected"),
    [
        ("total_after", lambda _, number: number, "WRONG-TOTAL"),
        ("state_after", lambda *_: None, "WRONG-TOTAL"),
        ("home", lambda *_: 7, "WRONG-STATE"),
        ("finished", lambda _: lambda _: False, "IN-VAIN"),
    ],
)
def test_names_what_is_wrong(
    runner: Runner, monkeypatch: pytest.MonkeyPatch, name: str, mistaken: Callable[..., object], expected: str
) -> None:
    monkeypatch.setattr(check, name, mistaken)
    faults = runner.run(_plan(_sent(("ok",) * 5))).faults

    assert expected in {fault.split()[0] for fault in faults}
