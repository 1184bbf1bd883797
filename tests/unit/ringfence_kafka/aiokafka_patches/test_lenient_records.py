"""A fetch with malformed records is read as one without, whatever lies around them."""

import random
import struct
from collections.abc import Callable
from typing import Any, Final, Literal

import pytest
from aiokafka import TopicPartition
from aiokafka.consumer import fetcher
from aiokafka.consumer.fetcher import READ_COMMITTED, PartitionRecords
from aiokafka.errors import CorruptRecordException

from ringfence_kafka import aiokafka_patches
from ringfence_kafka.aiokafka_patches import batch_parts
from ringfence_kafka.aiokafka_patches.batch_parts import PartedRecords
from ringfence_kafka.aiokafka_patches.lenient_records import LenientRecords
from ringfence_kafka.protocol.record_batch import OldFormatError
from tests.support.records.stored_batches import Stored, marker, stored
from tests.support.records.unusual import GZIP, Latin1, Old, Raw, batch, old

TP: Final = TopicPartition("t", 0)
NAMES: Final = (
    (Latin1("größe"), "gr\\xf6\\xdfe"),
    (Latin1("é"), "\\xe9"),
    ("größe", "größe"),
    ("\\xe9", "\\xe9"),
)
"""As they are written → as they are read. The last two are UTF-8."""


def _reader(data: bytes, begin: int = 0, aborted: list[tuple[int, int]] | None = None) -> LenientRecords:
    return LenientRecords(TP, PartedRecords(data), aborted or [], begin, None, None, True, READ_COMMITTED)


class Log:
    """A stretch of a partition as a broker stores it, and what of it is to be read."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.batches: list[tuple[int, bytes]] = []
        """Offset behind it, bytes."""
        self.end = 0
        self.aborted: list[tuple[int, int, int]] = []
        """Producer, first offset, offset of the marker."""
        self.expected: dict[int, list[str]] = {}
        """Offset → header names."""
        self.malformed: set[int] = set()
        began: dict[int, int] = {}
        """Producers with an open transaction that will be aborted → its first offset."""
        self._records(-1, lost=False)
        for _ in range(self.random.randint(0, 30)):
            producer = self.random.choice([-1, 1, 2, 3])
            if producer in began and self.random.random() < 0.5:
                self._abort(producer, began.pop(producer))
            elif producer in {1, 2}:
                began.setdefault(producer, self.end)
                self._records(producer, lost=True)
            else:
                self._records(producer, lost=False)
            if producer == 3:
                self._put(marker(self.end, producer, abort=False), 1)
        for producer, first in began.items():
            self._abort(producer, first)

    def _abort(self, producer: int, first: int) -> None:
        self.aborted.append((producer, first, self.end))
        self._put(marker(self.end, producer, abort=True), 1)

    def _records(self, producer: int, *, lost: bool) -> None:
        written = [
            self.random.choices(NAMES, [1, 1, 8, 8], k=self.random.randint(0, 2))
            for _ in range(self.random.randint(1, 6))
        ]
        for offset, names in enumerate(written, self.end):
            if not lost:
                self.expected[offset] = [read for _, read in names]
                if any(isinstance(name, Latin1) for name, _ in names):
                    self.malformed.add(offset)
        records = [Raw(b"v", [(name, b"") for name, _ in names], 1) for names in written]
        data = bytes(batch(records, self.random.choice([0, GZIP]), producer >= 0, producer).build())
        self._put(struct.pack(">q", self.end) + data[8:], len(records))

    def _put(self, data: bytes, count: int) -> None:
        self.end += count
        self.batches.append((self.end, data))

    def fetch(self, begin: int) -> LenientRecords:
        """Return a broker's answer: batches from the one with ``begin`` on, and the aborted transactions of that range."""
        data = b"".join(data for end, data in self.batches if end > begin)
        aborted = [(producer, first) for producer, first, end in self.aborted if end >= begin]
        return _reader(data, begin, aborted)


@pytest.mark.parametrize("seed", range(200))
def test_nothing_is_lost_or_comes_twice(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """All committed records come once and in order from any offset; exactly those with malformed names are marked."""
    monkeypatch.setattr(batch_parts, "PART_BYTES", 10 * seed)
    log = Log(seed)
    begin = log.random.randint(0, log.end - 1)
    records = log.fetch(begin)
    got = [(record.offset, [name for name, _ in record.headers]) for record in records]

    assert got == [item for item in log.expected.items() if item[0] >= begin]
    assert {n for n in records.malformed if n >= begin} == {n for n in log.malformed if n >= begin}
    assert records.next_fetch_offset == log.end


def test_name_in_a_reason() -> None:
    """The reason fits into a header of the quarantine's record, and stands on one line of the log, whatever the name is."""
    names = [Latin1("é" * 200_000), Latin1("é\n2026 ERROR forged")]
    data = bytes(batch([Raw(b"v", [(name, b"")], 1) for name in names]).build())
    records = _reader(data)
    read = [name for record in records for name, _ in record.headers]

    assert read == ["\\xe9" * 200_000, "\\xe9\n2026 ERROR forged"]
    assert len(records.malformed[0]) < 200
    assert records.malformed[1] == "the header name \\xe9\\n2026 ERROR forged is not UTF-8"


def test_before_what_is_damaged() -> None:
    """Readable records come first; a fetch that begins with the damaged batch reports the damage."""
    good, bad = (bytes(batch([Raw(b"v", timestamp=1)]).build()) for _ in range(2))
    data = good + struct.pack(">q", 1) + bad[8:-1] + b"\x7f"
    first, second = _reader(data), _reader(data[len(good) :], 1)

    assert [item.offset for item in first] == [0]
    assert first.next_fetch_offset == 1
    with pytest.raises(CorruptRecordException, match="Invalid CRC"):
        next(second)


def _everywhere(data: bytes) -> Any:
    """Read as any process does that installs the patches."""
    aiokafka_patches.install()
    return PartitionRecords(TP, fetcher.MemoryRecords(data), [], 0, None, None, True, READ_COMMITTED)


READERS: Final = pytest.mark.parametrize("read", [_everywhere, _reader])


@READERS
@pytest.mark.parametrize("codec", [0, GZIP])
@pytest.mark.parametrize("magic", [0, 1])
def test_an_old_format_is_refused(magic: Literal[0, 1], codec: int, read: Callable[[bytes], Any]) -> None:
    """The error names offset, format and the way out; the position stays."""
    data = old([Old(4, value=b"a"), Old(5, value=b"b")], magic, codec) + stored([Stored(6)])
    records = read(data)
    with pytest.raises(OldFormatError) as caught:
        next(records)

    assert str(caught.value).startswith(f"the message at offset {5 if codec else 4} has format {magic}, ")
    assert "kafka-delete-records.sh" in str(caught.value)
    assert records.next_fetch_offset == 0


def test_records_before_it_are_read() -> None:
    records = _reader(stored([Stored(0), Stored(1)]) + old([Old(2)], 1))

    assert [record.offset for record in records] == [0, 1]
    assert records.next_fetch_offset == 2


@READERS
def test_an_old_message_that_is_cut_off(read: Callable[[bytes], Any]) -> None:
    """Brokers cut off the last message of a fetch: it comes whole with the next fetch, and is refused then."""
    assert [item.offset for item in read(stored([Stored(0)]) + old([Old(1)], 1)[:-1])] == [0]
