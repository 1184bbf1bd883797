"""The producer of a bridge: idempotent, no transactions.

It writes each batch once and in order for as long as it lives. Hop headers make up for what is lost when it ends.
"""

import asyncio
import contextlib
from typing import Any, Final

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaTimeoutError

from ringfence_kafka.aiokafka_patches import internals, producer_internals
from ringfence_kafka.aiokafka_patches.batch_compression import builder_of
from ringfence_kafka.auth.client_options import producer_options
from ringfence_kafka.concurrency.timeouts import note_outcome, to_the_end
from ringfence_kafka.config.kafka import KafkaSettings
from ringfence_kafka.producer.transactional import (
    DISCARD_TIMEOUT_S,
    REQUEST_BYTES_MAX,
    Builder,
    require_partition,
)

BATCH_BYTES_MAX: Final = 2**20
"""Bytes of one record batch, if the topic takes as much. A partition takes one batch per round trip, which limits the throughput over a
slow link."""
START_LIMIT_S: Final = 20.0
ACKNOWLEDGED_WITHIN_S: Final = 20.0
"""After which a batch counts as lost: twice the time of a request, so that one lost answer does not end the producer."""
METADATA_AGE_MS: Final = 10_000
"""How soon it is seen that a topic has other partitions."""


class IdempotentProducer:
    """One life: after any failure it is discarded, never fixed."""

    def __init__(self, kafka: KafkaSettings, name: str, batch_bytes_max: int = BATCH_BYTES_MAX) -> None:
        """Prepare a producer whose name brokers log. ``batch_bytes_max``: the smallest ``max.message.bytes`` of its topics."""
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
            KafkaError: nobody answers, or it is refused.
        """
        try:
            async with asyncio.timeout(START_LIMIT_S):
                await self._producer.start()
        except TimeoutError as error:
            raise KafkaTimeoutError(f"no producer ID within {START_LIMIT_S:.0f} s") from error

    def partitions(self, topic: str) -> int:
        """As its metadata show them now; 0 = they do not."""
        return len(producer_internals.partitions_of(self._producer, topic) or ())

    def builder(self) -> Builder:
        """Return an empty record batch (one larger record fits alone)."""
        return builder_of(self._producer)

    async def send(self, topic: str, partition: int, builder: Builder) -> None:
        """Write a batch; returns when it is acknowledged.

        aiokafka goes on with the next batch of a partition where it gave one up: hand over one at a time.

        Raises:
            KafkaError: it was refused, or its fate is unknown: this producer must be discarded.
        """
        await require_partition(self._producer, topic, partition, wait=False)
        future: asyncio.Future[Any] = await self._producer.send_batch(builder, topic, partition=partition)
        future.add_done_callback(note_outcome)
        try:
            async with asyncio.timeout(ACKNOWLEDGED_WITHIN_S):
                await asyncio.shield(future)
        except TimeoutError as error:
            raise KafkaTimeoutError(
                f"{topic}/{partition}: not acknowledged within {ACKNOWLEDGED_WITHIN_S:.0f} s"
            ) from error

    async def discard(self) -> None:
        """End it within a few seconds, whatever state it and the brokers are in; records under way may still arrive. Never raises.

        A caller that is cancelled meanwhile still waits for the end: nothing else would close the connections.
        """
        await to_the_end(self._end())

    async def _end(self) -> None:
        producer_internals.refuse_sends(self._producer)
        # Nobody cancels this task: a cancellation is that of a future that aiokafka waits for.
        with contextlib.suppress(Exception, asyncio.CancelledError):
            async with asyncio.timeout(DISCARD_TIMEOUT_S):
                await self._producer.client.close()
        await producer_internals.end_sender(self._producer, DISCARD_TIMEOUT_S)
