"""Producer of a bridge: idempotent, without transactions.

While it lives it writes each batch once and in order. Hop headers detect duplicates of batches whose fate is unknown when it ends.
"""

import asyncio
import contextlib
from typing import Any, Final

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaTimeoutError

from ringfence_kafka.aiokafka_patches import internals, producer_internals
from ringfence_kafka.aiokafka_patches.batch_compression import builder_of
from ringfence_kafka.auth.client_options import producer_options
from ringfence_kafka.concurrency.timeouts import retrieve_outcome, to_the_end
from ringfence_kafka.config.kafka import KafkaSettings
from ringfence_kafka.producer.transactional import (
    DISCARD_TIMEOUT_S,
    REQUEST_BYTES_MAX,
    Builder,
    require_partition,
)

BATCH_BYTES_MAX: Final = 2**20
"""Maximum size of a record batch, if the topic takes as much, in bytes. A partition takes one batch per round trip, which limits the
throughput over a slow link."""
START_LIMIT_S: Final = 20.0
ACKNOWLEDGED_WITHIN_S: Final = 20.0
"""Time after which a batch counts as lost, in seconds: twice the request time-out, so that one lost response does not end the producer."""
METADATA_AGE_MS: Final = 10_000
"""Maximum time until a new partition count of a topic is noticed, in ms."""


class IdempotentProducer:
    """Producer that is discarded, never repaired, after any failure."""

    def __init__(self, kafka: KafkaSettings, name: str, batch_bytes_max: int = BATCH_BYTES_MAX) -> None:
        """Prepare a producer. ``name``: name for the brokers' logs; ``batch_bytes_max``: smallest ``max.message.bytes`` of its topics."""
        self._producer = AIOKafkaProducer(
            **producer_options(kafka) | {"client_id": kafka.client_id_of(name)},
            enable_idempotence=True,
            acks="all",
            max_batch_size=min(batch_bytes_max, BATCH_BYTES_MAX),
            max_request_size=REQUEST_BYTES_MAX,
            metadata_max_age_ms=METADATA_AGE_MS,
        )
        internals.never_create(self._producer)

    async def start(self) -> None:
        """Connect, and get a producer ID.

        Raises:
            KafkaError: no broker answers, or the request is refused.
        """
        try:
            async with asyncio.timeout(START_LIMIT_S):
                await self._producer.start()
        except TimeoutError as error:
            raise KafkaTimeoutError(f"no producer ID within {START_LIMIT_S:.0f} s") from error

    def partitions(self, topic: str) -> int:
        """Return the partition count in the present metadata; 0 = not known."""
        return len(producer_internals.partitions_of(self._producer, topic) or ())

    def builder(self) -> Builder:
        """Return an empty record batch. A larger record fits as its only one."""
        return builder_of(self._producer)

    async def send(self, topic: str, partition: int, builder: Builder) -> None:
        """Write a batch; return when it is acknowledged.

        After aiokafka gives up a batch, it continues with the next one of the partition: the caller must send one at a time.

        Raises:
            KafkaError: the batch was refused, or its fate is unknown: discard this producer.
        """
        await require_partition(self._producer, topic, partition, wait=False)
        future: asyncio.Future[Any] = await self._producer.send_batch(builder, topic, partition=partition)
        future.add_done_callback(retrieve_outcome)
        try:
            async with asyncio.timeout(ACKNOWLEDGED_WITHIN_S):
                await asyncio.shield(future)
        except TimeoutError as error:
            raise KafkaTimeoutError(
                f"{topic}/{partition}: not acknowledged within {ACKNOWLEDGED_WITHIN_S:.0f} s"
            ) from error

    async def discard(self) -> None:
        """End the producer within a few seconds, in any state of it and the brokers. Unacknowledged records may still arrive. Never raises.

        A cancelled caller still waits for the end, because nothing else would close the connections.
        """
        await to_the_end(self._end())

    async def _end(self) -> None:
        producer_internals.refuse_sends(self._producer)
        # No caller cancels this task, so a cancellation comes from a future that aiokafka awaits.
        with contextlib.suppress(Exception, asyncio.CancelledError):
            async with asyncio.timeout(DISCARD_TIMEOUT_S):
                await self._producer.client.close()
        await producer_internals.end_sender(self._producer, DISCARD_TIMEOUT_S)
