"""Record batches of a transaction, their partitions, and the errors of refusals."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final, NamedTuple

from aiokafka import AIOKafkaProducer
from aiokafka.errors import (
    InvalidProducerIdMapping,
    InvalidTimestampError,
    InvalidTxnState,
    MessageSizeTooLargeError,
    OutOfOrderSequenceNumber,
    ProducerFenced,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)

from ringfence_kafka.aiokafka_patches.producer_internals import partitions_of
from ringfence_kafka.errors import TopicError
from ringfence_kafka.protocol import wire_names

METADATA_TRIES: Final = 5
METADATA_AGAIN_S: Final = 0.1

Builder = Any
"""aiokafka's BatchBuilder: ``append(timestamp=, key=, value=, headers=)`` returns None when it is full."""
NewBuilder = Callable[[], Builder]


OF_TOPICS: Final = (InvalidTimestampError, MessageSizeTooLargeError)
"""Refusals with a remedy in the topic's settings."""
_OF_PRODUCERS: Final = (InvalidProducerIdMapping, InvalidTxnState, OutOfOrderSequenceNumber, ProducerFenced)
"""Refusals of a producer, which do not depend on the topic."""


class RefusedError(TopicError):
    """Topics refuse a record batch with an error of :data:`OF_TOPICS`."""

    def __init__(self, text: str, *, too_large: bool) -> None:
        """Create the error. ``too_large``: the reason is the size."""
        super().__init__(text)
        self.too_large = too_large


class FencedError(Exception):
    """Another process initialised the transactional ID later, or the broker ended this producer's transaction."""


class BatchForm(NamedTuple):
    """Size limit and compression of a producer's record batches."""

    bytes_max: int
    """Size limit in bytes. A larger record fits as the only one of its batch."""
    compression: int
    """Number of the codec in a record batch's attributes; 0 = none."""


class Outgoing(NamedTuple):
    """Record batch for one partition."""

    topic: str
    partition: int
    builder: Builder
    aged: bool = False
    """Whether all its records have old timestamps. Retention may delete such a batch before its transaction commits, unless a younger
    record precedes it in the log. See :meth:`ringfence_kafka.producer.transactional.TransactionalProducer.prime`."""


_TOPICS: Final = "refusing_topics"


def name_topics(error: Exception, topics: Iterable[str]) -> None:
    """Store in an error which topics refused a batch with it."""
    vars(error)[_TOPICS] = frozenset(topics)


def refusing_topics(error: BaseException) -> frozenset[str]:
    """Return the topics that refused a batch with this error; empty if they are not known or no topic refused."""
    if isinstance(error, _OF_PRODUCERS):
        return frozenset()
    if isinstance(error, TopicAuthorizationFailedError) and error.args and isinstance(error.args[0], set):
        return frozenset(error.args[0])  # aiokafka then fails all batches of the transaction
    topics: frozenset[str] = vars(error).get(_TOPICS, frozenset())
    return topics


def refusal(error: Exception, topics: Collection[str], batches: Sequence[Outgoing]) -> RefusedError:
    """Return the error for topics that refuse one of the batches with an error of :data:`OF_TOPICS`."""
    named = ", ".join(sorted(topics))
    too_large = isinstance(error, MessageSizeTooLargeError)
    if too_large:
        # The next opening applies a smaller limit of an output.
        largest = max(batch.builder.size() for batch in batches if batch.topic in topics)
        text = (
            f"{named} refuses a record batch for its size, of {largest} bytes at most: if this repeats, raise "
            "max.message.bytes there"
        )
    else:
        text = (
            f"{named} refuses a record for its timestamp: set {wire_names.TIMESTAMP_AFTER} and "
            f"{wire_names.TIMESTAMP_BEFORE} there to the values of the input, plus the time for which "
            "messages may wait there; 9223372036854775807 allows everything"
        )
    found = RefusedError(text, too_large=too_large)
    name_topics(found, topics)
    return found


async def require_partition(producer: AIOKafkaProducer, topic: str, partition: int, *, wait: bool) -> None:
    """Refresh the metadata if they lack the partition, because the topic may have grown. aiokafka itself only asserts.

    ``wait``: leave a topic that is missing in the metadata to aiokafka, which waits for it.

    Raises:
        UnknownTopicOrPartitionError: the partition does not exist.
    """
    for _ in range(METADATA_TRIES):
        if _shows(producer, topic, partition, wait=wait):
            return
        if partitions_of(producer, topic) is None:
            producer.client.add_topic(topic)
        await producer.client.force_metadata_update()
        if _shows(producer, topic, partition, wait=wait):
            return
        # A new topic appears a moment later, and the awaited refresh may have started before this request.
        await asyncio.sleep(METADATA_AGAIN_S)
    error = UnknownTopicOrPartitionError(f"{topic}/{partition}")
    name_topics(error, [topic])
    raise error


def _shows(producer: AIOKafkaProducer, topic: str, partition: int, *, wait: bool) -> bool:
    known = partitions_of(producer, topic)
    return wait if known is None else partition in known


async def wait_for_all(awaitables: Sequence[Any]) -> list[Any]:
    """Wait for all, even if one fails, so that every failure is retrieved; then raise the first."""
    results = await asyncio.gather(*awaitables, return_exceptions=True)
    error = next((result for result in results if isinstance(result, BaseException)), None)
    if error is None:
        return results
    try:
        raise error
    finally:
        # An error that its own traceback refers to keeps everything there alive, batches too, until the garbage collector runs.
        del results, error, awaitables
