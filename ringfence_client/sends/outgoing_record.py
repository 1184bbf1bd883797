"""A record that waits in an outbox, with its place."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from ringfence_client.handlers.effects import Headers
from ringfence_kafka.producer.transactional import NewBuilder, Outgoing

RECORD_BYTES: Final = 100
"""More than a record batch of one record takes beside key, value and headers."""


class OutgoingRecord(NamedTuple):
    """A record, and the partition that it goes to."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int | None
    bytes: int
    """About, as a record batch of its own."""
    batch_bytes_max: int
    """The largest record batch that the topic takes."""


def batches_of(records: Iterable[OutgoingRecord], new: NewBuilder) -> list[Outgoing]:
    """Return record batches of these records, as few as can be; the records of each partition in order."""
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
