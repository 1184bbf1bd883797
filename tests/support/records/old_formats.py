"""Messages as brokers before Kafka 0.11 stored them: none of today's takes such, and logs that began then hold them still."""

import struct
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from aiokafka.record.legacy_records import LegacyRecordBatchBuilder

from ringfence_kafka.protocol.wire_names import NO_TIMESTAMP

_BYTES_MAX: Final = 2**20


class Old(NamedTuple):
    """A record of such a log: it has no headers, and in format 0 no timestamp."""

    offset: int
    timestamp: int = NO_TIMESTAMP
    key: bytes | None = b"group"
    value: bytes | None = b"value"


def old(records: Sequence[Old], magic: Literal[0, 1], codec: int = 0) -> bytes:
    """Their bytes; with a codec within one message, numbered as a broker did: by its last offset, in format 1 from 0 inside."""
    builder = LegacyRecordBatchBuilder(magic=magic, compression_type=codec, batch_size=_BYTES_MAX)
    for number, record in enumerate(records):
        offset = number if codec and magic else record.offset
        assert builder.append(offset, record.timestamp, record.key, record.value) is not None
    data = bytearray(builder.build())
    if codec:
        struct.pack_into(">q", data, 0, records[-1].offset)
    return bytes(data)
