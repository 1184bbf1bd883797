"""Record batches in the form that a broker stores, made for tests."""

import struct
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c

from agents.batch import native_records
from native.records import RawRecords

CONTROL: Final = 0x20
TRANSACTIONAL: Final = 0x10
LOG_APPEND_TIME: Final = 0x08
DELETE_HORIZON: Final = 0x40
HEADER_BYTES: Final = 61


class Stored(NamedTuple):
    """A record of a log."""

    offset: int
    timestamp: int = 1_700_000_000_000
    key: bytes | None = b"group"
    value: bytes | None = b"value"
    headers: Sequence[tuple[str, bytes | None]] = ()


def stored(
    records: Sequence[Stored],
    codec: int = 0,
    producer_id: int = -1,
    more_attributes: int = 0,
    end: int | None = None,
) -> bytes:
    """Return one record batch; ``end``: the next batch's first offset, if that is not the one after the last record."""
    base = records[0].offset
    transactional = int(bool(more_attributes & TRANSACTIONAL))
    builder = DefaultRecordBatchBuilder(2, codec, transactional, producer_id, 0, 0, 2**30)
    for record in records:
        builder.append(record.offset - base, record.timestamp, record.key, record.value, list(record.headers))
    batch = bytearray(builder.build())
    struct.pack_into(">q", batch, 0, base)
    (attributes,) = struct.unpack_from(">h", batch, 21)
    struct.pack_into(">h", batch, 21, attributes | more_attributes)
    if end is not None:
        struct.pack_into(">i", batch, 23, end - 1 - base)
    return checked(batch)


def checked(batch: bytearray) -> bytes:
    struct.pack_into(">I", batch, 17, calc_crc32c(bytes(batch[21:])))
    return bytes(batch)


def marker(offset: int, producer_id: int, *, abort: bool) -> bytes:
    record = Stored(offset, key=struct.pack(">hh", 0, int(not abort)), value=struct.pack(">hi", 0, 0))
    return stored([record], 0, producer_id, CONTROL | TRANSACTIONAL)


def noted(end: bytes) -> bytes:
    """Return a marker with the cleaner's delete horizon, 64 ms after its time, in place of the batch's first time."""
    batch = bytearray(end)
    (attributes,), (time,) = struct.unpack_from(">h", batch, 21), struct.unpack_from(">q", batch, 27)
    struct.pack_into(">h", batch, 21, attributes | DELETE_HORIZON)
    struct.pack_into(">q", batch, 27, time + 64)
    batch[HEADER_BYTES + 2] = 0x7F  # the record's time, from there: -64
    return checked(batch)


def emptied(end: bytes) -> bytes:
    """Return a marker's batch from which the cleaner has removed the record."""
    batch = bytearray(end[:HEADER_BYTES])
    struct.pack_into(">i", batch, 8, HEADER_BYTES - 12)
    struct.pack_into(">i", batch, 57, 0)
    return checked(batch)


def as_stored(record: Any) -> Stored:
    return Stored(record.offset, record.timestamp, record.key, record.value, record.headers)


def raw_records(records: Iterable[Any]) -> RawRecords | None:
    """Return consumed records as the native core has them; None = the core is missing, or cannot read them."""
    those = [as_stored(record) for record in records]
    found = native_records.parse(stored(those), 0, [], lambda _codec, _data: None) if those else None
    return None if found is None else found[0]


def parsed_changelog(records: Sequence[tuple[bytes, bytes | None]]) -> Any:
    found = raw_records(Stored(number, key=key, value=value) for number, (key, value) in enumerate(records))
    assert found is not None
    return found.core
