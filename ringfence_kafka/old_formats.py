"""Records of before Kafka 0.11, formats 0 and 1, read as those of today. Logs that began then hold them for as long as retention lets them.

Where a fetch begins with such, aiokafka takes all of it for the format of its first message: of a compressed message of format 1 behind one of format
0 it passes over what is in it, in silence; at a record batch of today it stops.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from aiokafka.consumer import fetcher
from aiokafka.consumer.fetcher import PartitionRecords

from ringfence_kafka.batch_parts import Oversized, Parse, PartedRecords
from ringfence_kafka.record_batch import FORMAT, FORMAT_AT, LOG_OVERHEAD, batch_end
from ringfence_kafka.wire import NO_TIMESTAMP


class OldRecords:
    """What a fetch brought that begins with an old format: each message, or record batch, by its own."""

    leniently: Parse | None = None
    oversized: Oversized | None = None

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._at = 0
        self._reading: PartedRecords | None = None

    def size_in_bytes(self) -> int:
        """Bytes of memory: of the fetch, and of what is decompressed of it."""
        reading = self._reading
        return len(self.data) + (0 if reading is None else reading.size_in_bytes() - len(reading.data))

    def _end(self) -> int:
        return batch_end(self.data, self._at)

    def has_next(self) -> bool:
        """Whether one is left, and is whole: brokers cut off the last."""
        return self._at + LOG_OVERHEAD <= len(self.data) and self._end() <= len(self.data)

    def next_batch(self) -> Any:
        """That one.

        Raises:
            CorruptRecordException: it cannot be read.
        """
        begin, self._at = self._at, self._end()
        self._reading = PartedRecords(self.data[begin : self._at])
        self._reading.leniently, self._reading.oversized = self.leniently, self.oversized
        return self._reading.next_batch()


def begins_old(data: bytes) -> bool:
    """Whether a fetch begins with a message of an old format."""
    return len(data) > FORMAT_AT and data[FORMAT_AT] < FORMAT


def _memory_records(data: bytes) -> Any:
    return OldRecords(data) if begins_old(data) else PartedRecords(data)


_made: Final[Callable[..., Any]] = PartitionRecords._consumer_record  # noqa: SLF001


def _consumer_record(*given: Any) -> Any:
    """A record without a timestamp has -1, as Kafka says it: aiokafka says None of an old one, and whoever reckons with that stops."""
    made = _made(*given)
    return made if made.timestamp is not None else replace(made, timestamp=NO_TIMESTAMP)


def install() -> None:
    """Have the consumers of this process read so; aiokafka has no other way in than its names."""
    PartitionRecords._consumer_record = _consumer_record  # noqa: SLF001
    fetcher.MemoryRecords = _memory_records
