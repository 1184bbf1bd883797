"""Consumers and their broker are killed or frozen: nothing is lost, groups keep their order, and nothing written is done again."""

import random
import time
from pathlib import Path

import pytest

from tests.harness.checker.groups import Disturbance, Run, Snapshot, judge
from tests.harness.group_system import PARTITIONS, System, assert_rising
from tests.harness.workloads.message_groups import Flow, GroupMessage, Shape, accept, generate
from tests.support import kafka
from tests.support.consumers.processes import consumers, wait_shared

SEED = 7_919
KILLS = 2
MESSAGES = 40_009
"""More messages than are sent."""
SLOW_S = 6.0


@pytest.mark.long
def test_kills_under_traffic(bootstrap: str, tmp_path: Path) -> None:
    """Each group resumes at its first message that was not finished and written, in order, after any kill."""
    generator = random.Random(SEED)
    system = System(bootstrap, tmp_path, kafka.unique("consumers-killed"), 3, 0.011, SLOW_S)
    shape = Shape(messages=MESSAGES, group_size=37, interleave=53, randomized=True, ungrouped=0.05)
    messages = generate(shape, SEED)
    flow = Flow(bootstrap, system.name, messages, 150)
    disturbances: list[Disturbance] = []
    snapshots: list[Snapshot] = []
    with consumers(*system.processes), flow:
        flow.start()
        for number in range(KILLS):
            system.wait_ended(system.ended() + 300)
            victims = generator.sample(system.processes, 1 + number % 2)
            system.wait_attempt_written(victims[0])
            for victim in victims:
                disturbance, snapshot = system.kill(victim)
                disturbances.append(disturbance)
                snapshots.append(snapshot)
            for victim in victims:
                victim.start()
        system.wait_ended(system.ended() + 300)
        sent = system.finish(flow)

    runs = system.runs()
    assert judge(runs, sent, disturbances, snapshots) == [], f"seed {SEED}"
    again = _again(runs, disturbances, snapshots)
    assert again, "no kill struck a run whose attempt was written"
    assert all(later.attempt == earlier.attempt + 1 for earlier, later in again)


def _again(
    runs: list[Run], disturbances: list[Disturbance], snapshots: list[Snapshot]
) -> list[tuple[Run, Run]]:
    """Pairs of a run that a kill ended after its attempt was written, and the next run of the same message."""
    return [
        (
            run,
            next(
                item for item in runs[index + 1 :] if (item.label, item.sequence) == (run.label, run.sequence)
            ),
        )
        for index, run in enumerate(runs)
        for disturbance, snapshot in zip(disturbances, snapshots, strict=True)
        if run.end is None and run.pid == disturbance.pid and snapshot.counts(run)
    ]


def test_attempts_are_counted_over_kills(bootstrap: str, tmp_path: Path) -> None:
    """A message that was running at the kill starts again as the next attempt; one that only waited starts as the first."""
    quick = ("--session-timeout", "6", "--lease-timeout", "3")
    system = System(bootstrap, tmp_path, kafka.unique("attempts"), 1, 3600, options=quick)
    [process] = system.processes
    messages = [
        GroupMessage(f"g{group}", number, last=number == 2) for group in range(3) for number in range(3)
    ]
    with consumers(process):
        accept(bootstrap, system.name, messages)
        for attempt in (1, 2):
            _wait_attempts(system, attempt)
            process.kill()
            process.start()
        system.wait(lambda: len(system.runs()) == 9)

    runs = system.runs()
    assert [run.sequence for run in runs] == [0] * 9
    for label in ("g0", "g1", "g2"):
        assert [run.attempt for run in runs if run.label == label] == [1, 2, 3]


def _wait_attempts(system: System, attempt: int) -> None:
    system.wait(
        lambda: (
            [
                count
                for value in system.snapshot().written.values()
                for count in value.progress.attempts.values()
            ]
            == [attempt] * 3
        )
    )


@pytest.mark.long
def test_frozen_consumer_changes_nothing(bootstrap: str, tmp_path: Path) -> None:
    """A consumer that is stopped past its session and woken does not change its successor's progress with its acknowledgements."""
    system = System(bootstrap, tmp_path, kafka.unique("consumer-frozen"), 2, 0.05)
    sleeper, heir = system.processes
    shape = Shape(messages=MESSAGES, group_size=37, interleave=53, randomized=True)
    messages = generate(shape, SEED)
    flow = Flow(bootstrap, system.name, messages, 60)
    with consumers(sleeper, heir), flow:
        wait_shared(sleeper, heir, partitions=PARTITIONS)
        flow.start()
        system.wait_ended(150)
        frozen = system.freeze_at_work(sleeper)
        system.wait(lambda: len(heir.held) == PARTITIONS and heir.health()[0] == 200)
        before = len(system.runs())
        system.wait(lambda: len(system.runs()) > before + 200)
        # It hears of the rebalance before it joins again.
        told = sleeper.log().count("may move to other consumers")
        woken = sleeper.thaw()
        system.wait(lambda: sleeper.log().count("may move to other consumers") > told)
        knew = time.monotonic()
        wait_shared(sleeper, heir, partitions=PARTITIONS)
        sent = system.finish(flow)

    disturbance = Disturbance(sleeper.pid, frozen, knew)
    runs = system.runs()
    assert any(run.pid == sleeper.pid and run.begin < frozen < woken < (run.end or 0) for run in runs), (
        "what was running when it was frozen did not come to its end, so nothing was acknowledged too late"
    )
    assert judge(runs, sent, [disturbance]) == [], f"seed {SEED}"
    assert_rising(system)
