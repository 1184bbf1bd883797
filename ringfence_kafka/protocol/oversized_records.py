"""Replaces a record that is too large to be read whole with sizes and digests. No I/O.

Brokers compare the size of a compressed batch with ``max.message.bytes``, so a record of ten kilobytes on the wire may need two gigabytes
of memory.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from aiokafka.errors import CorruptRecordException

from ringfence_kafka.protocol import value_digest
from ringfence_kafka.protocol.varints import decode, encode_signed, signed

RECORD_BYTES_MAX: Final = 32 * 2**20
"""Larger records of compressed batches are replaced, unless a process allows larger ones, in bytes."""
KEPT_BYTES: Final = 2**20
"""Keys and values up to this size are kept, as are headers up to this total size, in bytes."""
_PIECE_BYTES: Final = 2**18
_VARINT_BYTES_MAX: Final = 10


class Replaced(NamedTuple):
    """Replacement of an oversized record."""

    data: bytes
    """The record in the encoding of a batch."""
    offset_delta: int
    reason: str
    """Why the record is not read whole, as a reason for quarantine."""


def replace(pull: Callable[[int], bytes], limit: int) -> Replaced:
    """Read a record piece by piece, and return its replacement.

    ``pull`` returns the given number of next bytes of the batch, or fewer at its end. Records of up to ``limit`` bytes are read whole.

    Raises:
        CorruptRecordException: the bytes are not a record.
    """
    reader = _Reader(pull)
    length = reader.varint()
    begin = reader.taken
    attributes, timestamp, offset = reader.take(1), reader.varint(), reader.varint()
    digested: list[str] = []
    fields = b""
    for name in ("key", "value"):
        size = reader.varint()
        if size > KEPT_BYTES:
            digested.append(name)
            content = reader.digest(size)
            fields += encode_signed(len(content)) + content
        else:
            fields += encode_signed(size) + (reader.take(size) if size > 0 else b"")
    left = length - (reader.taken - begin)
    if left < 0:
        raise CorruptRecordException("the fields of a record have more bytes than the record")
    if left > KEPT_BYTES:
        digested.append("headers")
        reader.digest(left)
        fields += encode_signed(0)
    else:
        fields += reader.take(left)
    body = attributes + encode_signed(timestamp) + encode_signed(offset) + fields
    where = f"size and digest stand for its {' and its '.join(digested)}"
    return Replaced(
        encode_signed(len(body)) + body,
        offset,
        f"it has {length:,} bytes, and a record of more than {limit:,} bytes is not read completely: {where}",
    )


class _Reader:
    def __init__(self, pull: Callable[[int], bytes]) -> None:
        self._pull = pull
        self.taken = 0

    def take(self, size: int) -> bytes:
        found = self._pull(size)
        if len(found) != size:
            raise CorruptRecordException("the batch ends within a record")
        self.taken += size
        return found

    def varint(self) -> int:
        data = self.take(1)
        while data[-1] >= 0x80:
            if len(data) >= _VARINT_BYTES_MAX:
                raise CorruptRecordException("a number of a record has no end")
            data += self.take(1)
        return signed(decode(data, 0)[0])

    def digest(self, size: int) -> bytes:
        found, left = value_digest.new(), size
        while left:
            piece = self.take(min(left, _PIECE_BYTES))
            found.update(piece)
            left -= len(piece)
        return value_digest.placeholder(size, found)
