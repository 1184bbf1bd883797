"""Wraps a record for the forward topic, and restores it at its home. Pure.

A header carries the record's timestamp. As the timestamp of the forwarded record it could make retention delete a backlog too soon.
"""

import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from agents.batch.batch import Record
from ringfence_kafka.protocol import wire_names

MALFORMED: Final = "a forwarded record that does not end in a valid _RF_SOURCE and _RF_TIMESTAMP"
_TIMESTAMP: Final = struct.Struct(">q")

Headers = Sequence[tuple[str, bytes | None]]


@dataclass(slots=True)
class Arrived:
    """Record in its original form, with its offset in the forward topic."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers


def forwarded_headers(record: Record, source: bytes) -> list[tuple[str, bytes | None]]:
    """Return the record's headers, followed by the two of the forward topic. All headers before these two are the producer's."""
    return [
        *record.headers,
        (wire_names.HEADER_SOURCE, source),
        (wire_names.HEADER_TIMESTAMP, _TIMESTAMP.pack(record.timestamp)),
    ]


def arrival(input_topic: str) -> Callable[[Record], tuple[Record, bytes] | None]:
    """Return a function that restores a forwarded record and its source. It returns None if no lane wrote the record."""
    # No more digits than a ring record has room for, in partition and offset.
    valid = re.compile(re.escape(input_topic.encode()) + rb"/[0-9]{1,9}/[0-9]{1,18}").fullmatch
    unpack = _TIMESTAMP.unpack

    def arrive(record: Record) -> tuple[Record, bytes] | None:
        headers: Any = record.headers
        try:
            (first, source), (last, packed) = headers[-2:]
            (timestamp,) = unpack(packed)
            sound = (
                first == wire_names.HEADER_SOURCE and last == wire_names.HEADER_TIMESTAMP and valid(source)
            )
        except (ValueError, TypeError, struct.error):  # too few headers, a null value, or a wrong length
            return None
        if not sound:
            return None
        return Arrived(record.offset, timestamp, record.key, record.value, headers[:-2]), source

    return arrive
