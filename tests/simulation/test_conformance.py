"""The simulated cluster answers as the scripts say; tests/integration/test_simulated_cluster.py holds the real one against the same."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiokafka.errors import ConcurrentTransactions, InvalidTxnState, OutOfOrderSequenceNumber, ProducerFenced

from ringfence_client.consumer.assignor import KeepingAssignor
from tests.simulator.conformance import late_requests, topics, transactions
from tests.simulator.conformance.late_requests import FENCED, NOT_IN_ONE, OUT_OF_ORDER, WELL
from tests.simulator.consumers import group
from tests.simulator.consumers.group import KeepingGroup
from tests.simulator.consumers.membership import ConsumerRights
from tests.simulator.doubles.admin import SimulatedQuestions
from tests.simulator.doubles.group_member import SimulatedMember
from tests.simulator.doubles.producer import SimulatedProducer
from tests.simulator.doubles.reader import SimulatedReader
from tests.simulator.kafka.cluster import SimulatedCluster
from tests.simulator.kafka.transactions import Who
from tests.simulator.loop import Loops
from tests.simulator.names import settings_of
from tests.simulator.patches import simulated
from tests.simulator.process import Process, Worker

TOPIC, NAME = "scripted", "late"
ERRORS = {ProducerFenced: FENCED, InvalidTxnState: NOT_IN_ONE, OutOfOrderSequenceNumber: OUT_OF_ORDER}


class _World:
    """A simulated cluster with the topic of the scripts, and one process."""

    def __init__(self, seed: int, partitions: int = 1) -> None:
        self.dice = random.Random(seed)
        self.loops = Loops(self.dice)
        self.cluster = SimulatedCluster(self.loops, self.dice)
        self.cluster.create(TOPIC, partitions)

    def worker(self) -> Worker:
        return Worker("p0", settings_of("p0", 8, divert=False), self.cluster, self.loops, self.dice)

    def answers(
        self, process: Process, script: Callable[[Any], Awaitable[list[Any]]], side: Any
    ) -> list[Any]:
        told: list[list[Any]] = []

        async def play() -> None:
            told.append(await script(side()))

        with simulated():
            self.loops.new(process).create_task(play())
            self.loops.run(lambda: bool(told), 10**6, 60)
            self.loops.bury()
        return told[0]


class _Transactions:
    """The simulated cluster as scripts of transactions use it."""

    topic, group = TOPIC, "app"

    def __init__(self, process: Worker) -> None:
        settings = process.settings
        self._cluster = process.cluster
        self._questions = SimulatedQuestions(settings.kafka, settings.app.id, self._cluster, process.network)

    def producer(self, name: str) -> SimulatedProducer:
        return SimulatedProducer(name, 100_000)

    async def ends(self) -> tuple[int, int]:
        stable = await self._questions.stable_end(TOPIC, 0)
        return stable, await self._questions.high_watermark(TOPIC, 0)

    async def committed(self) -> int | None:
        return await self._questions.committed_offset(TOPIC, 0)

    async def values(self) -> list[bytes]:
        return [item.value or b"" for item in self._cluster.log(TOPIC, 0).committed()]


@pytest.mark.parametrize("name", transactions.SCRIPTS)
@pytest.mark.parametrize("seed", range(10))
def test_transactions(name: str, seed: int) -> None:
    script, expected = transactions.SCRIPTS[name]
    world = _World(seed)
    process = world.worker()

    assert world.answers(process, script, lambda: _Transactions(process)) == expected


class _LateRequests:
    """The simulated cluster as scripts of late requests use it."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._coordinator = cluster.transactions
        self._log = cluster.log(TOPIC, 0)

    async def _ask(self, apply: Callable[..., Any], *args: Any) -> Any:
        while True:
            try:
                answer = apply(*args)
            except ConcurrentTransactions:
                await asyncio.sleep(0.02)
            except tuple(ERRORS) as error:
                return ERRORS[type(error)]
            else:
                return WELL if answer is None else answer

    async def initialise(self) -> int:
        return int(await self._ask(self._coordinator.initialise, NAME))

    async def add(self, epoch: int) -> Any:
        return await self._ask(self._coordinator.add_partitions, Who(NAME, epoch), [self._log])

    async def write(self, epoch: int, sequence: int, value: bytes, *, implicit: bool = False) -> Any:
        record = (0, None, value, ())
        return await self._ask(
            self._coordinator.produce, Who(NAME, epoch, implicit), sequence, self._log, [record]
        )

    async def add_group(self, epoch: int) -> Any:
        return await self._ask(self._coordinator.add_offsets, Who(NAME, epoch))

    async def commit_offset(self, epoch: int, offset: int, *, implicit: bool = False) -> Any:
        return await self._ask(self._coordinator.offsets, Who(NAME, epoch, implicit), {(TOPIC, 0): offset})

    async def end(self, epoch: int, *, commit: bool, implicit: bool = False) -> Any:
        found = await self._ask(self._coordinator.end, Who(NAME, epoch, implicit), commit)
        return found if isinstance(found, str) else found - epoch if implicit else WELL

    async def values(self) -> list[bytes]:
        while self._log.stable < self._log.end:  # noqa: ASYNC110 - of a cluster, which tells nobody
            await asyncio.sleep(0.02)
        return [item.value or b"" for item in self._log.committed()]

    async def committed(self) -> int | None:
        return self._cluster.committed(TOPIC, 0)


@pytest.mark.parametrize("name", late_requests.SCRIPTS)
@pytest.mark.parametrize("seed", range(3))
def test_late_requests(name: str, seed: int) -> None:
    script, expected = late_requests.SCRIPTS[name]
    world = _World(seed)

    assert world.answers(world.worker(), script, lambda: _LateRequests(world.cluster)) == expected


class _Host(Process):
    """Has all that a script of groups, retention and compaction makes."""

    def notice(self, topics: Any) -> None:
        for reader in list(self.readers):
            reader.notice(topics)

    def __init__(self, *base: Any) -> None:
        super().__init__(*base)
        self.rights = ConsumerRights(lambda _: False, self.cluster)
        self.learned: list[tuple[int, float]] = []
        self.readers: dict[SimulatedReader, None] = {}


class _Topics:
    """The simulated cluster as scripts of groups, retention and compaction use it."""

    topic = TOPIC

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster

    def member(self, listener: Any) -> SimulatedMember:
        member = SimulatedMember(group_id=TOPIC, partition_assignment_strategy=[KeepingAssignor(TOPIC, dict)])
        member.subscribe([TOPIC], listener)
        return member

    def reader(self) -> SimulatedReader:
        return SimulatedReader()

    async def send(self, key: bytes, value: bytes) -> None:
        self._cluster.produce(TOPIC, 0, [(0, key, value, ())])

    async def abort(self, key: bytes, value: bytes) -> None:
        self._cluster.produce_in_transaction(TOPIC, 0, [(0, key, value, ())], 0.0, commit=False)

    async def bounds(self) -> tuple[int, int]:
        start, _, end = self._cluster.ends(TOPIC, 0)
        return start, end

    async def delete_below(self, offset: int) -> None:
        self._cluster.log(TOPIC, 0).delete_below(offset)

    async def compact(self, count: int) -> None:
        log = self._cluster.log(TOPIC, 0)
        log.compact()
        assert len(log.committed()) == count


@pytest.mark.parametrize("name", [*topics.SCRIPTS, *topics.SLOW])
@pytest.mark.parametrize("seed", range(3))
def test_topics(name: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    script, expected = (topics.SCRIPTS | topics.SLOW)[name]  # type: ignore[operator]
    world = _World(seed, topics.PARTITIONS)
    cluster, loops, settings = world.cluster, world.loops, None
    cluster.together = [(TOPIC,)]
    cluster.group = KeepingGroup(
        lambda: loops.now, loops.after, world.dice, cluster.assigned_together, topic=TOPIC, partitions=lambda: topics.PARTITIONS
    )  # fmt: skip
    process = _Host("p0", settings, cluster, loops, world.dice)
    cluster.moved = lambda topic: process.notice({topic})
    monkeypatch.setattr(group, "KEPT_SHARE", 1.0)

    assert world.answers(process, script, lambda: _Topics(cluster)) == expected
