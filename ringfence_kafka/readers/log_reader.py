"""Reads ranges of partitions: a changelog for a restore, batches that are needed again, first and last records.

Faust's table recovery counts a transaction's commit marker as a pending record and waits ten seconds for it, so a lane reads its
changelog itself.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError, TopicAuthorizationFailedError

from ringfence_kafka.aiokafka_patches import fetch_buffer, internals
from ringfence_kafka.config.settings import KafkaSettings
from ringfence_kafka.errors import RingfenceError
from ringfence_kafka.readers import consumers, read_counts
from ringfence_kafka.readers.consumers import STOP_LIMIT_S

STALL_LIMIT_S: Final = 90.0
"""Time without progress after which a read fails, in seconds: longer than any of Ringfence's transactions stays open."""
_POLL_MS: Final = 200
_RECORDS_MAX: Final = 2_000
"""Maximum number of records in one call: aiokafka parses them without a pause, which blocks the event loop."""
_FETCH_BYTES: Final = 4 * 2**20
_OPTIONS: Final[Mapping[str, Any]] = {
    "max_partition_fetch_bytes": _FETCH_BYTES,
    "fetch_max_wait_ms": _POLL_MS,
}
_RESTED_FETCH_WAIT_MS: Final = 20
"""Fetch wait at the broker, in ms, of a consumer that reads several ranges in turn. A fetch at the end of a log delays the next range."""
RESTING_MAX: Final = 16
RESTS_S: Final = 5.0
TAIL_OFFSETS: Final = 64
"""Number of offsets before the end at which a search for the newest record of a key starts."""
LOOK_LIMIT_S: Final = 5.0
_FIRST_POLL_MS: Final = 100
_FIRST_OPTIONS: Final[Mapping[str, Any]] = {
    "auto_offset_reset": "earliest",  # retention may have deleted the first records
    "max_partition_fetch_bytes": 64 * 2**10,  # Kafka always returns at least one whole batch
    "fetch_max_wait_ms": _FIRST_POLL_MS,
}

Place = tuple[str, int]
"""Topic and partition."""
Take = Callable[[Any, TopicPartition], Sequence[Any] | None]


class LogStalledError(RingfenceError):
    """The last stable offset stays below the high watermark: a transaction does not end."""


class LogReader:
    """Reads logs of one cluster. Consumers may stay connected for a moment, for callers that read ranges of many partitions in turn.

    A new connection costs more than a read of a few records: it needs two connections and the metadata of the topic.
    """

    def __init__(self, kafka: KafkaSettings, resting_max: int = 0, rests_s: float = RESTS_S) -> None:
        """Create the reader, without a connection. Up to ``resting_max`` idle consumers are kept for ``rests_s`` seconds."""
        self._kafka = kafka
        self._resting_max = resting_max
        self._rests_s = rests_s
        self._resting: list[tuple[AIOKafkaConsumer, asyncio.TimerHandle]] = []
        self._stopping: set[asyncio.Task[None]] = set()
        self._stopped = False

    async def stop(self) -> None:
        """Disconnect idle consumers; busy ones are disconnected after their read. Never raises."""
        self._stopped = True
        while (consumer := self._rested()) is not None:
            self._end(consumer)
        if self._stopping:
            await asyncio.wait(set(self._stopping))

    async def read_range(
        self,
        topic: str,
        partition: int,
        start: int,
        high_watermark: int,
        consume: Callable[[Sequence[Any]], Awaitable[None]],
        take: Take | None = None,
    ) -> int:
        """Pass all committed records with ``start <= offset < high_watermark`` to ``consume``, in order.

        A changelog is read to its *high watermark*. Only the lane's own transactional ID writes there, and it is fenced, so an open
        transaction below it ends soon. A restore up to the last stable offset would miss the records behind it.

        ``take`` gets aiokafka's fetcher and the partition, and reads the fetched bytes itself; if it returns None, aiokafka reads them.

        Returns:
            The position, at least ``high_watermark``; transaction markers are included.

        Raises:
            LogStalledError: no progress for 90 s.
        """
        if start >= high_watermark:
            return start
        consumer = await self._connected()
        tp = TopicPartition(topic, partition)
        complete = False
        try:
            consumer.assign([tp])
            consumer.seek(tp, start)
            position, moved_at = start, time.monotonic()
            while position < high_watermark:
                records = await _some(consumer, tp, take)
                if records:
                    read_counts.report(len(records))
                    await consume(records)
                    await asyncio.sleep(0)
                reached = await consumer.position(tp)
                if reached > position:
                    position, moved_at = reached, time.monotonic()
                else:
                    require_moving(tp, moved_at, position, high_watermark)
            complete = True
            return position
        finally:
            if not (complete and self._keep(consumer)):
                await _stop(consumer)

    async def first_records(
        self, spans: Mapping[Place, tuple[int, int]], *, committed: bool = True
    ) -> dict[Place, Any]:
        """Return the first record of each span, by default the first committed one.

        None = the span has no record, for example only markers. A span without an answer within 5 s is absent.
        """
        found: dict[Place, Any] = {}

        def look(tp: TopicPartition, records: Sequence[Any], reached: bool) -> bool:
            end = spans[tp.topic, tp.partition][1]
            first = next((record for record in records if record.offset < end), None)
            if first is not None or reached:
                found[tp.topic, tp.partition] = first
            return first is not None or reached

        level = "read_committed" if committed else "read_uncommitted"
        # After a missing access right or an unreadable record, the other answers remain valid.
        with contextlib.suppress(KafkaError, OSError, UnicodeDecodeError):
            await self._look(spans, look, _FIRST_POLL_MS, isolation_level=level, **_FIRST_OPTIONS)
        return found

    async def newest_values(self, ends: Mapping[Place, tuple[int, int]], key: bytes) -> dict[Place, bytes]:
        """Return the last committed value of a key in each partition, if it is among the last records.

        ``ends`` has the log start and the last stable offset of each partition. A partition without an answer or access is absent.
        """
        found: dict[Place, bytes] = {}

        def look(tp: TopicPartition, records: Sequence[Any], reached: bool) -> bool:
            for record in records:
                if record.key == key and record.value:
                    found[tp.topic, tp.partition] = record.value
            return reached

        tails = {place: (max(start, end - TAIL_OFFSETS), end) for place, (start, end) in ends.items()}
        await self._look(tails, look, _POLL_MS, **_OPTIONS)
        return found

    async def _look(
        self,
        spans: Mapping[Place, tuple[int, int]],
        look: Callable[[TopicPartition, Sequence[Any], bool], bool],
        poll_ms: int,
        **options: Any,
    ) -> None:
        """Read all spans at once, for at most 5 s. ``look`` gets records and whether the end is reached; it returns whether to stop."""
        wanted = {TopicPartition(*place): span for place, span in spans.items() if span[0] < span[1]}
        if not wanted:
            return
        consumer = await consumers.connected(self._kafka, **options)
        try:
            deadline = time.monotonic() + LOOK_LIMIT_S
            consumer.assign(list(wanted))
            for tp, (begin, _) in wanted.items():
                consumer.seek(tp, begin)
            while wanted and time.monotonic() < deadline:
                try:
                    fetched = await consumer.getmany(*wanted, timeout_ms=poll_ms)
                except TopicAuthorizationFailedError as error:
                    wanted = {tp: span for tp, span in wanted.items() if tp.topic != error.args[0]}
                    continue
                for tp in list(wanted):
                    reached = await consumer.position(tp) >= wanted[tp][1]
                    if look(tp, fetched.get(tp, ()), reached):
                        del wanted[tp]
                        consumer.pause(tp)
        finally:
            await _stop(consumer)

    async def _connected(self) -> AIOKafkaConsumer:
        if (rested := self._rested()) is not None:
            return rested
        wait_ms = _RESTED_FETCH_WAIT_MS if self._resting_max else _POLL_MS
        return await consumers.connected(self._kafka, **{**_OPTIONS, "fetch_max_wait_ms": wait_ms})

    def _rested(self) -> AIOKafkaConsumer | None:
        if not self._resting:
            return None
        consumer, timer = self._resting.pop()
        timer.cancel()
        return consumer

    def _keep(self, consumer: AIOKafkaConsumer) -> bool:
        """Keep an idle consumer if there is room. It stops fetching."""
        if self._stopped or len(self._resting) >= self._resting_max:
            return False
        consumer.pause(*consumer.assignment())
        internals.drop_all_fetched(consumer)
        timer = asyncio.get_running_loop().call_later(self._rests_s, self._end, consumer)
        self._resting.append((consumer, timer))
        return True

    def _end(self, consumer: AIOKafkaConsumer) -> None:
        self._resting = [item for item in self._resting if item[0] is not consumer]
        task = asyncio.create_task(internals.end(consumer, STOP_LIMIT_S))
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)


async def _some(consumer: AIOKafkaConsumer, tp: TopicPartition, take: Take | None) -> Sequence[Any]:
    if take is not None:
        fetcher = fetch_buffer.fetcher_of(consumer)
        if not fetch_buffer.holds(fetcher, tp):
            await internals.await_fetched(consumer, _POLL_MS / 1000)
        found = take(fetcher, tp)
        if found is not None or not fetch_buffer.holds(fetcher, tp):
            return found or ()
    records = (await consumer.getmany(tp, timeout_ms=_POLL_MS, max_records=_RECORDS_MAX)).get(tp, [])
    return list(records)


async def _stop(consumer: AIOKafkaConsumer) -> None:
    await internals.end(consumer, STOP_LIMIT_S)
    # Discard records beyond the range: otherwise each lane that reads a failed batch again would leave megabytes.
    internals.drop_all_fetched(consumer)


def require_moving(tp: TopicPartition, moved_at: float, position: int, end: int) -> None:
    """Check the progress of a reader of committed data. ``moved_at``: monotonic time of its last progress, in seconds.

    Raises:
        LogStalledError: the last progress was too long ago.
    """
    if time.monotonic() - moved_at > STALL_LIMIT_S:
        raise LogStalledError(
            f"{tp.topic}/{tp.partition}: stuck at {position} of {end}: a transaction does not end: look at "
            "the cluster's transaction coordinator"
        )
