"""Record batch that the native core has filled. It replaces aiokafka's batch builder."""

import time
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from aiokafka import codec
from aiokafka.record.util import encode_varint

import native
from ringfence_kafka.producer.transactional import BatchForm
from ringfence_kafka.protocol.record_batch import BATCH_HEADER_BYTES

_TRANSACTIONAL: Final = 0x10
_NULL: Final = b"\x01"
_ENCODERS: Final[Mapping[int, Callable[[bytes], bytes]]] = {
    1: codec.gzip_encode, 2: codec.snappy_encode, 3: codec.lz4_encode, 4: codec.zstd_encode,
}  # fmt: skip


class Filled(NamedTuple):
    """Content of a batch, as the native core returns it."""

    partition: int
    buffer: bytearray
    """The records, after space for the batch header."""
    record_count: int
    first_timestamp: int
    max_timestamp: int


class RawBatch:
    """The part of ``BatchBuilder`` that aiokafka's producer uses. :meth:`append` adds a record without headers."""

    def __init__(self, form: BatchForm, filled: Filled | None = None) -> None:
        """Create a batch, with the core's content if there is any."""
        _, self._buffer, self._count, self._first, self._max = filled or Filled(
            0, bytearray(BATCH_HEADER_BYTES), 0, 0, 0
        )
        self._form = form
        self._state = (-1, -1, 0)
        self._closed = self._built = False

    @property
    def max_timestamp(self) -> int:
        """Largest timestamp of the records, in ms."""
        return self._max

    def append(
        self, *, timestamp: int | None, key: bytes | None, value: bytes | None, headers: Any = ()
    ) -> int | None:
        """Append a record. Return the number of records, or None if it does not fit."""
        if headers:
            raise NotImplementedError("the core writes records with headers")
        if self._closed:
            return None
        timestamp = int(time.time() * 1000) if timestamp is None else timestamp
        if not self._count:
            self._first = self._max = timestamp
        body = bytearray(1)
        encode_varint(timestamp - self._first, body.append)
        encode_varint(self._count, body.append)
        for item in (key, value):
            if item is None:
                body += _NULL
            else:
                encode_varint(len(item), body.append)
                body += item
        encode_varint(0, body.append)
        length = bytearray()
        encode_varint(len(body), length.append)
        if self._count and len(self._buffer) + len(length) + len(body) >= self._form.bytes_max:
            self.close()
            return None
        self._buffer += length
        self._buffer += body
        self._max = max(self._max, timestamp)
        self._count += 1
        return self._count

    def close(self) -> None:
        """Accept no more records."""
        self._closed = True

    def closed(self) -> bool:
        """Return whether the batch accepts no more records."""
        return self._closed

    def size(self) -> int:
        """Return the size of the batch with its header, in bytes."""
        return len(self._buffer)

    def record_count(self) -> int:
        """Return the number of records."""
        return self._count

    def _set_producer_state(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        self._state = (producer_id, producer_epoch, base_sequence)

    def _build(self) -> bytearray:
        """Return the complete batch. aiokafka calls this at each send."""
        self.close()
        if not self._built:
            self._built = True
            compression = self._form.compression
            if compression:
                encoded = _ENCODERS[compression](bytes(self._buffer[BATCH_HEADER_BYTES:]))
                if BATCH_HEADER_BYTES + len(encoded) < len(self._buffer):
                    self._buffer[BATCH_HEADER_BYTES:] = encoded
                else:
                    compression = 0
            assert native.core is not None  # noqa: S101 - it has filled this
            attributes = _TRANSACTIONAL | compression
            native.core.seal(self._buffer, self._count, self._first, self._max, attributes, *self._state)
        return self._buffer
