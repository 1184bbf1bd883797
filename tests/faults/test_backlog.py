"""A backlog that is larger than what a worker, or a consumer, may have in memory, and SIGKILL while it is worked off."""

import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.harness.checker.groups import Disturbance, Snapshot, judge
from tests.harness.group_system import System
from tests.harness.workloads.message_groups import Shape, accept, generate, sizes
from tests.harness.workloads.numbered import EXACT, wrong
from tests.support import kafka
from tests.support.consumers.processes import ConsumerProcess, consumers
from tests.support.kafka import Got, Sent
from tests.support.worker import WorkerProcess, configure, wait_for

MESSAGES = 240_000
PARTITIONS = 8
GROUPS = 25
"""For each partition."""
RESENDS = 0.05
KILLS = 3
SEED = 27_113
BOUND = 16 * 2**20
LIMIT_S = 240.0
HANDLED = 8_000
PADDING = 10_000
"""Bytes of each message: they are several times what the consumer may keep."""
SLOW_S = 1.0
"""For a few slow messages: what is finished above them is written apart from the committed offset."""
PROCESS_BYTES = 150 * 2**20
"""Memory of a consumer beside its messages, with some reserve: docs/consume.md says about 100 MiB."""


def _traffic(rng: random.Random, partition: int) -> list[Sent]:
    """Messages, some of which come again soon enough for the ring."""
    sent: list[Sent] = []
    for number in range(MESSAGES // PARTITIONS):
        if sent and rng.random() < RESENDS:
            sent.append(rng.choice(sent[-5_000:]))
        else:
            group = b"%d-%d" % (partition, rng.randrange(GROUPS))
            sent.append(Sent(b"%d-%d" % (partition, number), group, b"v" * rng.choice([10, 100, 1_000])))
    return sent


@pytest.mark.long
def test_killed_over_a_backlog(bootstrap: str, tmp_path: Path) -> None:
    """A killed worker accepts each ID once and in order, keeps what is under way below its bound, and pauses fetching there."""
    rng = random.Random(SEED)
    name = kafka.unique("backlog")
    address: dict[str, Any] = {"name": name, "partitions": PARTITIONS, "id_cache_size": MESSAGES}
    config = configure(tmp_path, bootstrap, name, [address])
    config.write_text(config.read_text().replace("[app]\n", f"[app]\nbuffer_bytes_max = {BOUND}\n"))
    traffic = {index: _traffic(rng, index) for index in range(PARTITIONS)}
    for partition, sent in traffic.items():
        kafka.send(bootstrap, name, sent, partition)
    worker = WorkerProcess(config, "w")
    most = 0

    def done() -> int:
        nonlocal most
        memory = worker.health()[1].get("memory", {})
        assert memory.get("limit_bytes", BOUND) == BOUND
        most = max(most, memory.get("buffered_bytes", 0))
        return sum(max(0, number) for number in kafka.committed(bootstrap, name, name, PARTITIONS))

    def reach(goal: int) -> None:
        wait_for(
            lambda: done() >= goal,
            lambda: f"{done()} of {goal}, seed {SEED}\n{worker.log()[-3_000:]}",
            LIMIT_S,
        )

    try:
        for number in range(KILLS):
            worker.start()
            reach(MESSAGES * (number + 1) // (KILLS + 1))
            worker.kill()
        worker.start()
        reach(MESSAGES)
        forward = f"{name}-{name}-forward"
        wait_for(lambda: kafka.consumed(bootstrap, name, forward, PARTITIONS), worker.log, LIMIT_S)
    finally:
        worker.destroy()

    assert (
        BOUND // 4 < most < BOUND + PARTITIONS * 2**20
    )  # a record batch each, as large as producers make them
    due, accepted = (
        _by_group(item for sent in traffic.values() for item in sent),
        _by_group(kafka.read_all(bootstrap, f"{name}.accepted", PARTITIONS)),
    )
    assert accepted.keys() == due.keys()
    for group, ids in due.items():
        assert wrong(accepted[group], list(dict.fromkeys(ids))) == EXACT, f"seed {SEED}, group {group!r}"


@pytest.mark.long
def test_consumer_killed_over_a_backlog(bootstrap: str, tmp_path: Path) -> None:
    """Each group resumes at its first message that was not finished and written, in order, and memory stays below its bound.

    Messages that ran, or ended too shortly before to be written, may run again; :mod:`tests.harness.checker.groups`.
    """
    name = kafka.unique("backlog-consumed")
    quick = ("--memory", "16", "--session-timeout", "6", "--lease-timeout", "3")
    system = System(bootstrap, tmp_path, name, 1, 0.005, SLOW_S, options=quick)
    [process] = system.processes
    messages = generate(Shape(HANDLED, group_size=37, interleave=53, randomized=True, ungrouped=0.05), SEED)
    accept(bootstrap, name, messages, PADDING)
    disturbances: list[Disturbance] = []
    snapshots: list[Snapshot] = []
    memory = _Memory(process)
    with consumers(process):
        for number in range(KILLS):
            goal = HANDLED * (number + 1) // (KILLS + 1)
            system.wait(lambda goal=goal: memory.look() and system.ended() >= goal, LIMIT_S)  # type: ignore[misc]
            system.freeze_at_work(process)
            disturbance, snapshot = system.kill(process)
            disturbances.append(disturbance)
            snapshots.append(snapshot)
            process.start()
        system.wait(lambda: memory.look() and system.ended() >= HANDLED, LIMIT_S)
        system.wait_no_lag()

    runs = system.runs()
    assert judge(runs, sizes(messages), disturbances, snapshots) == [], f"seed {SEED}"
    assert {run.pid for run in runs if run.end is None} >= {disturbance.pid for disturbance in disturbances}
    assert any(value.progress.finished for shot in snapshots for value in shot.written.values())
    assert BOUND // 4 < memory.kept < BOUND
    assert memory.resident < BOUND + PROCESS_BYTES, f"{memory.resident / 2**20:.0f} MiB"


class _Memory:
    """The most bytes of messages that a consumer kept, and the most memory that its process used."""

    def __init__(self, process: ConsumerProcess) -> None:
        self._process = process
        self.kept = self.resident = 0

    def look(self) -> bool:
        """Measure now; true, so that it may stand in a condition."""
        told = self._process.health()[1].get("memory", {})
        assert told.get("limit_bytes", BOUND) == BOUND
        self.kept = max(self.kept, told.get("buffered_bytes", 0))
        self.resident = max(self.resident, psutil.Process(self._process.pid).memory_info().rss)
        return True


def _by_group(records: Iterable[Sent | Got]) -> dict[bytes | None, list[bytes | None]]:
    found: dict[bytes | None, list[bytes | None]] = {}
    for record in records:
        found.setdefault(record.key, []).append(record.id)
    return found
