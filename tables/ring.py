"""The ring: a lane's bounded circular cache of the last N duplicate IDs. Pure.

HornetQ 37.2: "a circular fixed size cache. If the cache has a maximum size of n elements, then the n + 1th id
stored will overwrite the 0th element". FIFO by acceptance: a lookup never refreshes, and a known ID is never
added twice. Each accepted ID gets the next sequence number; an ID is live iff

    sequence >= max(floor, head - capacity)

which is decided message by message with the running head, also within a batch. Nothing else decides: slots
and index entries that compaction left behind or that an earlier capacity wrote are dead by that comparison.

Checking and applying are apart because state follows the commit: :meth:`Ring.check` changes nothing, and
:meth:`Ring.apply` is called once the transaction that carries the outcome has been committed.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple, Protocol


class Verdict(IntEnum):
    """What a lane says of a message."""

    ACCEPTED = 0
    DUPLICATE = 1
    UNCHECKED = 2
    """No ID, or detection is off: it passes and burns no slot."""


class Checked(NamedTuple):
    """Outcome of one batch against the ring, not yet part of it."""

    verdicts: list[Verdict]
    """One a message, in order."""
    originals: list[int | None]
    """For each duplicate the sequence of its original, else None."""
    first_sequence: int
    new_ids: list[bytes]
    """IDs to add; the i-th gets ``first_sequence + i``."""


class Index(Protocol):
    """ID → sequence. Two of them: resident in memory, or in RocksDB for very large rings."""

    def lookup(self, ids: Sequence[bytes]) -> list[int | None]:
        """The latest sequence known for each ID, dead or alive; None = unknown."""
        ...

    def add(self, first_sequence: int, ids: Sequence[bytes], low: int) -> None:
        """Note new IDs and forget what lies below ``low``."""
        ...


class ResidentIndex:
    """Index in memory: a dict, and the IDs in order of sequence to find what to forget."""

    def __init__(self, low: int = 0) -> None:
        self._sequences: dict[bytes, int] = {}
        self._order: deque[bytes | None] = deque()
        self._low = low

    @classmethod
    def rebuild(cls, entries: Iterable[tuple[int, bytes]], low: int, head: int) -> "ResidentIndex":
        """From (sequence, ID) pairs in any order; those outside ``low <= sequence < head`` are dead."""
        index = cls(low)
        order: list[bytes | None] = [None] * (head - low)
        for sequence, each in entries:
            if low <= sequence < head:
                order[sequence - low] = each
        index._order.extend(order)
        # In order of sequence, so that of two entries of one ID the later stands.
        index._sequences.update((each, low + i) for i, each in enumerate(order) if each is not None)
        return index

    def lookup(self, ids: Sequence[bytes]) -> list[int | None]:
        """The latest sequence known for each ID."""
        get = self._sequences.get
        return [get(each) for each in ids]

    def add(self, first_sequence: int, ids: Sequence[bytes], low: int) -> None:
        """Note new IDs and forget what lies below ``low``."""
        sequences, order = self._sequences, self._order
        for sequence, each in enumerate(ids, first_sequence):
            sequences[each] = sequence
        order.extend(ids)
        while self._low < low and order:
            oldest = order.popleft()
            # An ID that was evicted and accepted again is known under its newer sequence: keep that.
            if oldest is not None and sequences.get(oldest) == self._low:
                del sequences[oldest]
            self._low += 1
        self._low = max(self._low, low)

    def __len__(self) -> int:
        return len(self._sequences)


class Ring:
    """Verdicts for one lane."""

    def __init__(self, capacity: int, head: int = 0, floor: int = 0, index: Index | None = None) -> None:
        """Capacity in IDs, 0 = off; ``index`` must know all live IDs of the given head and floor."""
        self.capacity = capacity
        self.head = head
        self.floor = floor
        self.index: Index = index if index is not None else ResidentIndex(self.low)

    @property
    def low(self) -> int:
        """The lowest live sequence."""
        return max(self.floor, self.head - self.capacity, 0)

    def __len__(self) -> int:
        """How many IDs are live."""
        return self.head - self.low

    def check(self, ids: Sequence[bytes | None]) -> Checked:
        """Verdicts for messages with these encoded IDs (None = no ID), in order. Changes nothing."""
        capacity, floor, head = self.capacity, self.floor, self.head
        if capacity == 0:
            return Checked([Verdict.UNCHECKED] * len(ids), [None] * len(ids), head, [])
        accepted, duplicate, unchecked = Verdict.ACCEPTED, Verdict.DUPLICATE, Verdict.UNCHECKED
        verdicts: list[Verdict] = []
        originals: list[int | None] = []
        new_ids: list[bytes] = []
        fresh: dict[bytes, int] = {}
        known = iter(self.index.lookup([each for each in ids if each is not None]))
        for each in ids:
            if each is None:
                verdicts.append(unchecked)
                originals.append(None)
                continue
            stored = next(known)
            sequence = fresh.get(each, stored)
            if sequence is not None and sequence >= head - capacity and sequence >= floor:
                verdicts.append(duplicate)
                originals.append(sequence)
            else:
                verdicts.append(accepted)
                originals.append(None)
                fresh[each] = head
                new_ids.append(each)
                head += 1
        return Checked(verdicts, originals, self.head, new_ids)

    def apply(self, checked: Checked) -> None:
        """Make the outcome part of the ring, after its transaction was committed.

        Raises:
            AssertionError: the ring moved since the check - a programmer error, since a lane is serial.
        """
        if checked.first_sequence != self.head:
            raise AssertionError(f"checked at head {checked.first_sequence}, but the head is {self.head}")
        self.head += len(checked.new_ids)
        self.index.add(checked.first_sequence, checked.new_ids, self.low)
