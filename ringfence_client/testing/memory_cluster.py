"""A cluster in memory and virtual time, as far as a consumer's sends, states and progress need it."""

import asyncio
import contextlib
import heapq
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, Final

from aiokafka import TopicPartition
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.record.memory_records import MemoryRecords

from ringfence_client.dispatch.resting_turns import RetryClock
from ringfence_client.testing.messages import record_of
from ringfence_kafka.admin.topic_ids import TopicIdentity
from ringfence_kafka.admin.topics import Described, TopicDescription
from ringfence_kafka.aiokafka_patches import producer_internals
from ringfence_kafka.producer.transactional import BATCH_BYTES_MAX, Outgoing


class MemoryLogs:
    """Committed records of all topics."""

    def __init__(self, partitions: Mapping[str, int]) -> None:
        """Create the logs. ``partitions``: numbers by topic. Other topics have one; a topic with 0 does not exist."""
        self._partitions = dict(partitions)
        self._config: dict[str, Mapping[str, str]] = {}
        self.logs: defaultdict[tuple[str, int], list[Any]] = defaultdict(list)
        """Records by topic and partition. The offset of a record is its index."""
        self.written: list[Any] = []

    def describe(self, topic: str) -> TopicDescription | None:
        """Return a topic's description; None = it does not exist."""
        count = self._partitions.get(topic, 1)
        return TopicDescription(topic, count, self._config.get(topic, {})) if count else None

    def create(self, topic: str, partitions: int, config: Mapping[str, str]) -> None:
        """Create a topic."""
        self._partitions[topic] = partitions
        self._config[topic] = config

    def append(self, batch: Outgoing) -> int:
        """Append a record batch; return its base offset."""
        base = len(self.logs[batch.topic, batch.partition])
        for found in _records(bytes(producer_internals.encode(batch.builder))):
            self.append_record(
                batch.topic, batch.partition, found.timestamp, found.key, found.value, tuple(found.headers)
            )
        return base

    def append_record(
        self,
        topic: str,
        partition: int,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: tuple[tuple[str, bytes | None], ...] = (),
    ) -> Any:
        """Append a record."""
        log = self.logs[topic, partition]
        record = record_of(topic, partition, len(log), timestamp, key, value, headers)
        log.append(record)
        self.written.append(record)
        return record

    def records(self, topic: str) -> list[Any]:
        """Return the records of a topic in the order of their writes."""
        return [record for record in self.written if record.topic == topic]

    def latest(self, topic: str) -> dict[bytes, Any]:
        """Return the last record of each key of a compacted topic, without deleted keys."""
        found: dict[bytes, Any] = {}
        for record in self.records(topic):
            if record.value is None:
                found.pop(record.key, None)
            else:
                found[record.key] = record
        return found


def _records(data: bytes) -> Iterator[Any]:
    batches = MemoryRecords(data)
    while (batch := batches.next_batch()) is not None:
        yield from batch


class MemoryCluster:
    """Stand-in for :class:`ringfence_kafka.admin.cluster.Cluster`, its topics and offsets, and for the reader of its logs."""

    def __init__(self, logs: MemoryLogs) -> None:
        self._logs = logs
        self.topics = self.offsets = self

    async def describe(self, names: Iterable[str]) -> Described:
        """Return the descriptions of existing topics."""
        found = {name: topic for name in names if (topic := self._logs.describe(name)) is not None}
        return Described(found, frozenset())

    async def partition_counts(self, names: Iterable[str]) -> dict[str, int]:
        """Return the numbers of partitions of existing topics."""
        return {name: topic.partitions for name, topic in (await self.describe(names)).topics.items()}

    async def identity(self, topic: str) -> TopicIdentity:
        """Return the identity of an existing topic."""
        return TopicIdentity(topic, (await self.partition_counts([topic]))[topic])

    async def create(
        self, topic: str, partitions: int, _replication_factor: int, config: Mapping[str, str]
    ) -> None:
        """Create a topic."""
        self._logs.create(topic, partitions, config)

    async def await_created(self, names: Iterable[str], _limit: float) -> dict[str, TopicDescription]:
        """Return the descriptions of created topics."""
        return (await self.describe(names)).topics

    async def log_start(self, _topic: str, _partition: int) -> int:
        """Return the first offset."""
        return 0

    async def high_watermark(self, topic: str, partition: int) -> int:
        """Return the offset of the next record."""
        return len(self._logs.logs[topic, partition])

    stable_end = high_watermark  # no transaction is open

    async def read_range(
        self,
        topic: str,
        partition: int,
        start: int,
        high_watermark: int,
        consume: Callable[[Sequence[Any]], Awaitable[None]],
    ) -> int:
        """Pass records to ``consume``."""
        await consume(self._logs.logs[topic, partition][start:high_watermark])
        return high_watermark

    async def stop(self) -> None:
        """Do nothing."""


class MemoryProducer:
    """Stand-in for the transactional producer. A transaction is appended in one step."""

    def __init__(self, logs: MemoryLogs, holds: Callable[[], bool]) -> None:
        """Prepare a producer. ``holds``: returns whether transactions wait now."""
        self._logs = logs
        self._holds = holds
        self._resumed = asyncio.Event()
        self.holding = False

    def turn(self) -> contextlib.AbstractAsyncContextManager[None]:
        """Return the context of a transaction."""
        return contextlib.nullcontext()

    def builder(self) -> BatchBuilder:
        """Return an empty record batch."""
        return BatchBuilder(BATCH_BYTES_MAX, 0, is_transactional=True)

    async def transact(
        self, batches: Sequence[Outgoing], _offsets: Mapping[TopicPartition, int], _group_id: str
    ) -> list[int]:
        """Append all batches; return their base offsets."""
        while self._holds():
            self.holding = True
            self._resumed.clear()
            await self._resumed.wait()
        self.holding = False
        return [self._logs.append(batch) for batch in batches]

    def resume(self) -> None:
        """Continue the waiting transaction."""
        self.holding = False
        self._resumed.set()

    async def discard(self) -> None:
        """Stop the producer."""
        self.holding = False


START_MS: Final = 1_700_000_000_000


class VirtualTime(RetryClock):
    """Clock that passes on request."""

    def __init__(self) -> None:
        self.now_s = 0.0
        """Time since the start, in seconds."""
        self.delays: list[float] = []
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._numbers = count()

    def now_ms(self) -> int:
        """Return milliseconds since the epoch."""
        return START_MS + round(self.now_s * 1000)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        """Schedule a call after these seconds."""
        at = self.now_s + seconds
        timer = asyncio.TimerHandle(at, callback, (), asyncio.get_running_loop())
        self.delays.append(seconds)
        heapq.heappush(self._timers, (at, next(self._numbers), timer))
        return timer

    @property
    def next_at(self) -> float | None:
        """Time of the next call, in seconds; None = no call."""
        while self._timers and self._timers[0][2].cancelled():
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def pass_until(self, moment: float) -> None:
        """Let time pass until a moment, and run the due calls."""
        self.now_s = max(self.now_s, moment)
        while (due := self.next_at) is not None and due <= self.now_s:
            _, _, timer = heapq.heappop(self._timers)
            timer._run()

    def forget(self) -> None:
        """Drop all scheduled calls."""
        self._timers.clear()
