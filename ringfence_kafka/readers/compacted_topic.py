"""Repeated lookups of the last committed value of a key in a compacted topic.

The reader keeps the values of a partition, and the next lookup reads only newer records. Meanwhile the log may have changed: the topic
was created again, the log lost its end, or its start was deleted. The end offset alone does not show this. Each read therefore starts
with the last record that was read. If that record is missing or different, the whole partition is read again. A lookup returns values
committed up to the present high watermark, and waits for transactions that are open below it.
"""

import asyncio
import contextlib
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import OffsetOutOfRangeError

from ringfence_kafka import clock
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.aiokafka_patches import internals
from ringfence_kafka.concurrency.coalesce import RequestCoalescer, StoppedError
from ringfence_kafka.config.settings import KafkaSettings
from ringfence_kafka.readers import consumers
from ringfence_kafka.readers.consumers import STOP_LIMIT_S
from ringfence_kafka.readers.log_reader import LogStalledError, require_moving

BYTES_MAX: Final = 64 * 2**20
"""Maximum size of the kept values of all partitions, in bytes. Above it, the least recently used partitions are discarded."""
ENTRY_BYTES: Final = 250
"""Memory overhead of a key and its value, in bytes."""
AGE_MAX_S: Final = 30.0
"""Maximum age of kept values, in seconds. Older ones are read again, because a tombstone may have been written and deleted meanwhile. The
topic's ``delete.retention.ms`` is at least twice this time."""
TRIES: Final = 5
_POLL_MS: Final = 50
"""Fetch wait at the broker, in ms. A fetch that waits for an open transaction of one partition delays those of others this long."""
_RECORDS_MAX: Final = 20_000
_FETCH_BYTES: Final = 4 * 2**20


class LatestValue(NamedTuple):
    """Latest value of a key."""

    value: bytes | None
    asked_at: float
    """Time until which it was the last value, by :func:`ringfence_kafka.clock.now`: values that are committed later were not written before."""
    beside: Mapping[bytes, bytes]
    """Related values by key."""


class CompactedTopic:
    """Lookups in one compacted topic. All partitions share one consumer, which is created on demand."""

    def __init__(
        self,
        kafka: KafkaSettings,
        cluster: Cluster,
        topic: str,
        partitions: int,
        bytes_max: int = BYTES_MAX,
        beside: Callable[[bytes, bytes], Iterable[bytes]] = lambda *_: (),
    ) -> None:
        """Create the lookups, without a connection. ``cluster`` is queried for end offsets; ``bytes_max``: size of the kept values.

        ``beside`` returns the keys that are related to a key and its value; :meth:`read_separately` returns their values.
        """
        self._kafka = kafka
        self._cluster = cluster
        self._topic = topic
        self._partitions = partitions
        self._bytes_max = bytes_max
        self._beside = beside
        self._known: OrderedDict[int, _Known] = OrderedDict()
        """Known values by partition, in order of last use. A missing partition is read from its start."""
        self._asked: dict[int, RequestCoalescer[bytes, LatestValue]] = {}
        self._reader: _Reader | None = None
        self._starting = asyncio.Lock()
        self._ending: set[asyncio.Task[None]] = set()
        self._stopped = False

    async def read_separately(self, partition: int, key: bytes) -> "LatestValue":
        """Return the last committed value of a key, with its related values at the same offset of the log.

        That offset may be within a transaction that was committed later: a value may be older than its related values. The read may take
        as long as another client's transaction is open.

        Raises:
            LogStalledError: a transaction does not end.
            KafkaError: the cluster does not answer.
            StoppedError: :meth:`stop` was called.
        """
        if self._stopped:
            raise StoppedError
        if partition not in self._asked:
            self._asked[partition] = RequestCoalescer(partial(self._answer, partition))
        return await self._asked[partition].answer(key)

    def resize(self, partitions: int) -> None:
        """Record the present partition count of the topic."""
        if partitions != self._partitions:
            self._partitions = partitions
            if (reader := self._reader) is not None:
                reader.retired = True  # its assignment has the former partitions
                self._end_retired(reader)

    async def stop(self) -> None:
        """Stop and disconnect. Waiting lookups raise StoppedError."""
        self._stopped = True
        await asyncio.gather(*(value.stop() for value in self._asked.values()))
        reader, self._reader = self._reader, None
        if reader is not None:
            await reader.stop()
        await asyncio.gather(*self._ending)

    async def _answer(self, partition: int, keys: Collection[bytes]) -> Mapping[bytes, "LatestValue"]:
        for _ in range(TRIES):
            start, end = await asyncio.gather(
                self._cluster.offsets.log_start(self._topic, partition),
                self._cluster.offsets.high_watermark(self._topic, partition),
            )
            asked_at = clock.now()
            # Removed while it grows, so that a failure or a cancellation leaves no incomplete values.
            known = self._known.pop(partition, None)
            if (
                known is None
                or known.start != start
                or end < known.next
                or asked_at - known.read_at > AGE_MAX_S
            ):
                known = _Known(start)
            if await self._read_on(partition, known, end):
                known.read_at = asked_at
                self._keep(partition, known)
                return {key: self._look(known, key, asked_at) for key in keys}
        raise LogStalledError(
            f"{self._topic}/{partition} changed under its reader {TRIES} times: is it being recreated, or do its "
            "brokers disagree?"
        )

    def _look(self, known: "_Known", key: bytes, asked_at: float) -> "LatestValue":
        value = known.values.get(key)
        beside = () if value is None else self._beside(key, value)
        return LatestValue(
            value, asked_at, {data: known.values[data] for data in beside if data in known.values}
        )

    def _keep(self, partition: int, known: "_Known") -> None:
        self._known[partition] = known
        while sum(value.bytes for value in self._known.values()) > self._bytes_max:
            self._known.popitem(last=False)

    async def _read_on(self, partition: int, known: "_Known", end: int) -> bool:
        """Read up to ``end``, starting at the last record that was read. Return False if that record no longer exists."""
        witness = known.last
        begin = known.start if witness is None else witness.offset
        if begin >= end:
            return True
        reader, tp = await self._connected(), TopicPartition(self._topic, partition)
        try:
            reader.fetch_from(tp, begin)
            known.next = begin
            moved_at = time.monotonic()
            while known.next < end:
                records, reached = await reader.fetch(tp)
                if witness is not None and reached > begin:
                    if not records or not _same(records[0], witness):
                        return False
                    witness = None
                # Records at or above the end belong to the next lookup: they are newer than the time in the answer.
                known.apply_records([record for record in records if record.offset < end])
                if reached > known.next:
                    moved_at, known.next = time.monotonic(), min(reached, end)
                else:
                    require_moving(tp, moved_at, reached, end)
        except OffsetOutOfRangeError:
            return False
        except Exception:
            reader.retired = True
            raise
        finally:
            reader.release(tp)
            self._end_retired(reader)
        return True

    async def _connected(self) -> "_Reader":
        async with self._starting:
            if self._reader is None or self._reader.retired:
                self._reader = await _Reader.connect(self._kafka, self._topic, self._partitions)
            self._reader.users += 1
            return self._reader

    def _end_retired(self, reader: "_Reader") -> None:
        """Stop a retired reader after its last user. The next lookup creates another one."""
        if reader.retired and not reader.users:
            task = asyncio.create_task(reader.stop())
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)


class _Known:
    def __init__(self, start: int) -> None:
        self.start = start
        """First offset of the log."""
        self.next = start
        """End of the part that was read."""
        self.read_at = clock.now()
        """Time at which that was the end of the log."""
        self.last: Any = None
        """Last record that was read; None = none yet."""
        self.values: dict[bytes, bytes] = {}
        self.bytes = 0

    def apply_records(self, records: list[Any]) -> None:
        """Add the next records. The first may be the last one again."""
        for record in records:
            overhead = ENTRY_BYTES + len(record.key or b"")
            if (former := self.values.pop(record.key, None)) is not None:
                self.bytes -= overhead + len(former)
            if record.value is not None:
                self.values[record.key] = record.value
                self.bytes += overhead + len(record.value)
        if records:
            self.last = records[-1]


class _Reader:
    def __init__(self, consumer: AIOKafkaConsumer) -> None:
        self._consumer = consumer
        self.users = 0
        self.retired = False
        """Whether the reader or the topic had a problem, or the partition count changed."""

    @classmethod
    async def connect(cls, kafka: KafkaSettings, topic: str, partitions: int) -> "_Reader":
        consumer = await consumers.connected(
            kafka, max_partition_fetch_bytes=_FETCH_BYTES, fetch_max_wait_ms=_POLL_MS
        )
        tps = [TopicPartition(topic, index) for index in range(partitions)]
        consumer.assign(tps)
        consumer.pause(*tps)
        for tp in tps:
            consumer.seek(tp, 0)  # otherwise aiokafka looks for a position itself
        return cls(consumer)

    def fetch_from(self, tp: TopicPartition, offset: int) -> None:
        """Fetch this partition from an offset."""
        self._consumer.seek(tp, offset)
        self._consumer.resume(tp)

    async def fetch(self, tp: TopicPartition) -> tuple[list[Any], int]:
        """Return fetched records, which may be none, and the offset after them, including markers."""
        internals.keep_fetching(self._consumer)
        fetched = await self._consumer.getmany(tp, timeout_ms=_POLL_MS, max_records=_RECORDS_MAX)
        return fetched.get(tp, []), await self._consumer.position(tp)

    def release(self, tp: TopicPartition) -> None:
        """Release the partition for one user. Prefetched records are discarded: they would be outdated at the next lookup."""
        self.users -= 1
        with contextlib.suppress(Exception):  # the consumer may be stopped
            internals.drop_fetched(self._consumer, [tp])  # otherwise garbage keeps the bytes alive
            self._consumer.pause(tp)
            self._consumer.seek(tp, 0)

    async def stop(self) -> None:
        await internals.end(self._consumer, STOP_LIMIT_S)


def _same(record: Any, witness: Any) -> bool:
    return bool(
        (record.offset, record.timestamp, record.key, record.value)
        == (witness.offset, witness.timestamp, witness.key, witness.value)
    )
