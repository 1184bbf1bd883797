"""Finds a message's duplicate ID. Pure; what is then said of it, the ring says."""

from collections.abc import Sequence

from agents.batch import Record
from tables.codec import encode_id


def duplicate_id(headers: Sequence[tuple[str, bytes | None]], names: Sequence[str]) -> bytes | None:
    """The encoded duplicate ID of a message, or None.

    The first of ``names`` that is present with a value counts. A repeated header: the last wins, as in Kafka.
    A null value is no ID; an empty value is one. IDs are bytes and compared as bytes.
    """
    for name in names:
        found = None
        for key, value in headers:
            if key == name:
                found = value
        if found is not None:
            return encode_id(found)
    return None


def identify(records: Sequence[Record], names: Sequence[str]) -> list[bytes | None]:
    """The encoded duplicate ID of each record."""
    return [duplicate_id(record.headers, names) for record in records]
