"""Partitions as logs: records, markers, what they know of producers, high watermark and last stable offset, retention, compaction."""

import itertools
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from enum import Enum, auto
from operator import attrgetter
from typing import Final, NamedTuple

Headers = tuple[tuple[str, bytes | None], ...]

_OFFSET: Final = attrgetter("offset")
REMEMBERED: Final = 5
"""Batches of a producer that a log knows again when they come once more, as Kafka does."""


class Stored(NamedTuple):
    """A record as it stands in a log; what consumers of it read."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    part: "Part | None"
    """Of which transaction; None = of none."""


class Fate(Enum):
    """Of a transaction, as one partition knows it: markers come one by one."""

    OPEN = auto()
    COMMITTED = auto()
    ABORTED = auto()


class Part:
    """What one transaction has written to one partition."""

    __slots__ = ("by", "fate", "first", "number", "owner")

    def __init__(self, first: int, owner: tuple[str, int] | None, number: int, by: object = None) -> None:
        self.first = first
        self.fate = Fate.OPEN
        self.owner = owner
        """Transactional ID and epoch of the producer."""
        self.number = number
        """Of the transaction, counted for its ID."""
        self.by = by
        """The producer that wrote it: one life of one holder, over all its epochs."""

    def __repr__(self) -> str:
        return f"{self.fate.name.lower()} {self.owner or ''}"


class Batch(NamedTuple):
    """That a producer has written."""

    sequence: int
    """Of its first record."""
    records: int
    base: int
    """The first's offset."""


class Known:
    """What a log knows of a producer."""

    __slots__ = ("batches", "epoch", "next", "part")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.next = 0
        """The sequence of the record that comes next."""
        self.part: Part | None = None
        """Of its transaction, as long as there is no marker."""
        self.batches: deque[Batch] = deque(maxlen=REMEMBERED)
        """The last of this epoch."""

    def begin(self, epoch: int) -> None:
        self.epoch, self.next = epoch, 0
        self.batches.clear()


class Fetched(NamedTuple):
    """Committed records, and up to where they were looked for."""

    records: list[Stored]
    end: int


class Log:
    """One partition."""

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.start = 0
        """The first offset that retention left."""
        self.end = 0
        """The high watermark: what the next record gets."""
        self.records: list[Stored] = []
        """In order of their offsets; markers and what compaction has removed are missing."""
        self.made_at = 0.0
        """When the batch was made that comes next."""
        self._open: list[Part] = []
        self.producers: dict[str, Known] = {}
        """By transactional ID."""
        self.asked: dict[str, tuple[int, int]] = {}
        """By transactional ID, while no transaction of it is open here: epoch and lowest sequence of what was to be written."""
        self.moved: Callable[[], None] = lambda: None
        """Called when readers of committed data may get further."""

    @property
    def stable(self) -> int:
        return self._open[0].first if self._open else self.end  # they are in the order in which they began

    def append(
        self, records: Iterable[tuple[int, bytes | None, bytes | None, Headers]], part: Part | None = None
    ) -> int:
        """Write timestamp, key, value and headers of records; the offset of the first."""
        base = self.end
        for number, record in enumerate(records, base):
            self.records.append(Stored(number, *record, part))
            self.end = number + 1
        if part is None:
            self.moved()
        return base

    def begin(self, owner: tuple[str, int] | None, number: int = 0, by: object = None) -> Part:
        """A transaction is about to write here."""
        part = Part(self.end, owner, number, by)
        self._open.append(part)
        return part

    def mark(self, part: Part, fate: Fate) -> None:
        """Write the marker that ends it."""
        part.fate = fate
        self._open.remove(part)
        self.end += 1
        self.moved()

    def end_of(self, name: str, epoch: int, fate: Fate) -> None:
        """The marker that ends the transaction of this transactional ID, written or not: from now on this is its epoch here."""
        known = self.producers.setdefault(name, Known(epoch))
        part, known.part = known.part, None
        self.asked.pop(name, None)
        if known.epoch != epoch:
            known.begin(epoch)
        if part is None:
            self.end += 1
            self.moved()
        else:
            self.mark(part, fate)

    def read(self, begin: int, end: int) -> Fetched:
        """What is committed of ``begin <= offset < end``, below the last stable offset."""
        end = max(begin, min(end, self.stable))
        low = bisect_left(self.records, begin, key=_OFFSET)
        found = []
        for item in itertools.islice(self.records, low, None):
            if item.offset >= end:
                break
            if item.part is None or item.part.fate is Fate.COMMITTED:
                found.append(item)
        return Fetched(found, end)

    def processed_up_to(self, offset: int | None) -> bool:
        """Whether nothing stands here from this offset on, but for markers and what was aborted."""
        if self._open:
            return False
        for record in reversed(self.records):
            if record.offset < (offset or 0):
                break
            if record.part is None or record.part.fate is Fate.COMMITTED:
                return False
        return True

    def committed(self) -> Sequence[Stored]:
        """All that a reader of committed data finds."""
        return self.read(self.start, self.end).records

    def delete_below(self, offset: int) -> None:
        self.start = max(self.start, min(offset, self.stable))
        del self.records[: bisect_left(self.records, self.start, key=_OFFSET)]

    def lose_tail(self, offset: int) -> list[Stored]:
        """As an election of a replica that was behind does; what is gone, of committed records. Not where a transaction is open."""
        if self._open or offset >= self.end:
            return []
        gone = [*self.read(offset, self.end).records]
        del self.records[bisect_left(self.records, offset, key=_OFFSET) :]
        self.end = offset
        return gone

    def compact(self) -> None:
        """As the cleaner may at any time: of each key the last committed record, below the last stable offset; tombstones are kept."""
        stable = self.stable
        last = {
            record.key: record.offset
            for record in self.records
            if record.offset < stable and (record.part is None or record.part.fate is Fate.COMMITTED)
        }
        self.records = [
            record
            for record in self.records
            if record.offset >= stable or last.get(record.key) == record.offset
        ]
