"""Transactional producer of a lane.

The transactional ID is the fence. Offsets of a transaction have no group generation, so the broker cannot detect a former owner by its
generation. It detects it by the producer epoch: the last producer that initialises the transactional ID owns the lane. Every earlier
holder fails at its next transactional call.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaTimeoutError, ProducerFenced, UnsupportedVersionError
from aiokafka.producer.message_accumulator import BatchBuilder

from ringfence_kafka.aiokafka_patches import internals, producer_internals
from ringfence_kafka.aiokafka_patches.batch_compression import builder_of
from ringfence_kafka.auth.client_options import producer_options
from ringfence_kafka.broker_limits import TRANSACTION_TIMEOUT_MS
from ringfence_kafka.concurrency.timeouts import retrieve_outcome, to_the_end
from ringfence_kafka.config.settings import KafkaSettings
from ringfence_kafka.process.failpoints import reach
from ringfence_kafka.producer import transaction_v2_requests, transaction_version
from ringfence_kafka.producer.outgoing import (
    BatchForm,
    Builder,
    FencedError,
    NewBuilder,
    Outgoing,
    RefusedError,
    refusing_topics,
    require_partition,
)
from ringfence_kafka.producer.shared_clients import ProducerClients
from ringfence_kafka.producer.transaction_v1 import TransactionV1
from ringfence_kafka.producer.transaction_v2 import TransactionV2
from ringfence_kafka.producer.transaction_version import TransactionVersionError

__all__ = [
    "BatchForm",
    "Builder",
    "FencedError",
    "NewBuilder",
    "Outgoing",
    "RefusedError",
    "TransactionVersionError",
    "TransactionalProducer",
    "empty_batch",
    "refusing_topics",
    "require_partition",
]

BATCH_BYTES_MAX: Final = 512 * 1024
"""Maximum size of a record batch, in bytes: below the broker's default message.max.bytes of 1 MiB, with room for overhead."""
REQUEST_BYTES_MAX: Final = 64 * 2**20
FENCE_LIMIT_S: Final = 30.0
DISCARD_TIMEOUT_S: Final = 3.0


class TransactionalProducer:
    """Producer with one transactional ID. After any failure it is discarded, never repaired.

    :meth:`transact` and :meth:`prime` raise FencedError if another holder has the transactional ID, and TransactionVersionError if brokers
    refuse the ID because ``transaction.version`` was lowered.
    """

    def __init__(
        self,
        kafka: KafkaSettings,
        transactional_id: str,
        lane: str,
        batch_bytes_max: int = BATCH_BYTES_MAX,
        transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS,
        clients: ProducerClients | None = None,
    ) -> None:
        """Create an unconnected producer.

        Args:
            kafka: Brokers and access.
            transactional_id: The fence.
            lane: Name of the owner, for fail points.
            batch_bytes_max: Smallest ``max.message.bytes`` of its topics.
            transaction_timeout_ms: Time after which the broker aborts an open transaction, in ms.
            clients: Connections to share with other producers; None = use its own.
        """
        self.transactional_id = transactional_id
        self._lane = lane
        self._producer = AIOKafkaProducer(
            **producer_options(kafka),
            transactional_id=transactional_id,
            transaction_timeout_ms=transaction_timeout_ms,
            max_batch_size=min(batch_bytes_max, BATCH_BYTES_MAX),
            max_request_size=REQUEST_BYTES_MAX,
            acks="all",
        )
        internals.never_create(self._producer)
        self._turns: asyncio.Semaphore | None = None
        if clients is not None:
            self._turns = clients.turns
            producer_internals.use_client(self._producer, clients.share())
        self._in_transaction = False
        self._wants_v2 = transaction_version.wanted()
        self._transactions: TransactionV1 | TransactionV2 = TransactionV1(self._producer, lane)

    async def fence(self, limit_s: float = FENCE_LIMIT_S) -> None:
        """Take the transactional ID. This aborts the former holder's open transaction and refuses all its later writes.

        With shared connections the caller must hold a turn of :class:`ringfence_kafka.producer.shared_clients.ProducerClients`, or limit
        its fences.

        Raises:
            KafkaTimeoutError: the fence took longer than ``limit_s`` seconds. aiokafka itself would retry while the coordinator is
                unavailable.
            TransactionVersionError: brokers refuse the ID, because ``transaction.version`` was lowered.
        """
        try:
            async with asyncio.timeout(limit_s):
                await self._producer.start()
                if self._wants_v2 and await transaction_version.offered(self._producer):
                    self._transactions = TransactionV2(self._producer, self.transactional_id, self._lane)
        except UnsupportedVersionError as error:
            raise await self._refused(error) from error
        except TimeoutError as error:
            if await transaction_version.lowered(self._producer):
                raise TransactionVersionError(self.transactional_id) from error
            raise KafkaTimeoutError(
                f"transactional ID {self.transactional_id} cannot be initialised within {limit_s:g} s, so nothing is processed. "
                "Either its last transaction does not end (kafka-transactions.sh find-hanging), or the transaction coordinator is away, "
                f"or {transaction_v2_requests.FEATURE} was lowered to 0 and brokers were not restarted since"
            ) from error

    async def _refused(self, error: UnsupportedVersionError) -> Exception:
        """Return why the broker refuses a request that it accepted before."""
        return (
            TransactionVersionError(self.transactional_id)
            if await transaction_version.lowered(self._producer)
            else error
        )

    def turn(self) -> contextlib.AbstractAsyncContextManager[None]:
        """Return the turn to hold during a transaction. With shared connections the number of simultaneous transactions is limited.

        A caller with a time limit for the transaction takes the turn first.
        """
        return contextlib.nullcontext() if self._turns is None else self._turns

    def builder(self) -> Builder:
        """Return an empty record batch of up to :data:`BATCH_BYTES_MAX` bytes. A larger record fits as its only one."""
        return builder_of(self._producer)

    def form(self) -> BatchForm:
        """Return size limit and compression of :meth:`builder`'s batches, for callers that build batches differently."""
        return BatchForm(*producer_internals.batch_form(self._producer))

    async def transact(
        self,
        batches: Sequence[Outgoing],
        offsets: Mapping[TopicPartition, int],
        group_id: str,
        approve: Callable[[list[int]], Awaitable[None]] | None = None,
    ) -> list[int]:
        """Write all batches and the offsets in one transaction.

        Args:
            batches: Record batches to write.
            offsets: Next offsets to commit for the group.
            group_id: The group.
            approve: Called with the base offsets after all writes, before the commit. It raises to prevent the commit.

        Returns:
            Base offset of each batch, in order; -1 if the broker did not report it.

        Raises:
            RefusedError: a topic does not take a record's timestamp or a batch's size.
            KafkaError: a request was refused (:func:`refusing_topics` returns the topics, if known). The outcome is unknown: discard this
                producer.
        """
        async with self._transaction():
            await reach("before-send", self._lane)
            bases = await self._transactions.write(batches, offsets, group_id)
            await reach("after-send", self._lane)
            if approve is not None:
                await approve(bases)
            await reach("before-commit", self._lane)
            await self._transactions.commit()
        return bases

    @contextlib.asynccontextmanager
    async def _transaction(self) -> AsyncIterator[None]:
        """Begin a transaction, which the body of the context ends, and translate the errors."""
        try:
            await self._transactions.begin_transaction()
            self._in_transaction = True
            yield
            self._in_transaction = False
        except ProducerFenced as error:
            raise FencedError(f"{self.transactional_id} belongs to another producer") from error
        except UnsupportedVersionError as error:
            raise await self._refused(error) from error

    async def prime(self, places: Iterable[tuple[str, int]]) -> None:
        """Write a present timestamp to these partitions, with a transaction that is aborted.

        Retention deletes segments from the start of a log and stops at the first one with a young largest timestamp. The abort marker has
        the broker's time. Records behind it are therefore kept, even if their own timestamps are old.
        """
        async with self._transaction():
            batches = []
            for topic, partition in places:
                batches.append(Outgoing(topic, partition, self.builder()))
                batches[-1].builder.append(timestamp=None, key=None, value=None, headers=[])
            await self._transactions.write(batches, {}, "")
            # The coordinator begins no other transaction of this producer before all markers of the abort are written.
            await self._transactions.abort()

    @contextlib.asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Discard the producer if the body of the context fails."""
        try:
            yield
        except BaseException:
            await self.discard()
            raise

    async def discard(self) -> None:
        """End the producer within a few seconds, in any state of it and the broker. Never raises.

        An open transaction is aborted, because it would block readers of the outputs until the next fence. A cancelled caller still waits
        for the end, because nothing else would close the connections.
        """
        await to_the_end(self._end())

    async def _end(self) -> None:
        # No other code retrieves the error of aiokafka's transaction; Python would print it with its traceback as never retrieved.
        waiter = producer_internals.transaction_end(self._producer)
        if waiter is not None and waiter.done():
            retrieve_outcome(waiter)
        # aiokafka would retry these offsets forever if the partition was deleted, and the abort would wait for them.
        producer_internals.forget_offsets(self._producer)
        # No caller cancels this task, so a cancellation comes from a future that aiokafka awaits, as time limits leave behind.
        if self._in_transaction:
            with contextlib.suppress(Exception, asyncio.CancelledError):
                async with asyncio.timeout(DISCARD_TIMEOUT_S):
                    await self._transactions.abort()
        try:
            async with asyncio.timeout(DISCARD_TIMEOUT_S):
                await self._producer.stop()
        except (Exception, asyncio.CancelledError):
            with contextlib.suppress(Exception, asyncio.CancelledError):
                async with asyncio.timeout(DISCARD_TIMEOUT_S):
                    await self._producer.client.close()
            await producer_internals.end_sender(self._producer, DISCARD_TIMEOUT_S)


def empty_batch() -> Builder:
    """Return an empty record batch that belongs to no producer, to measure sizes."""
    return BatchBuilder(BATCH_BYTES_MAX, 0, is_transactional=1)
