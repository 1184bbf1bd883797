"""Leases that an outsider writes, and the runs of handlers in several consumers."""

import dataclasses
import time
from collections.abc import Awaitable, Callable
from typing import Any, Self

from aiokafka import TopicPartition
from aiokafka.errors import InvalidTxnState

from ringfence_client import Message
from ringfence_client.progress import progress_record
from ringfence_client.progress.progress_record import HELD, RELEASED, Progress
from ringfence_client.progress.progress_topic import PARTITIONS
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.producer.transactional import FencedError, Outgoing, TransactionalProducer
from ringfence_kafka.protocol import wire_names
from tests.harness.checker.groups import Run
from tests.harness.workloads.message_groups import GroupMessage
from tests.support.consumers.in_process import Bench
from tests.support.kafka import Sent, home

TRIES = 20


class Outsider:
    """A holder of the consumer group without a process: it writes only when the test calls :meth:`write`."""

    def __init__(self, bench: Bench, partition: int = 0) -> None:
        self.lease = Progress(0, holder="outsider", state=HELD, token=1)
        self._bench = bench
        self._partition = partition
        self._producer: TransactionalProducer

    async def fence(self) -> None:
        bench = self._bench
        name = wire_names.consumer_transactional_id(
            bench.settings.app.id, bench.group, bench.accepted, self._partition
        )
        self._producer = TransactionalProducer(bench.settings.kafka, name, "outsider")
        await self._producer.fence()
        async with Cluster(bench.settings.kafka, bench.group) as cluster:
            topic_id = (await cluster.topics.identity(bench.accepted)).topic_id
        self.lease = dataclasses.replace(self.lease, topic_id=topic_id)

    async def write(self, *, commit: bool = False, **changes: Any) -> None:
        """Write a record like the last one with these changes; ``commit``: with the group's offset. Raises FencedError."""
        bench = self._bench
        self.lease = dataclasses.replace(self.lease, beat=self.lease.beat + 1, **changes)
        key = progress_record.encode_key(bench.group, bench.accepted, self._partition)
        number = home(key, PARTITIONS)
        builder = self._producer.builder()
        builder.append(timestamp=None, key=key, value=progress_record.encode(self.lease), headers=[])
        offsets = {TopicPartition(bench.accepted, self._partition): self.lease.next} if commit else {}
        await self._producer.transact(
            [Outgoing(f"{bench.name}-app-progress", number, builder)], offsets, bench.group
        )

    async def __aenter__(self) -> Self:
        await self.fence()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._producer.discard()


async def take(bench: Bench) -> None:
    """Take the partition by its lease, and leave at once: its holder takes it back if it can."""
    for _ in range(TRIES):
        outsider = Outsider(bench)
        await outsider.fence()
        last = await bench.progress()  # behind the fence nobody else writes it
        assert last is not None
        outsider.lease = last
        try:
            await outsider.write(holder="outsider", state=RELEASED, token=last.token + 1)
            return
        except (
            FencedError,
            InvalidTxnState,
        ):  # Kafka takes this commit for a late copy, if the fence was one epoch later
            continue
        finally:
            await outsider._producer.discard()
    raise AssertionError("its holder was quicker each time")


class JumpingClock:
    """Wall clock that somebody sets: each look finds it an hour later, or earlier. Nothing may depend on it."""

    CLOCK_BOOTTIME = time.CLOCK_BOOTTIME
    clock_gettime = staticmethod(time.clock_gettime)

    def __init__(self, step: float) -> None:
        self._now = 0.0
        self._step = step

    def time(self) -> float:
        self._now += self._step
        return self._now


class SleepingClock:
    """Clock of a machine that sleeps: its boot time advances by the time slept, while all other clocks pause."""

    CLOCK_BOOTTIME = time.CLOCK_BOOTTIME

    def __init__(self) -> None:
        self._slept = 0.0

    def sleep(self, seconds: float) -> None:
        self._slept += seconds

    def clock_gettime(self, clock: int) -> float:
        return time.clock_gettime(clock) + (self._slept if clock == time.CLOCK_BOOTTIME else 0.0)


class Journal:
    """Runs of the handlers in several consumers, in the form that the checker takes."""

    def __init__(self) -> None:
        self.runs: list[Run] = []

    def handler(
        self, number: int, behaviour: Callable[[Message], Awaitable[None]]
    ) -> Callable[[Message], Awaitable[None]]:
        async def handle(message: Message) -> None:
            label, sequence, _ = (message.value or b"").decode().split()
            index = len(self.runs)
            where = (message.partition, message.offset, message.attempt, message.fence)
            self.runs.append(Run(time.monotonic(), None, number, label, int(sequence), *where))
            await behaviour(message)
            self.runs[index] = dataclasses.replace(self.runs[index], end=time.monotonic())

        return handle

    @property
    def ended(self) -> set[tuple[int, int]]:
        return {(run.partition, run.offset) for run in self.runs if run.end is not None}


def values(label: str, size: int) -> list[Sent]:
    made = [GroupMessage(label, index, last=index == size - 1) for index in range(size)]
    return [Sent(None, label.encode(), item.value) for item in made]
