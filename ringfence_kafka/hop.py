"""The step of one record over a bridge, as it stands in a header. Pure.

``<bridge>/<source topic's ID>/<partition>/<offset>``: Kafka's own ID of the topic, as its tools print it, and not the name, so that
a source that was deleted and made again is another one.
"""

import re
from typing import Final, NamedTuple

OFFSET_MAX: Final = 2**63 - 1

_HOP: Final = re.compile(
    rb"([a-zA-Z0-9._-]{1,200})/([a-zA-Z0-9_-]{22})/(0|[1-9][0-9]{0,9})/(0|[1-9][0-9]{0,18})"
)
_NUMBER: Final = re.compile(rb"0|[1-9][0-9]{0,18}")


class Source(NamedTuple):
    """Where a bridge reads: one partition of one topic's life."""

    bridge: str
    topic_id: str
    """22 characters."""
    partition: int


class Hop(NamedTuple):
    """One record of a source."""

    source: Source
    offset: int


def as_printed(topic_id: str) -> str:
    """A topic's ID as Kafka's tools print it, from librdkafka's text of it, which has ``/`` and ``+``."""
    return topic_id.replace("+", "-").replace("/", "_").rstrip("=")


def encode(hop: Hop) -> bytes:
    """The value of :data:`ringfence_kafka.wire.HEADER_HOP`."""
    bridge, topic_id, partition = hop.source
    return f"{bridge}/{topic_id}/{partition}/{hop.offset}".encode()


def decode(value: bytes | None) -> Hop | None:
    """What stands there; None = nothing that a bridge writes."""
    found = None if value is None else _HOP.fullmatch(value)
    if found is None:
        return None
    partition, offset = int(found[3]), int(found[4])
    if partition >= 2**31 or offset > OFFSET_MAX:
        return None
    return Hop(Source(found[1].decode(), found[2].decode(), partition), offset)


def decode_offset(value: bytes | None) -> int | None:
    """The value of :data:`ringfence_kafka.wire.HEADER_CONFIRMED`; None = nothing that a bridge writes."""
    if value is None or _NUMBER.fullmatch(value) is None:
        return None
    number = int(value)
    return number if number <= OFFSET_MAX else None
