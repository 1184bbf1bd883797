"""Keeps the settled records of a quarantine or dead-letter topic: redriven or dropped ones.

They are in the progress topic, as progress of the group ``<app id>-repair``. The progress is written in the
transaction that also publishes the redriven records. Its transactional ID fences a redrive that started
earlier.
"""

import asyncio
import contextlib
from collections.abc import Collection, Sequence
from typing import Final

from aiokafka.errors import KafkaError, KafkaTimeoutError

from ringfence_client.progress import progress_record
from ringfence_client.progress.progress_record import Progress
from ringfence_client.progress.progress_topic import PARTITIONS, TOPIC_CONFIG, ProgressTopic, record_batches
from ringfence_client.progress.record_parts import PartLayout
from ringfence_client.progress.watermark import Watermark
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.config.settings import KafkaSettings
from ringfence_kafka.errors import RepairError, named
from ringfence_kafka.producer.transactional import (
    BATCH_BYTES_MAX,
    Builder,
    FencedError,
    Outgoing,
    TransactionalProducer,
)
from ringfence_kafka.protocol import wire_names

LIMIT_S: Final = 30.0
"""Time limit of a fence, and of a transaction, in seconds."""
APPEAR_LIMIT_S: Final = 30.0
HOLDER: Final = "repair"


class RedriveLog:
    """Quarantine or dead-letter topic, with its progress in the progress topic."""

    def __init__(self, kafka: KafkaSettings, app_id: str, cluster: Cluster, topic: str) -> None:
        """Take the topic's ``cluster``, as :func:`ringfence_kafka.protocol.wire_names.repair_group`."""
        self.kafka = kafka
        self.app_id = app_id
        self.cluster = cluster
        self.topic = topic
        self.topic_id = ""
        self.partitions = 0
        """Number of partitions; 0 = the topic does not exist."""
        self.batch_bytes_max = BATCH_BYTES_MAX
        """Size limit of published batches."""
        self.progress: ProgressTopic | None = None
        """None = the topic does not exist, so no record is settled."""

    async def open(self, replication_factor: int | None = None) -> None:
        """Look up the topics. With a replication factor, create a missing progress topic.

        Raises:
            TopicError: The progress topic cannot be created.
            KafkaError: The cluster does not answer.
        """
        progress = wire_names.progress_topic(self.app_id)
        counts = await self.cluster.topics.partition_counts([self.topic, progress])
        if self.topic not in counts:
            return
        self.topic_id = (await self.cluster.topics.identity(self.topic)).topic_id
        if progress not in counts and replication_factor is not None:
            await self.cluster.topics.create(progress, PARTITIONS, replication_factor, dict(TOPIC_CONFIG))
            made = await self.cluster.topics.await_created([progress], APPEAR_LIMIT_S)
            counts[progress] = made[progress].partitions
        if progress in counts:
            self.progress = ProgressTopic(self.cluster, self.app_id)
            await self.progress.start()
        self.partitions = counts[self.topic]

    def limit_batches(self, bytes_max: int) -> None:
        """Limit published batches to the size that the target accepts."""
        self.batch_bytes_max = bytes_max

    async def close(self) -> None:
        """Disconnect."""
        if self.progress is not None:
            await self.progress.stop()


class RedrivePartition:
    """One partition. Read it from :attr:`begin`, and report each record to :meth:`delivered`."""

    def __init__(self, log: RedriveLog, number: int) -> None:
        """Create it; its progress is not loaded yet."""
        self.log = log
        self.number = number
        self._group = wire_names.repair_group(log.app_id)
        self._key = progress_record.encode_key(self._group, log.topic, number)
        self._watermark = Watermark()
        self._beat = 0
        self._parts = PartLayout()
        self._producer: TransactionalProducer | None = None
        self.begin = 0
        """Offset below which every record is settled or deleted."""

    def __str__(self) -> str:
        return f"{self.log.topic}/{self.number}"

    async def fence(self) -> None:
        """Fence another redrive. Call it before :meth:`load` if records will be settled.

        Raises:
            RepairError: The transaction coordinator does not answer.
        """
        log = self.log
        identity = wire_names.consumer_transactional_id(log.app_id, self._group, log.topic, self.number)
        self._producer = TransactionalProducer(
            log.kafka, identity, f"repair/{self}", batch_bytes_max=log.batch_bytes_max
        )
        try:
            await self._producer.fence(LIMIT_S)
        except KafkaTimeoutError as error:
            raise RepairError(
                f"{self}: its transactional ID is not available within {LIMIT_S:g} s: look at the cluster's "
                "transaction coordinator"
            ) from error

    async def load(self) -> None:
        """Load which records are settled."""
        log = self.log
        start = await log.cluster.offsets.log_start(log.topic, self.number)
        known = await log.progress.latest(self._key) if log.progress is not None else None
        if known is None or known.topic_id != log.topic_id:
            self._watermark = Watermark(start)
        else:
            self._watermark, self._beat = Watermark(known.next, known.finished), known.beat
            self._parts = PartLayout(known.parts)
            self._watermark.reached(start)
        self.begin = self._watermark.next

    def delivered(self, offset: int) -> bool:
        """Record the offset of the next record; return whether it is open."""
        return self._watermark.delivered(offset)

    def is_settled(self, offset: int) -> bool:
        """Return whether a record is settled."""
        return self._watermark.is_finished(offset)

    def builder(self) -> Builder:
        """Return an empty record batch for :meth:`settle`."""
        if self._producer is None:
            raise AssertionError(f"{self} is not taken")
        return self._producer.builder()

    async def settle(self, offsets: Collection[int], published: Sequence[Outgoing] = ()) -> None:
        """Settle these records and write ``published``, in one transaction.

        After an error, discard the partition.

        Raises:
            RepairError: Another redrive works on the partition; or the write failed, and only :meth:`load`
                shows whether it was committed.
        """
        progress, watermark = self.log.progress, self._watermark
        if self._producer is None or progress is None:
            raise AssertionError(f"{self} is not taken")
        for offset in offsets:
            watermark.finish(offset)
        self._beat += 1
        written = Progress(
            watermark.next,
            finished=watermark.runs(),
            holder=HOLDER,
            beat=self._beat,
            topic_id=self.log.topic_id,
        )
        change = self._parts.change(written)
        records = progress_record.records(self._key, written, change)
        places = [
            Outgoing(progress.name, progress.home(self._key), batch)
            for batch in record_batches(records, self._producer.builder)
        ]
        try:
            async with asyncio.timeout(LIMIT_S):
                await self._producer.transact([*places, *published], {}, "")
            self._parts.written()
        except FencedError as error:
            raise RepairError(
                f"{self}: another redrive or drop has started there, so this one stops; counted records are "
                "done"
            ) from error
        except (KafkaError, TimeoutError, OSError) as error:
            raise RepairError(
                f"{self}: not written ({named(error)}): look at the brokers and at this user's rights, and "
                "run it again: it continues where it stopped"
            ) from error

    async def close(self) -> None:
        """Discard the producer."""
        if self._producer is not None:
            with contextlib.suppress(Exception):
                await self._producer.discard()
