"""What a handler could not do goes to ``<address>.dlq``, in the transaction that counts it as finished."""

import json
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from aiokafka.partitioner import murmur2

from conf import wire
from tables.producer import Builder, Outgoing, TransactionalProducer

REASON_BYTES_MAX: Final = 2_000
"""A reason may hold a whole stack; its beginning says enough."""


class DeadLetter(NamedTuple):
    """A message that was given up."""

    record: Any
    """As aiokafka read it from the accepted topic."""
    reason: str
    attempts: int


class DeadLetters:
    """Those of one consumer group at one address."""

    def __init__(self, topic: str, partitions: int, message_bytes_max: int, group: str) -> None:
        self._topic = topic
        self._partitions = partitions
        self._bytes_max = message_bytes_max
        self._group = group

    def outgoing(self, letter: DeadLetter, producer: TransactionalProducer) -> Outgoing:
        """The record batch, to the partition where any client's default partitioner would put it.

        Key, value and headers are the message's, and it says why, whose handler, and how often. A value that does not fit
        is replaced by its size and digest, as in quarantine; where the headers alone do not fit, they are left out, and
        so is the key.
        """
        record = letter.record
        reason = letter.reason.encode()[:REASON_BYTES_MAX].decode(errors="ignore").encode()
        own: list[tuple[str, bytes | None]] = [
            (wire.HEADER_REASON, reason),
            (wire.HEADER_CONSUMER_GROUP, self._group.encode()),
            (wire.HEADER_ATTEMPTS, b"%d" % letter.attempts),
        ]
        partition = record.partition if record.key is None else murmur2(record.key) & 0x7FFFFFFF
        headers = [*record.headers, *own]
        digest = _digest(record.value or b"")
        for key, value, carried in (
            (record.key, record.value, headers),
            (record.key, digest, headers),
            (record.key, digest, own),
            (None, digest, own),
        ):
            builder = _built(producer, key, value, carried)
            if builder.size() <= self._bytes_max:
                break
        return Outgoing(self._topic, partition % self._partitions, builder)


def _built(
    producer: TransactionalProducer,
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes | None]],
) -> Builder:
    builder = producer.builder()
    builder.append(timestamp=None, key=key, value=value, headers=headers)
    return builder


def _digest(value: bytes) -> bytes:
    return json.dumps(
        {"bytes": len(value), "blake2b_256": blake2b(value, digest_size=32).hexdigest()}
    ).encode()
