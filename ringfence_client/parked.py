"""Reads parked messages again: a reader of its own, so that the consumer's position stays where it is."""

import asyncio
import logging
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import OffsetOutOfRangeError

from conf.settings import KafkaSettings
from ringfence_client.claimed import Claimed
from tables import insides
from tables.access import client_options

log: Final = logging.getLogger("ringfence.consumer")

RECORDS_MAX: Final = 5_000
"""Of one reading: what else is parked in the stretch is kept, as far as its groups' shares go."""
POLL_MS: Final = 200
STOP_LIMIT_S: Final = 5.0


class ParkedReader:
    """One connection for all partitions of a consumer, made when it is first needed."""

    def __init__(self, kafka: KafkaSettings) -> None:
        self._kafka = kafka
        self._consumer: AIOKafkaConsumer | None = None
        self._lock = asyncio.Lock()

    async def read(self, claimed: Claimed, offset: int) -> Any | None:
        """The record at this offset, and with it what follows; None = retention has deleted it, or it is drained.

        Raises:
            KafkaError: it cannot be read now.
        """
        window = claimed.window
        while (record := window.record(offset)) is None and not claimed.draining:
            async with self._lock:
                if window.record(offset) is not None:
                    continue  # another handler's reading has brought it
                try:
                    found = await self._stretch(TopicPartition(claimed.topic, claimed.partition), offset)
                except Exception:
                    await self.stop()  # what its fetching ended with, it would say for ever
                    raise
                if found is None:
                    return None
                window.unpark(found)
        return record

    async def stop(self) -> None:
        """Disconnect."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await insides.end(consumer, STOP_LIMIT_S)

    async def _stretch(self, tp: TopicPartition, offset: int) -> list[Any] | None:
        """Committed records from this offset on; empty = nothing came in time; None = this one is gone."""
        if self._consumer is None:
            consumer = AIOKafkaConsumer(
                **client_options(self._kafka),
                isolation_level="read_committed",
                enable_auto_commit=False,
                auto_offset_reset="none",
                fetch_max_wait_ms=POLL_MS,
            )
            try:
                await consumer.start()
            except BaseException:
                await consumer.stop()
                raise
            self._consumer = consumer
        consumer = self._consumer
        if consumer.assignment() != {tp}:
            consumer.assign([tp])
        consumer.seek(tp, offset)
        consumer.resume(tp)
        try:
            records = (await consumer.getmany(tp, timeout_ms=POLL_MS, max_records=RECORDS_MAX)).get(tp, [])
        except OffsetOutOfRangeError:
            records = None
        # Else it would fetch on at once, and the next reading would wait for that fetch, up to the poll time.
        consumer.pause(tp)
        if records is None or (records and records[0].offset > offset):
            log.error("GAP: %s/%d/%d is gone: retention or compaction deleted it unprocessed", *tp, offset)
            return None
        return list(records)
