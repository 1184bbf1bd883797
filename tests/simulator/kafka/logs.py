"""Partitions as logs: records, markers, state of producers, high watermark and last stable offset, retention, compaction."""

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
"""Batches of a producer that a log recognises when they are sent again, as in Kafka."""


class Stored(NamedTuple):
    """A record as it stands in a log, and as consumers read it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    part: "Part | None"


class Fate(Enum):
    """State of a transaction in one partition: markers are written one by one."""

    OPEN = auto()
    COMMITTED = auto()
    ABORTED = auto()


class Part:
    """Writes of one transaction to one partition."""

    __slots__ = ("by", "fate", "first", "number", "owner")

    def __init__(self, first: int, owner: tuple[str, int] | None, number: int, by: object = None) -> None:
        self.first = first
        self.fate = Fate.OPEN
        self.owner = owner
        self.number = number
        self.by = by
        """The producer that wrote it: one life of one holder, over all its epochs."""

    def __repr__(self) -> str:
        return f"{self.fate.name.lower()} {self.owner or ''}"


class Batch(NamedTuple):
    """A batch that a producer has written."""

    sequence: int
    records: int
    base: int


class Known:
    """State of one producer in a log."""

    __slots__ = ("batches", "epoch", "next", "part")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.next = 0
        self.part: Part | None = None
        self.batches: deque[Batch] = deque(maxlen=REMEMBERED)

    def begin(self, epoch: int) -> None:
        self.epoch, self.next = epoch, 0
        self.batches.clear()


class Fetched(NamedTuple):
    """Committed records, and the offset up to which the log was read."""

    records: list[Stored]
    end: int


class Log:
    """Log of one partition."""

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.start = 0
        self.end = 0
        self.records: list[Stored] = []
        self.made_at = 0.0
        self._open: list[Part] = []
        self.producers: dict[str, Known] = {}
        self.asked: dict[str, tuple[int, int]] = {}
        """By transactional ID, while none of its transactions is open here: epoch and lowest sequence of the attempted writes."""
        self.moved: Callable[[], None] = lambda: None
        """Called when readers of committed data may get further."""

    @property
    def stable(self) -> int:
        return self._open[0].first if self._open else self.end  # in the order of their beginning

    def append(
        self, records: Iterable[tuple[int, bytes | None, bytes | None, Headers]], part: Part | None = None
    ) -> int:
        base = self.end
        for number, record in enumerate(records, base):
            self.records.append(Stored(number, *record, part))
            self.end = number + 1
        if part is None:
            self.moved()
        return base

    def begin(self, owner: tuple[str, int] | None, number: int = 0, by: object = None) -> Part:
        part = Part(self.end, owner, number, by)
        self._open.append(part)
        return part

    def mark(self, part: Part, fate: Fate) -> None:
        part.fate = fate
        self._open.remove(part)
        self.end += 1
        self.moved()

    def end_of(self, name: str, epoch: int, fate: Fate) -> None:
        """Write the marker of this transactional ID, whether it wrote here or not. Its epoch becomes the current one here."""
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
        """Whether only markers and aborted records stand here from this offset on."""
        if self._open:
            return False
        for record in reversed(self.records):
            if record.offset < (offset or 0):
                break
            if record.part is None or record.part.fate is Fate.COMMITTED:
                return False
        return True

    def committed(self) -> Sequence[Stored]:
        return self.read(self.start, self.end).records

    def delete_below(self, offset: int) -> None:
        self.start = max(self.start, min(offset, self.stable))
        del self.records[: bisect_left(self.records, self.start, key=_OFFSET)]

    def lose_tail(self, offset: int) -> list[Stored]:
        """Lose the tail, as after the election of a replica that was behind; return the lost committed records. Not in a transaction."""
        if self._open or offset >= self.end:
            return []
        gone = [*self.read(offset, self.end).records]
        del self.records[bisect_left(self.records, offset, key=_OFFSET) :]
        self.end = offset
        return gone

    def compact(self) -> None:
        """Compact as the cleaner may at any time: keep each key's last committed record below the last stable offset, and tombstones."""
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
