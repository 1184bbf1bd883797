"""Worlds of consumers: they settle by themselves, and a check names each error in consumers."""

import dataclasses
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from ringfence_client.dispatch.dispatcher import Dispatcher
from ringfence_client.partition import lease_acquisition
from ringfence_client.partition.write_schedule import WriteSchedule
from ringfence_client.progress import record_parts
from ringfence_client.progress.lease import LeaseWatch
from ringfence_client.progress.progress_record import Progress
from ringfence_client.progress.record_parts import ByOffset, Change, PartLayout
from ringfence_client.progress.resume_offset import Log, Resumption, resume
from tests.simulator.consumers.schedule_parts import AGES, Task, after
from tests.simulator.consumers.schedules import ConsumerSchedule, consumer_schedule
from tests.simulator.runner import Runner
from tests.simulator.schedules import Happening, Kind, in_its_way
from tests.simulator.shrink import kind_of

WORLDS_MAX = 500


def _failing(runner: Runner, plans: Iterable[ConsumerSchedule]) -> dict[int, Sequence[str]]:
    return {plan.seed: found for plan in plans if (found := runner.run(plan).faults)}


def _plan(seed: int, partitions: int, *happenings: Happening, **options: Any) -> ConsumerSchedule:
    return ConsumerSchedule(
        seed, partitions, 2, 2, divert=False, happenings=happenings, small=True, **options
    )


def test_records_with_parts(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """No world finds an error under any kind of fault when parts are so small that nearly each record has some."""
    monkeypatch.setattr(record_parts, "WHOLE_MAX", 2)
    monkeypatch.setattr(record_parts, "PART_MAX", 4)
    with_parts = 0
    original = PartLayout.change

    def counted(self: PartLayout, now: ByOffset) -> Change:
        nonlocal with_parts
        change = original(self, now)
        with_parts += change.head is not None and len(change.head) > 1
        return change

    monkeypatch.setattr(PartLayout, "change", counted)

    assert _failing(runner, map(consumer_schedule, range(150))) == {}
    assert with_parts > 100


@pytest.mark.parametrize("process", [0, 1])
def test_ends_as_its_time_is_up(runner: Runner, process: int) -> None:
    """A consumer that slept past its drain timeout and its handler's end still counts what it finished: it still holds the lease."""
    message = (Task(b"g0", 3.0, "ok"),)
    happenings = (
        Happening(0, 0.0, Kind.SEND, messages=message),
        Happening(AGES, 0.5, Kind.STOP, process=process, seconds=8.0),
        Happening(AGES, 1.0, Kind.PAUSE, process=process, seconds=2.0),
    )
    plans = [_plan(seed, 1, *happenings, lease_timeout=5.0, drain_timeout=2.0) for seed in range(4)]

    assert _failing(runner, plans) == {}


def test_comes_back_while_a_letter_is_on_its_way(runner: Runner) -> None:
    """Each dead letter is written once when a consumer joins and leaves while the topic refuses dead letters."""
    plans = []
    for seed in (202, 285, 292, 301, 579):  # in which that is so
        dice = random.Random(seed)
        partition = dice.randrange(2)
        outcomes = ("ok", *(dice.choice(("reject", "hopeless", "ok")) for _ in range(3)))
        messages = tuple(
            Task(b"g%d" % number, 0.0 if number else 6.0, outcome) for number, outcome in enumerate(outcomes)
        )
        plan = _plan(
            seed, 2,
            Happening(0, 0.0, Kind.STOP, process=1, seconds=dice.uniform(1.0, 3.0)),
            Happening(AGES, dice.uniform(0.3, 1.5), Kind.LETTERS, seconds=dice.uniform(3, 8)),
            Happening(0, 0.0, Kind.SEND, partition=partition, messages=messages),
            Happening(AGES, dice.uniform(0.5, 4.0), Kind.CRASH, process=1, seconds=dice.uniform(1, 5)),
            concurrency=3, lease_timeout=5.0, drain_timeout=10.0, max_attempts=1,
        )  # fmt: skip
        plans.append(in_its_way(plan))

    assert _failing(runner, plans) == {}


def test_its_own_transaction_is_open(runner: Runner) -> None:
    """A consumer that the group removed still records what is finished when it does not know whether its first write has ended."""
    messages = (Task(b"g0", 6.0, "ok"), Task(b"g1", 0.0, "ok"))
    plan = _plan(
        0, 1,
        after(1.5),
        Happening(0, 0.0, Kind.SEND, messages=messages),
        Happening(AGES, 2.0, Kind.PAUSE, "heartbeat", seconds=5.1, count=1),
        after(4.8),
        Happening(AGES, 3.0, Kind.REFUSED, "produce", count=1),
        implicit=True, concurrency=3, drain_timeout=10.0, lease_timeout=20.0, lease_idle=20.0,
    )  # fmt: skip
    seeds = (0, 5, 6, 17, 22)  # in which it is put out, and its end is what is refused

    assert _failing(runner, (dataclasses.replace(plan, seed=seed) for seed in seeds)) == {}


async def _not_ended(self: Dispatcher, held: Any) -> bool:
    return True


def _of_any_topic(recorded: Progress | None, log: Log) -> Resumption:
    """Resume from progress of a deleted topic as if it were progress of the new topic of the same name."""
    return resume(None if recorded is None else dataclasses.replace(recorded, topic_id=log.topic_id), log)


@pytest.mark.parametrize(
    ("owner", "name", "mistaken", "names"),
    [
        (LeaseWatch, "silence_left", lambda *_: 0.0, {"EARLY", "SILENT", "OVERLAPPED"}),
        (Dispatcher, "drop", _not_ended, {"OVERLAPPED", "FORGOTTEN"}),
        (WriteSchedule, "covers", lambda _: True, {"UNFENCED"}),
        (lease_acquisition, "resume", _of_any_topic, {"UNHANDLED", "LOST", "StalledError", "FORGOTTEN", "REDONE"}),
    ],
    ids=["taken at once", "released while handlers run", "begun uncovered", "another topic of the name"],
)  # fmt: skip
def test_names_what_is_wrong(
    runner: Runner,
    monkeypatch: pytest.MonkeyPatch,
    owner: Any,
    name: str,
    mistaken: Callable[..., Any],
    names: set[str],
) -> None:
    monkeypatch.setattr(owner, name, mistaken)
    found = next(
        (
            kind_of(result)
            for seed in range(WORLDS_MAX)
            if (result := runner.run(consumer_schedule(seed))).faults
        ),
        "",
    )

    assert found in names
