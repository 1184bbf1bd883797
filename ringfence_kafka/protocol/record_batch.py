"""Layout of a record batch of format 2, by https://kafka.apache.org/documentation/#recordbatch. Pure."""

import struct
from typing import Final

from aiokafka.errors import CorruptRecordException

from ringfence_kafka.protocol import varints

BATCH_HEADER_BYTES: Final = 61
LOG_OVERHEAD: Final = 12
"""Bytes of base offset and length, which the length does not include."""
CODECS: Final = 0x07
"""Bits of the attributes that contain the codec."""
LENGTH_AT: Final = 8
FORMAT_AT: Final = 16
FORMAT: Final = 2
"""Format of the batch. Kafka before 0.11 wrote lower formats."""
CRC_AT: Final = 17
ATTRIBUTES_AT: Final = 21
"""Start of the bytes that the checksum covers."""
_LENGTH: Final = struct.Struct(">8xi")
_ATTRIBUTES: Final = struct.Struct(">h")
_INT: Final = struct.Struct(">i")
_COUNT_AT: Final = 57
_OFFSETS: Final = struct.Struct(">q15xi")
_VARINT_BITS_MAX: Final = 35


class OldFormatError(CorruptRecordException):  # type: ignore[misc]
    """A fetch reached a message of format 0 or 1, which Kafka before 0.11 wrote."""

    def __init__(self, data: bytes | memoryview, at: int) -> None:
        """Describe the message that begins at ``at``."""
        super().__init__(
            f"the message at offset {base_offset(data[at:])} has format {data[at + FORMAT_AT]}, which Kafka "
            "before 0.11 wrote. Ringfence does not read it, and skips no message. Use Kafka's own tools: "
            "copy what is still needed (kafka-console-consumer.sh reads such messages) and send it again, "
            "then delete the log up to the first message of a later Kafka (kafka-delete-records.sh)"
        )

    def __str__(self) -> str:
        """Return the text without aiokafka's error code."""
        return str(self.args[0])


def require_format(data: bytes | memoryview, at: int) -> None:
    """Check the format of the batch at position ``at``.

    Raises:
        OldFormatError: Kafka before 0.11 wrote it.
    """
    if len(data) > at + FORMAT_AT and data[at + FORMAT_AT] < FORMAT:
        raise OldFormatError(data, at)


def batch_end(data: bytes | memoryview, at: int) -> int:
    """Return the end of the batch at position ``at``."""
    (length,) = _LENGTH.unpack_from(data, at)
    return at + LOG_OVERHEAD + max(0, int(length))


def codec_of(data: bytes | memoryview, at: int) -> int:
    """Return Kafka's codec number of the batch at position ``at``; 0 = not compressed, or an old format."""
    if len(data) - at < BATCH_HEADER_BYTES or data[at + FORMAT_AT] < FORMAT:
        return 0
    return int(_ATTRIBUTES.unpack_from(data, at + ATTRIBUTES_AT)[0]) & CODECS


def count_of(header: bytes) -> int:
    """Return the number of records of a batch, from its header."""
    return int(_INT.unpack_from(header, _COUNT_AT)[0])


def base_offset(header: bytes | memoryview) -> int:
    """Return the offset of a batch's first record at the time of writing, from its header."""
    return int(_OFFSETS.unpack_from(header)[0])


def end_offset(header: bytes) -> int:
    """Return the offset after the last one of a batch, from its header."""
    base, last = _OFFSETS.unpack_from(header)
    return int(base) + int(last) + 1


def whole_records(data: bytes, most: int, bytes_max: int) -> tuple[int, int]:
    """Return the end of the last complete record within the limits, and the number of records."""
    at = count = 0
    limit = min(len(data), bytes_max)
    while count < most and at < limit:
        end = record_end(data, at)
        if end > limit:
            break
        at = end
        count += 1
    return at, count


def record_end(data: bytes, at: int = 0) -> int:
    """Return the end of the record at position ``at``, which may be beyond the data. If its length is cut off, return one more than the data's.

    Raises:
        CorruptRecordException: the length is not valid.
    """
    try:
        number, at = varints.decode(data, at, _VARINT_BITS_MAX)
    except IndexError:
        return len(data) + 1
    except ValueError as error:
        raise CorruptRecordException("a record has no valid length") from error
    length = varints.signed(number)
    if length < 0:
        raise CorruptRecordException("a record has no valid length")
    return at + length


def uncompressed(header: bytes, records: bytes, count: int) -> bytes:
    """Return an uncompressed batch with only these records, and the header of their batch. Its checksum is not valid."""
    made = bytearray(header)
    (attributes,) = _ATTRIBUTES.unpack_from(made, ATTRIBUTES_AT)
    _ATTRIBUTES.pack_into(made, ATTRIBUTES_AT, attributes & ~CODECS)
    _INT.pack_into(made, LENGTH_AT, min(2**31 - 1, BATCH_HEADER_BYTES - LOG_OVERHEAD + len(records)))
    _INT.pack_into(made, _COUNT_AT, count)
    return bytes(made) + records
