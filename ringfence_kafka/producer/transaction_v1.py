"""Transactions as aiokafka writes them: separate requests add the partitions and the group.

All brokers accept this. Only this module and :mod:`ringfence_kafka.producer.transaction_v2` depend on the internals of aiokafka's transactions.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, cast

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import IllegalOperation, KafkaConnectionError, KafkaError
from aiokafka.structs import OffsetAndMetadata

from ringfence_kafka.aiokafka_patches import producer_internals
from ringfence_kafka.aiokafka_patches.transaction_sender import report_unanswered, send_only_what_was_added
from ringfence_kafka.concurrency.timeouts import retrieve_outcome
from ringfence_kafka.process.failpoints import reach
from ringfence_kafka.producer.outgoing import (
    OF_TOPICS,
    Outgoing,
    name_topics,
    refusal,
    require_partition,
    wait_for_all,
)


class TransactionV1:
    """Transactions of one producer, one at a time."""

    def __init__(self, producer: AIOKafkaProducer, lane: str) -> None:
        """Use an initialised ``producer``. ``lane``: name of its owner, for fail points."""
        self._producer = producer
        self._lane = lane
        self._unanswered = False
        send_only_what_was_added(producer)
        report_unanswered(producer, self._note_unanswered)

    def _note_unanswered(self) -> None:
        self._unanswered = True

    async def begin_transaction(self) -> None:
        """Begin the next transaction.

        Raises:
            KafkaConnectionError: a request of the last transaction may still arrive in this one: a new epoch is needed.
        """
        if self._unanswered:
            raise KafkaConnectionError(
                "a request of the transaction before had no answer, and may still arrive: a new epoch is needed"
            )
        await self._producer.begin_transaction()

    async def write(
        self, batches: Sequence[Outgoing], offsets: Mapping[TopicPartition, int], group_id: str
    ) -> list[int]:
        """Write batches and offsets; wait until all are acknowledged.

        Returns:
            Base offset of each batch, in order; -1 if the broker did not report it.

        Raises:
            ProducerFenced: another holder has the transactional ID.
            TopicError: a topic does not take a record's timestamp or a batch's size.
            KafkaError: a request was refused.
        """
        futures: list[asyncio.Future[Any]] = []
        try:
            try:
                for topic, partition, builder, _ in batches:
                    await require_partition(self._producer, topic, partition, wait=True)
                    futures.append(await self._producer.send_batch(builder, topic, partition=partition))
                    await reach("mid-send", self._lane)
            except IllegalOperation:
                await wait_for_all(futures)  # the producer has failed: an earlier send has the cause
                raise
            committed = {tp: OffsetAndMetadata(offset, "") for tp, offset in offsets.items()}
            # All futures are awaited before the commit: aiokafka commits even if a batch failed, and its records would be missing.
            if committed:
                results = await wait_for_all([*futures, self._send_offsets(committed, group_id)])
            else:
                results = await wait_for_all(futures)
            return [
                -1 if result is None else cast("int", result.offset) for result in results[: len(futures)]
            ]
        except OF_TOPICS as error:
            raise refusal(error, _refusing(batches, futures, type(error)), batches) from error
        except KafkaError as error:
            if topics := _refusing(batches, futures, type(error)):
                name_topics(error, topics)
            raise
        finally:
            # If the caller gives up early, Python would report their results as never retrieved.
            _note_outcomes(futures)

    async def commit(self) -> None:
        """Commit the transaction."""
        await self._producer.commit_transaction()

    async def abort(self) -> None:
        """Abort the transaction, so that readers skip its records."""
        await self._producer.abort_transaction()

    async def _send_offsets(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group_id: str) -> None:
        try:
            await self._producer.send_offsets_to_transaction(offsets, group_id)
        except asyncio.CancelledError:
            # aiokafka's future remains and fails when this producer is fenced: Python would report it as never retrieved.
            for future in producer_internals.pending_offsets(self._producer):
                future.add_done_callback(retrieve_outcome)
            raise


def _refusing(
    batches: Sequence[Outgoing], futures: Sequence["asyncio.Future[Any]"], kind: type[Exception]
) -> set[str]:
    return {
        batch.topic
        for batch, future in zip(batches, futures, strict=False)  # the writes may have stopped early
        if future.done() and not future.cancelled() and isinstance(future.exception(), kind)
    }


def _note_outcomes(futures: list["asyncio.Future[Any]"]) -> None:
    """Retrieve and release all futures: an error that is raised here would keep itself alive, as in :func:`wait_for_all`."""
    for future in futures:
        future.add_done_callback(retrieve_outcome)
    futures.clear()
