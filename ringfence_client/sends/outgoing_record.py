"""A record that waits in an outbox, with its place."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from ringfence_client.handlers.effects import Headers
from ringfence_kafka.producer.transactional import NewBuilder, Outgoing

RECORD_BYTES: Final = 100
"""Upper bound of a batch's overhead beside key, value and headers of its record, in bytes."""


class OutgoingRecord(NamedTuple):
    """A record and its target partition."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int | None
    bytes: int
    """Approximate size as a batch of its own."""
    batch_bytes_max: int
    """Size limit of one record batch of the topic, in bytes."""


def batches_of(records: Iterable[OutgoingRecord], new: NewBuilder) -> list[Outgoing]:
    """Return as few record batches as possible. The records of each partition stay in order."""
    filled: dict[tuple[str, int], Outgoing] = {}
    found: list[Outgoing] = []
    for record in records:
        place = record.topic, record.partition
        batch = filled.get(place)
        if batch is not None:
            builder = batch.builder
            if (
                builder.size() + record.bytes <= record.batch_bytes_max
                and builder.append(
                    timestamp=record.timestamp, key=record.key, value=record.value, headers=record.headers
                )
                is not None
            ):
                continue
        batch = filled[place] = Outgoing(*place, new())
        found.append(batch)
        batch.builder.append(
            timestamp=record.timestamp, key=record.key, value=record.value, headers=record.headers
        )
    return found
