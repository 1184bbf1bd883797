"""Opens a partition that Kafka has assigned: fence the former holder, then read how far it came."""

import dataclasses
import logging
import uuid
from collections.abc import Awaitable, Callable, Collection
from typing import Final

from conf import wire
from conf.settings import KafkaSettings
from ringfence_client.dead_letters import DeadLetters
from ringfence_client.options import ConsumerOptions
from ringfence_client.progress import ProgressTopic
from ringfence_client.record import Progress
from ringfence_client.watermark import Watermark
from ringfence_client.window import Window
from ringfence_client.writer import TRANSACTION_TIMEOUT_MS, Claim, LostError, ProgressWriter
from tables.cluster import Cluster
from tables.producer import TransactionalProducer

log: Final = logging.getLogger("ringfence.consumer")


class NotOursError(Exception):
    """The consumer group has given the partition to somebody else meanwhile."""


class PartitionOpening:
    """Opens the partitions of one accepted topic for one consumer group."""

    def __init__(
        self,
        kafka: KafkaSettings,
        app_id: str,
        cluster: Cluster,
        progress: ProgressTopic,
        letters: DeadLetters,
        options: ConsumerOptions,
    ) -> None:
        self._kafka = kafka
        self._app_id = app_id
        self._cluster = cluster
        self._progress = progress
        self._letters = letters
        self._options = options
        self.web = ""
        """Where this consumer's web server is, for others to find."""

    async def open(
        self, topic: str, partition: int, confirm: Callable[[], Awaitable[bool]]
    ) -> tuple[Claim, Window, ProgressWriter]:
        """Fence, read, and prepare; nothing is written yet.

        Args:
            topic: The accepted topic.
            partition: Its number.
            confirm: Asks the broker whether the partition is still ours. Before the fence, so that who slept past its
                session does not fence the successor; and after it, so that nobody works on what it lost meanwhile.

        Raises:
            NotOursError: it is not.
            KafkaError: the cluster does not answer.
            ProgressFormatError: the progress cannot be read.
        """
        claim = Claim(
            self._cluster.group_id, topic, partition, f"{self._options.name}/{uuid.uuid4().hex[:8]}", self.web
        )
        producer = await self._fenced(claim, confirm)
        try:
            predecessor = await self._progress.latest(claim.key)
            progress = await self._start(claim, predecessor)
        except BaseException:
            await producer.discard()
            raise

        ours = {claim.holder, predecessor.holder if predecessor is not None else ""}

        async def reclaim() -> tuple[TransactionalProducer, Progress | None]:
            return await self._reclaim(claim, ours, confirm)

        window = Window(progress, prefetch=self._options.prefetch, records_max=self._options.records_max)
        writer = ProgressWriter(
            claim, window, producer, (self._progress.name, self._progress.partition(claim.key)), self._letters, reclaim,
            ack_interval=self._options.ack_interval, ack_count=self._options.ack_count,
        )  # fmt: skip
        return claim, window, writer

    async def _fenced(self, claim: Claim, confirm: Callable[[], Awaitable[bool]]) -> TransactionalProducer:
        await _confirmed(claim, confirm)
        producer = TransactionalProducer(
            self._kafka,
            wire.consumer_transactional_id(self._app_id, claim.group, claim.topic, claim.partition),
            f"{claim.group}/{claim}",
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
        )
        try:
            await producer.fence()
            await _confirmed(claim, confirm)
        except BaseException:
            await producer.discard()
            raise
        return producer

    async def _start(self, claim: Claim, progress: Progress | None) -> Progress:
        """The former holder's last word, held against the group's offset, which an operator may have moved."""
        committed = await self._cluster.committed(claim.topic, claim.partition)
        start = await self._cluster.log_start(claim.topic, claim.partition)
        if progress is None:
            progress = Progress(start if committed is None else committed)
        elif committed is not None and committed != progress.next:
            log.warning(
                "%s: the offset of %s was moved from %d to %d: beginning there, and what was finished above it is "
                "done again",
                claim, claim.group, progress.next, committed,
            )  # fmt: skip
            progress = Progress(committed)
        end = await self._cluster.high_watermark(claim.topic, claim.partition)
        if progress.next > end:
            log.warning(
                "%s ends at %d, and %s has finished it up to %d: it was recreated, or lost its tail; beginning at its "
                "start", claim, end, claim.group, progress.next,
            )  # fmt: skip
            return Progress(start)
        if progress.next < start:
            log.error(
                "GAP: %s begins at %d, and %s has finished it up to %d: retention deleted what lies between",
                claim, start, claim.group, progress.next,
            )  # fmt: skip
            return _from(progress, start)
        return progress

    async def _reclaim(
        self, claim: Claim, ours: Collection[str], confirm: Callable[[], Awaitable[bool]]
    ) -> tuple[TransactionalProducer, Progress | None]:
        """After a failed write: fence again, unless somebody else has written meanwhile; and what was written last."""
        try:
            producer = await self._fenced(claim, confirm)
        except NotOursError as error:
            raise LostError(str(error)) from error
        try:
            progress = await self._progress.latest(claim.key)
        except BaseException:
            await producer.discard()
            raise
        if progress is not None and progress.holder not in ours:
            await producer.discard()
            raise LostError(f"{progress.holder} has taken it")
        return producer, progress


def _from(progress: Progress, start: int) -> Progress:
    """What it says of offsets from ``start`` on: below there is nothing any more."""
    watermark = Watermark(progress.next, progress.finished)
    watermark.reached(start)
    attempts = {offset: count for offset, count in progress.attempts.items() if offset >= start}
    return dataclasses.replace(progress, next=watermark.next, finished=watermark.runs(), attempts=attempts)


async def _confirmed(claim: Claim, confirm: Callable[[], Awaitable[bool]]) -> None:
    if not await confirm():
        raise NotOursError(f"{claim} is no longer assigned to this consumer")
