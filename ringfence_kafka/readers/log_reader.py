"""Reads any stretch of a partition: a changelog that a lane restores from, what a lane or a consumer needs again.

Faust's own table recovery counts a transaction's commit marker as a record that is still to come and waits
ten seconds for it, so a lane reads its changelog itself.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import TopicAuthorizationFailedError

from ringfence_kafka.aiokafka_patches import internals
from ringfence_kafka.auth.client_options import client_options
from ringfence_kafka.config.settings import KafkaSettings
from ringfence_kafka.errors import RingfenceError
from ringfence_kafka.readers import read_counts

STALL_LIMIT_S: Final = 90.0
"""Longer than any transaction of ours can stay open."""
STOP_LIMIT_S: Final = 5.0
_POLL_MS: Final = 200
_RECORDS_MAX: Final = 2_000
"""At once: aiokafka unpacks them without a pause, and others run on its loop."""
_FETCH_BYTES: Final = 4 * 2**20
_OPTIONS: Final[Mapping[str, Any]] = {
    "isolation_level": "read_committed",
    "enable_auto_commit": False,
    "auto_offset_reset": "none",
    "max_partition_fetch_bytes": _FETCH_BYTES,
    "fetch_max_wait_ms": _POLL_MS,
}
_RESTED_FETCH_WAIT_MS: Final = 20
"""Of a consumer that goes from one stretch to the next: a fetch that lies with the broker, as it always does at a log's end, holds up
the first of the next stretch."""
RESTING_MAX: Final = 16
RESTS_S: Final = 5.0
TAIL_OFFSETS: Final = 64
"""A look at the newest record of a key begins so far before the end."""
LOOK_LIMIT_S: Final = 5.0


Take = Callable[[Any, TopicPartition], Sequence[Any] | None]


class LogStalledError(RingfenceError):
    """The last stable offset stays behind the high watermark: a transaction does not end."""


class Readers:
    """Consumers that stay connected for a moment, for who reads stretches of many partitions one after the other.

    To connect costs more than to read a stretch of a few records: two connections, and what the broker knows of the topic.
    """

    def __init__(
        self, kafka: KafkaSettings, resting_max: int = RESTING_MAX, rests_s: float = RESTS_S
    ) -> None:
        """Nothing is connected yet.

        Args:
            kafka: Where, and how to get in.
            resting_max: So many wait for the next stretch at most.
            rests_s: So long they wait for it, seconds.
        """
        self.kafka = kafka
        self._resting_max = resting_max
        self._rests_s = rests_s
        self._resting: list[tuple[AIOKafkaConsumer, asyncio.TimerHandle]] = []
        self._stopping: set[asyncio.Task[None]] = set()
        self._stopped = False

    def take(self) -> AIOKafkaConsumer | None:
        """One that rests; None = none does."""
        if not self._resting:
            return None
        consumer, timer = self._resting.pop()
        timer.cancel()
        return consumer

    def keep(self, consumer: AIOKafkaConsumer) -> bool:
        """Have it rest, if there is room. It fetches no more."""
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

    async def stop(self) -> None:
        """Disconnect those that rest; those that read are disconnected when they have. Never raises."""
        self._stopped = True
        while (consumer := self.take()) is not None:
            self._end(consumer)
        if self._stopping:
            await asyncio.wait(set(self._stopping))


async def _connected(source: "KafkaSettings | Readers") -> AIOKafkaConsumer:
    if isinstance(source, Readers):
        if (rested := source.take()) is not None:
            return rested
        options = {**client_options(source.kafka), **_OPTIONS, "fetch_max_wait_ms": _RESTED_FETCH_WAIT_MS}
    else:
        options = {**client_options(source), **_OPTIONS}
    consumer = AIOKafkaConsumer(**options)
    internals.never_create(consumer)
    try:
        await consumer.start()
    except BaseException:
        await _stop(consumer)
        raise
    return consumer


async def read(
    kafka: "KafkaSettings | Readers",
    topic: str,
    partition: int,
    start: int,
    high_watermark: int,
    consume: Callable[[Sequence[Any]], Awaitable[None]],
    take: Take | None = None,
) -> int:
    """Pass all committed records of ``start <= offset < high_watermark`` to ``consume``, in order.

    Of a changelog, read to the *high watermark*: only the lane's own transactional ID ever writes here, and it has been fenced,
    so whatever is open below it is about to end, and nothing else can hold it up. A restore that stopped at the
    last stable offset would miss the records behind an open transaction.

    Args:
        kafka: Where, and how to get in; or consumers that are connected already.
        topic: Of which ...
        partition: ... this one is read ...
        start: ... from here ...
        high_watermark: ... to here.
        consume: Is given the records.
        take: Is given aiokafka's fetcher and the partition, and takes what was fetched in its own way; where it returns None aiokafka
            reads it.

    Returns:
        The position reached, at least ``high_watermark``; markers of transactions are passed over.

    Raises:
        LogStalledError: no progress for 90 s.
    """
    if start >= high_watermark:
        return start
    consumer = await _connected(kafka)
    tp = TopicPartition(topic, partition)
    well = False
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
        well = True
        return position
    finally:
        if not (well and isinstance(kafka, Readers) and kafka.keep(consumer)):
            await _stop(consumer)


async def _some(consumer: AIOKafkaConsumer, tp: TopicPartition, take: Take | None) -> Sequence[Any]:
    if take is not None:
        fetcher = consumer._fetcher
        if tp not in fetcher._records:
            await internals.await_fetched(consumer, _POLL_MS / 1000)
        found = take(fetcher, tp)
        if found is not None or tp not in fetcher._records:
            return found or ()
    records = (await consumer.getmany(tp, timeout_ms=_POLL_MS, max_records=_RECORDS_MAX)).get(tp, [])
    return list(records)


async def _stop(consumer: AIOKafkaConsumer) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(STOP_LIMIT_S):
            await consumer.stop()
    # What was fetched beyond what was read: each lane that fails reads its batch again, and would leave megabytes each time.
    internals.drop_all_fetched(consumer)


async def newest(
    kafka: KafkaSettings, ends: Mapping[tuple[str, int], tuple[int, int]], key: bytes
) -> dict[tuple[str, int], bytes]:
    """The value of the last committed record of a key in each of these partitions, if it stands among the last records there.

    What cannot be told so, such as where this user may not read, is absent. One consumer reads all of them.

    Args:
        kafka: Where, and how to get in.
        ends: Log start and last stable offset of each.
        key: Of the records that are looked for.
    """
    wanted = {TopicPartition(*item): span for item, span in ends.items() if span[0] < span[1]}
    if not wanted:
        return {}
    found: dict[tuple[str, int], bytes] = {}
    consumer = AIOKafkaConsumer(**client_options(kafka), **_OPTIONS)
    internals.never_create(consumer)
    try:
        await consumer.start()
        deadline = time.monotonic() + LOOK_LIMIT_S
        consumer.assign(list(wanted))
        for tp, (start, end) in wanted.items():
            consumer.seek(tp, max(start, end - TAIL_OFFSETS))
        while wanted and time.monotonic() < deadline:
            try:
                fetched = await consumer.getmany(timeout_ms=_POLL_MS)
            except TopicAuthorizationFailedError as error:
                wanted = {tp: span for tp, span in wanted.items() if tp.topic != error.args[0]}
                continue
            for tp, records in fetched.items():
                values = [record.value for record in records if record.key == key and record.value]
                if values:
                    found[tp.topic, tp.partition] = values[-1]
            wanted = {
                tp: (start, end) for tp, (start, end) in wanted.items() if await consumer.position(tp) < end
            }
    finally:
        await _stop(consumer)
    return found


def require_moving(tp: TopicPartition, moved_at: float, position: int, end: int) -> None:
    """For who reads committed data up to an end and has not moved since ``moved_at`` (monotonic, s).

    Raises:
        LogStalledError: that was too long ago.
    """
    if time.monotonic() - moved_at > STALL_LIMIT_S:
        raise LogStalledError(
            f"{tp.topic}/{tp.partition}: stuck at {position} of {end}: a transaction does not end; does the cluster's "
            "transaction coordinator work?"
        )
