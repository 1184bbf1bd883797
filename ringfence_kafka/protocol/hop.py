"""Step of one record over a bridge, in a header. Pure.

The form is ``<bridge>/<source topic's ID>/<partition>/<offset>``, with Kafka's topic ID as its tools print it. A source topic that was
created again has another ID.
"""

import functools
import re
from typing import Final, NamedTuple

OFFSET_MAX: Final = 2**63 - 1
"""Largest offset: Kafka's offsets are signed 64-bit numbers. No record has it, because its successor needs an offset too."""
NO_IDS: Final = frozenset({"", "A" * 22})
"""Placeholders for a topic's ID on clusters without topic IDs."""
SOURCES_REMEMBERED: Final = 4_096

_SOURCE: Final = re.compile(rb"([a-zA-Z0-9._-]{1,200})/([a-zA-Z0-9_-]{22})/(0|[1-9][0-9]{0,9})")
_SOURCE_BYTES_MAX: Final = 200 + 1 + 22 + 1 + 10
_DIGITS_MAX: Final = 19
_ZERO: Final = ord("0")


class Source(NamedTuple):
    """Source of a bridge: one partition of one topic ID."""

    bridge: str
    topic_id: str
    """Topic ID, 22 characters."""
    partition: int


class Hop(NamedTuple):
    """One record of a source."""

    source: Source
    offset: int


def as_printed(topic_id: str) -> str:
    """Return a topic's ID as Kafka's tools print it. librdkafka's text has ``/`` and ``+``."""
    return topic_id.replace("+", "-").replace("/", "_").rstrip("=")


def encode(hop: Hop) -> bytes:
    """Return the value of :data:`ringfence_kafka.protocol.wire_names.HEADER_HOP`."""
    return encode_at(encode_source(hop.source), hop.offset)


def encode_at(source: bytes, offset: int) -> bytes:
    """Encode a hop. ``source``: result of :func:`encode_source`, reused for many offsets."""
    return b"%b/%d" % (source, offset)


def decode(value: bytes | None) -> Hop | None:
    """Decode a hop; None = no bridge wrote it."""
    if value is None:
        return None
    place, _, number = value.rpartition(b"/")
    source, offset = decode_source(place), decode_offset(number)
    if source is None or offset is None or offset == OFFSET_MAX:
        return None
    return Hop(source, offset)


def encode_source(source: Source) -> bytes:
    """Return the start of a hop's bytes."""
    return "/".join((source.bridge, source.topic_id, str(source.partition))).encode()


def decode_source(value: bytes) -> Source | None:
    """Decode a source of :func:`encode_source`; None = not valid."""
    return None if len(value) > _SOURCE_BYTES_MAX else _decode_source(value)


@functools.lru_cache(
    SOURCES_REMEMBERED
)  # thousands of hops in a row have one of a few sources, and the cached values are short
def _decode_source(value: bytes) -> Source | None:
    found = _SOURCE.fullmatch(value)
    if found is None or (partition := int(found[3])) >= 2**31:
        return None
    return Source(found[1].decode(), found[2].decode(), partition)


def decode_offset(value: bytes | None) -> int | None:
    """Return the value of :data:`ringfence_kafka.protocol.wire_names.HEADER_CONFIRMED`; None = no bridge wrote it."""
    return None if value is None or len(value) > _DIGITS_MAX else _decode_offset(value)


@functools.lru_cache(SOURCES_REMEMBERED)  # thousands of records in a row confirm the same offset
def _decode_offset(value: bytes) -> int | None:
    if not value.isdigit() or (value[0] == _ZERO and len(value) > 1):
        return None
    number = int(value)
    return number if number <= OFFSET_MAX else None
