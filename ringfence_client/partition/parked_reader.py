"""Reads parked messages again with its own Kafka consumer, so that the main consumer keeps its position."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError, OffsetOutOfRangeError

from ringfence_client.partition.partition import HeldPartition
from ringfence_client.window.memory_budget import size
from ringfence_client.window.window import End
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.aiokafka_patches import internals
from ringfence_kafka.errors import named
from ringfence_kafka.readers import consumers

log: Final = logging.getLogger("ringfence.consumer")

RECORDS_MAX: Final = 5_000
"""Limit of records in one reading. Other parked messages of the range are also kept while they have room."""
CHUNK: Final = 250
"""Records per poll. Handlers run between polls."""
POLL_MS: Final = 200
RETRY_S: Final = 1.0
STOP_LIMIT_S: Final = 5.0
SILENT_S: Final = 1.0
"""Seconds for which a partition without an answer is skipped. The single connection waits for it exclusively."""
GONE: Final = object()


class ParkedReader:
    """One connection for all partitions of a consumer, opened when it is first needed."""

    def __init__(self, cluster: Cluster, counts: Counter[str]) -> None:
        """Prepare a reader. Missing records are counted in ``counts`` (``gap_records``)."""
        self._cluster = cluster
        self._counts = counts
        self._consumer: AIOKafkaConsumer | None = None
        self._lock = asyncio.Lock()
        self._ahead: set[HeldPartition] = set()
        self._redriving: set[HeldPartition] = set()
        self._running: set[asyncio.Task[None]] = set()
        self._silent: dict[TopicPartition, float] = {}
        """End of the skip by silent partition (event loop's time, in seconds)."""

    def read_ahead(self, held: HeldPartition) -> None:
        """Read ahead in the background if a group has few kept records left."""
        if self._may_begin(self._ahead, held) and held.window.cache.wanted() is not None:
            self._begin(self._ahead, held, self._read_ahead(held))

    def read_redriven(self, held: HeldPartition, wake: Callable[[], None]) -> None:
        """Fetch the records of redriven messages in the background."""
        if self._may_begin(self._redriving, held) and held.window.redrives.missing():
            self._begin(self._redriving, held, self._read_redriven(held, wake))

    def _may_begin(self, busy: set[HeldPartition], held: HeldPartition) -> bool:
        return not (held in busy or held.draining or self._is_silent(_place(held)))

    def _begin(
        self, busy: set[HeldPartition], held: HeldPartition, reading: Coroutine[Any, Any, None]
    ) -> None:
        async def read() -> None:
            try:
                await reading
            except (KafkaError, OSError) as error:
                if busy is self._redriving:  # otherwise the handler that needs the record reports the error
                    log.warning("%s: redriven messages cannot be read now: %s", held, named(error))
                await self._disconnect()
                await asyncio.sleep(RETRY_S)
            finally:
                busy.discard(held)

        busy.add(held)
        task = asyncio.create_task(read())
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _read_redriven(self, held: HeldPartition, wake: Callable[[], None]) -> None:
        window, tp = held.window, _place(held)
        for offset in window.redrives.missing():
            async with self._lock:
                if held.draining or window.closed or self._is_silent(tp):
                    return
                found = await self._stretch(tp, offset, 0)
                if found is None and await self._same(held):
                    log.error(
                        "GAP: %s/%d is gone: it was redriven, and retention or compaction deleted it; "
                        "its dead letter has the content", held, offset,
                    )  # fmt: skip
                    window.finish(offset, End.GONE)
                    self._counts["gap_records"] += 1
                    held.writer.count_changes()
                if sum(map(window.add_redriven, found or ())):
                    wake()

    async def _read_ahead(self, held: HeldPartition) -> None:
        window, tp = held.window, _place(held)
        while True:
            async with self._lock:
                offset = window.cache.wanted()
                if offset is None or held.draining or self._is_silent(tp):
                    return
                if (found := await self._stretch(tp, offset, window.cache.room)) is None:
                    window.cache.gone(offset)
                else:
                    self._add_to_window(held, found, always=False)

    async def read_parked(self, held: HeldPartition, offset: int) -> Any | None:
        """Return the record at this offset and keep the following ones; :data:`GONE`; None = the partition hands out no more now."""
        window, tp = held.window, _place(held)
        while (record := window.cache.record(offset)) is None and not held.draining:
            async with self._lock:
                if window.cache.record(offset) is not None:
                    continue  # another handler's reading has fetched it
                if self._is_silent(tp):
                    return None
                try:
                    # Messages behind a waiting one were handled long ago.
                    room = 0 if offset in window.cache.evicted else window.cache.room
                    found = await self._stretch(tp, offset, room)
                except Exception:
                    await self._disconnect()  # a consumer whose fetch failed repeats the error for ever
                    raise
                if found is None:
                    if not await self._same(held):
                        return None
                    log.error(
                        "GAP: %s/%d is gone: retention or compaction deleted it unprocessed", held, offset
                    )
                    self._counts["gap_records"] += 1
                    return GONE
                self._add_to_window(held, found, always=True)
        return record

    def _is_silent(self, tp: TopicPartition) -> bool:
        return self._silent.get(tp, 0.0) > asyncio.get_running_loop().time()

    async def _same(self, held: HeldPartition) -> bool:
        """Return whether the topic is still that of the lease. If not, the partition is opened again."""
        same = (await self._cluster.topics.identity(held.lease.topic)).topic_id == held.lease.topic_id
        if not same and not held.failed:
            log.warning("%s: %s was deleted and created again: reopening", held, held.lease.topic)
            held.fail()
        return same

    def _add_to_window(self, held: HeldPartition, found: list[Any], *, always: bool) -> None:
        """Add records to the window. If the log was replaced, the partition is opened again instead."""
        if not held.window.unpark(found, always=always) and not held.failed:
            log.warning(
                "%s: the log has other messages than before from offset %d on: it was created again, or "
                "lost its last records; reopening", held, found[0].offset,
            )  # fmt: skip
            held.fail()

    async def stop(self) -> None:
        """Cancel all readings, and disconnect."""
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running)
        await self._disconnect()

    async def _disconnect(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await internals.end(consumer, STOP_LIMIT_S)

    async def _stretch(self, tp: TopicPartition, offset: int, room: int) -> list[Any] | None:
        """Return committed records from this offset on: one, or as many as have room.

        Empty = no record came in time; None = the record at this offset is deleted.
        """
        if self._consumer is None:
            self._consumer = await consumers.connected(self._cluster.kafka, fetch_max_wait_ms=POLL_MS)
        consumer = self._consumer
        if tp not in consumer.assignment():
            known = consumer.assignment() | {tp}
            consumer.assign(list(known))
            consumer.pause(*known)
            for item in known:
                consumer.seek(item, offset)  # otherwise aiokafka looks up a position itself
        consumer.seek(tp, offset)
        consumer.resume(tp)
        records: list[Any] = []
        try:
            while len(records) < RECORDS_MAX and (not records or room > 0):
                limit = 0 if records else POLL_MS
                more = (await consumer.getmany(tp, timeout_ms=limit, max_records=CHUNK)).get(tp)
                if not more:
                    break
                records += more
                room -= sum(map(size, more))
                await asyncio.sleep(0)
        except OffsetOutOfRangeError:
            # A nearest replica that has fallen behind also reports this error. The next fetch goes to the leader.
            offsets = self._cluster.offsets
            if not await offsets.log_start(*tp) <= offset < await offsets.high_watermark(*tp):
                return None
        finally:
            # A partition that is not paused would fetch at once, and the next reading would wait for that fetch.
            consumer.pause(tp)
            # The rest of a fetch, a megabyte, is useless to the next reading. aiokafka would leave it to the garbage collector.
            internals.drop_fetched(consumer, internals.fetched(consumer))
        if not records:
            self._silent[tp] = asyncio.get_running_loop().time() + SILENT_S
        return None if records and records[0].offset > offset else records


def _place(held: HeldPartition) -> TopicPartition:
    return TopicPartition(held.lease.topic, held.partition)
