"""Record batches of a transaction, their partitions, and the errors for refusals."""

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
"""Refusals whose way out is in a topic's settings."""
_OF_PRODUCERS: Final = (InvalidProducerIdMapping, InvalidTxnState, OutOfOrderSequenceNumber, ProducerFenced)
"""Refusals of a producer: any topic would answer so."""


class RefusedError(TopicError):
    """Topics refuse a record batch for one of :data:`OF_TOPICS`."""

    def __init__(self, text: str, *, too_large: bool) -> None:
        """``too_large``: for its size."""
        super().__init__(text)
        self.too_large = too_large


class FencedError(Exception):
    """Somebody initialised the transactional ID after us, or the broker ended our transaction."""


class BatchForm(NamedTuple):
    """Size limit and compression of a producer's record batches."""

    bytes_max: int
    """One larger record fits alone."""
    compression: int
    """By its number in a record batch's attributes; 0 = none."""


class Outgoing(NamedTuple):
    """A record batch on its way to one partition."""

    topic: str
    partition: int
    builder: Builder
    aged: bool = False
    """All its records carry timestamps of long ago. Retention may delete it as soon as it is written, before its transaction is committed,
    unless a younger record stands before it in the log. See
    :meth:`ringfence_kafka.producer.transactional.TransactionalProducer.prime`."""


_TOPICS: Final = "refusing_topics"


def name_topics(error: Exception, topics: Iterable[str]) -> None:
    """Note on an error which topics refused a batch with it."""
    vars(error)[_TOPICS] = frozenset(topics)


def refusing_topics(error: BaseException) -> frozenset[str]:
    """Return the topics that refused a batch with this error; empty = that is not known, or no topic refused it."""
    if isinstance(error, _OF_PRODUCERS):
        return frozenset()
    if isinstance(error, TopicAuthorizationFailedError) and error.args and isinstance(error.args[0], set):
        return frozenset(error.args[0])  # aiokafka fails all batches of the transaction then
    topics: frozenset[str] = vars(error).get(_TOPICS, frozenset())
    return topics


def refusal(error: Exception, topics: Collection[str], batches: Sequence[Outgoing]) -> RefusedError:
    """Return what is said where these topics refuse a batch of these for one of :data:`OF_TOPICS`."""
    found = RefusedError(
        _refusal(error, topics, batches), too_large=isinstance(error, MessageSizeTooLargeError)
    )
    name_topics(found, topics)
    return found


def _refusal(error: Exception, topics: Collection[str], batches: Sequence[Outgoing]) -> str:
    named = ", ".join(sorted(topics))
    if isinstance(error, InvalidTimestampError):
        return (
            f"{named} refuses a record for its timestamp: set {wire_names.TIMESTAMP_AFTER} and "
            f"{wire_names.TIMESTAMP_BEFORE} there to the values of the input, plus the time for which "
            "messages may wait there; 9223372036854775807 allows everything"
        )
    # An output that was made smaller is gone by at the next opening.
    largest = max(batch.builder.size() for batch in batches if batch.topic in topics)
    return (
        f"{named} refuses a record batch for its size, of {largest} bytes at most: if this repeats, raise "
        "max.message.bytes there"
    )


async def require_partition(producer: AIOKafkaProducer, topic: str, partition: int, *, wait: bool) -> None:
    """Ask for metadata where they do not show the partition yet: the topic has got it since. aiokafka itself would only assert.

    ``wait``: leave a topic that they do not show at all to aiokafka, which waits for it.

    Raises:
        UnknownTopicOrPartitionError: it does not exist.
    """
    for _ in range(METADATA_TRIES):
        if _shows(producer, topic, partition, wait=wait):
            return
        if partitions_of(producer, topic) is None:
            producer.client.add_topic(topic)
        await producer.client.force_metadata_update()
        if _shows(producer, topic, partition, wait=wait):
            return
        # A new topic is shown a moment later, and the awaited update may have begun before this request.
        await asyncio.sleep(METADATA_AGAIN_S)
    error = UnknownTopicOrPartitionError(f"{topic}/{partition}")
    name_topics(error, [topic])
    raise error


def _shows(producer: AIOKafkaProducer, topic: str, partition: int, *, wait: bool) -> bool:
    known = partitions_of(producer, topic)
    return wait if known is None else partition in known


async def wait_for_all(awaitables: Sequence[Any]) -> list[Any]:
    """Wait for all, also when one fails, so that no failure goes unseen; then raise the first."""
    results = await asyncio.gather(*awaitables, return_exceptions=True)
    error = next((result for result in results if isinstance(result, BaseException)), None)
    if error is None:
        return results
    try:
        raise error
    finally:
        # An error whose own frames refer to it keeps all that is in them, batches too, until Python looks for such cycles.
        del results, error, awaitables
