"""Compresses record batches only if that makes them smaller.

Incompressible data grows with any codec: a batch that just fits its topic would be refused at every attempt.
"""

import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

from aiokafka import AIOKafkaProducer, codec
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.record.util import calc_crc32c

from ringfence_kafka.protocol.record_batch import (
    ATTRIBUTES_AT,
    BATCH_HEADER_BYTES,
    CRC_AT,
    codec_of,
    count_of,
    uncompressed,
)

_DECODERS: Final[Mapping[int, Callable[[bytes], bytes]]] = {
    1: codec.gzip_decode, 2: codec.snappy_decode, 3: codec.lz4_decode, 4: codec.zstd_decode,
}  # fmt: skip


class CompressedBatch(BatchBuilder):  # type: ignore[misc]
    """Batch builder that sends the smaller form. aiokafka's own always sends the compressed form."""

    _buffer: bytearray | None

    def _build(self) -> bytearray:
        if self._buffer is None:
            size = self.size()
            built: bytearray = super()._build()
            self._buffer = built if len(built) < size else plain(built)
        return self._buffer


def plain(batch: bytearray) -> bytearray:
    """Return the uncompressed form of a batch."""
    header, compressed = bytes(batch[:BATCH_HEADER_BYTES]), bytes(batch[BATCH_HEADER_BYTES:])
    found = bytearray(uncompressed(header, _DECODERS[codec_of(header, 0)](compressed), count_of(header)))
    struct.pack_into(">I", found, CRC_AT, calc_crc32c(bytes(found[ATTRIBUTES_AT:])))
    return found


def builder_of(producer: AIOKafkaProducer) -> Any:
    """Return an empty record batch with a producer's size limit and codec. A larger record fits as its only one."""
    batch = producer.create_batch()
    if producer._message_accumulator._compression_type:
        batch.__class__ = CompressedBatch
    return batch
