"""The ring: a lane's bounded circular cache of the last N duplicate IDs. Pure.

HornetQ 37.2: "a circular fixed size cache. If the cache has a maximum size of n elements, then the n + 1th id stored will overwrite the 0th
element". IDs leave in the order of acceptance: a lookup never refreshes an ID, and a known ID is never added twice. Each accepted ID gets
the next sequence number; an ID is live iff

    sequence >= max(floor, head - capacity)

with the running head of each message, also within a batch. Only this comparison counts. It makes slots and index entries dead that
compaction or an earlier capacity left behind. A ring with a promise (``id_min_age``) has room for ``id_cache_size_max`` IDs. Beyond
``id_cache_size`` of them, an ID counts only while it is young enough for the message. When a batch is applied, IDs that are too old for the
newest record raise the floor.

State follows the commit: :meth:`Ring.check` changes nothing, and the lane calls :meth:`Ring.apply` after the commit of the transaction.
"""

from array import array
from collections import deque
from collections.abc import Iterable, Sequence
from enum import IntEnum
from itertools import islice, repeat
from typing import Final, NamedTuple, Protocol, cast

from ringfence_kafka.concurrency.cooperative import Steps, emptying
from ringfence_kafka.errors import require
from tables.promise import AGED_AT_ONCE, Promise, leaving

STEP: Final = 1_000
"""Number of IDs per step. Work on a million IDs at once would block the event loop."""


class Verdict(IntEnum):
    """Verdict of a lane on a message."""

    ACCEPTED = 0
    DUPLICATE = 1
    UNCHECKED = 2
    """No ID, or detection is off: the message passes and uses no slot."""
    CONFLICT = 3
    """A duplicate whose value differs from its original's: :mod:`agents.decision.verdicts`."""


class Checked(NamedTuple):
    """Outcome of one batch against the ring, not yet applied."""

    verdicts: list[Verdict]
    originals: list[int | None]
    """Sequence of each duplicate's original; None for other messages."""
    first_sequence: int
    new_ids: list[bytes]
    """New IDs; the i-th gets ``first_sequence + i``."""
    new_times: list[int]
    """Record timestamps of the new IDs, in milliseconds."""
    owners: list[int] | None = None
    """Index of each new ID's message; None = each accepted message has one ID."""
    new_digests: Sequence[int] = ()
    """Digest of the value for each new ID, 0 = unknown; empty = all are unknown. The native core's are packed bytes."""
    conflicts_accepted: int = 0
    """Number of messages with known IDs that were accepted because of other values."""


class Index(Protocol):
    """Sequence by ID. Implemented in memory, and in RocksDB for very large rings."""

    def lookup(self, ids: Sequence[bytes]) -> list[int | None]:
        """Return the latest known sequence of each ID, live or dead; None = unknown."""

    def time(self, id_: bytes, sequence: int) -> int:
        """Return the record timestamp of a known ID with its sequence, in milliseconds. Used only by rings with ages."""

    def leaving(self, low: int, gone: int, until: int, before: int) -> tuple[int, int]:
        """Return the number of younger IDs that leave, and the first that stays; see :func:`tables.promise.leaving`."""

    def add(self, checked: Checked, low: int) -> None:
        """Add the new IDs of an outcome, and delete sequences below ``low``."""


class ResidentIndex:
    """Index in memory: a dict, and the IDs in the order of their sequences."""

    def __init__(self, low: int = 0, capacity: int = 0) -> None:
        """Create an empty index. ``capacity``: number of sequences whose timestamps are kept, 8 bytes each."""
        self._sequences: dict[bytes, int] = {}
        self._order: deque[bytes | None] = deque()
        self._low = low
        self._times = array("q", bytes(8 * capacity))

    @classmethod
    def rebuilding(
        cls, entries: Iterable[tuple[int, bytes, int, int]], low: int, head: int, capacity: int = 0
    ) -> "Steps[ResidentIndex]":
        """Rebuild from (sequence, ID, timestamp, digest) in any order. Entries outside ``low <= sequence < head`` are dead."""
        index = cls(low, capacity)
        order: list[bytes | None] = [None] * (head - low)
        entries = iter(entries)
        while some := list(islice(entries, STEP)):
            for sequence, data, time, _ in some:
                if low <= sequence < head:
                    order[sequence - low] = data
                    if capacity:
                        index._times[sequence % capacity] = time
            yield
        sequences = cast("dict[bytes | None, int]", index._sequences)
        # The order of sequences lets the later of two entries of one ID win.
        for begin in range(low, head, STEP):
            some_ids = order[begin - low : begin - low + STEP]
            index._order.extend(some_ids)
            sequences.update(zip(some_ids, range(begin, head), strict=False))
            yield
        sequences.pop(None, None)
        return index

    @property
    def known(self) -> dict[bytes, int]:
        """Latest sequence by ID, for read access."""
        return self._sequences

    def lookup(self, ids: Sequence[bytes]) -> list[int | None]:
        """Return the latest known sequence of each ID."""
        get = self._sequences.get
        return [get(id_) for id_ in ids]

    def time(self, id_: bytes, sequence: int) -> int:
        """Return the record timestamp of a live sequence, in milliseconds."""
        return self._times[sequence % len(self._times)]

    def leaving(self, low: int, gone: int, until: int, before: int) -> tuple[int, int]:
        """Return the number of younger IDs that leave, and the first that stays; see :func:`tables.promise.leaving`."""
        times = self._times
        return leaving(
            lambda some: [times[sequence % len(times)] for sequence in some], low, gone, until, before, STEP
        )

    def add(self, checked: Checked, low: int) -> None:
        """Add new IDs, and delete sequences below ``low``. Digests are not kept, because the slots have them."""
        first_sequence, times = checked.first_sequence, checked.new_times
        sequences, order = self._sequences, self._order
        for sequence, id_ in enumerate(checked.new_ids, first_sequence):
            sequences[id_] = sequence
        order.extend(checked.new_ids)
        if self._times:
            for sequence, time in enumerate(times, first_sequence):
                self._times[sequence % len(self._times)] = time
        while self._low < low and order:
            oldest = order.popleft()
            # An ID that was evicted and accepted again has a newer sequence, which stays.
            if oldest is not None and sequences.get(oldest) == self._low:
                del sequences[oldest]
            self._low += 1
        self._low = max(self._low, low)

    def emptying(self) -> Steps[None]:
        """Free the memory in steps after the last use."""
        return emptying(self._sequences, self._order)

    def __len__(self) -> int:
        return len(self._sequences)


class Ring:
    """IDs and verdicts of one lane."""

    def __init__(
        self,
        capacity: int,
        head: int = 0,
        floor: int = 0,
        index: Index | None = None,
        max_age_ms: int = 0,
        promise: Promise | None = None,
    ) -> None:
        """Create a ring with a capacity in IDs, 0 = off. ``index`` must contain all live IDs of the given head and floor.

        ``max_age_ms``: largest difference of the two record timestamps at which an ID counts; 0 = no limit. With a promise, ``capacity`` is
        ``id_cache_size_max``.
        """
        self.capacity = capacity
        self.head = head
        self.floor = floor
        self.max_age_ms = max_age_ms
        self.promise = promise
        self._timed = bool(max_age_ms or promise)
        self.index: Index = (
            index if index is not None else ResidentIndex(self.low, capacity if self._timed else 0)
        )

    @property
    def low(self) -> int:
        """The lowest live sequence."""
        return max(self.floor, self.head - self.capacity, 0)

    def __len__(self) -> int:
        """Return the number of live IDs."""
        return self.head - self.low

    def check(self, ids: Sequence[bytes | None], times: Iterable[int] = repeat(0)) -> Checked:
        """Return verdicts for messages with these encoded IDs (None = no ID), in order. Changes nothing.

        ``times``: record timestamps of the messages, in milliseconds. Only rings with a maximum age or a promise use them.
        """
        capacity, floor, head = self.capacity, self.floor, self.head
        if capacity == 0:
            return Checked([Verdict.UNCHECKED] * len(ids), [None] * len(ids), head, [], [])
        accepted, duplicate, unchecked = Verdict.ACCEPTED, Verdict.DUPLICATE, Verdict.UNCHECKED
        verdicts: list[Verdict] = []
        originals: list[int | None] = []
        new_ids: list[bytes] = []
        new_times: list[int] = []
        fresh: dict[bytes, int] = {}
        known = iter(self.index.lookup([id_ for id_ in ids if id_ is not None]))
        for id_, time in zip(ids, times, strict=False):
            if id_ is None:
                verdicts.append(unchecked)
                originals.append(None)
                continue
            stored = next(known)
            sequence = fresh.get(id_, stored)
            if (
                sequence is not None
                and sequence >= head - capacity
                and sequence >= floor
                and not (self._timed and self._too_old(id_, sequence, head, time, new_times))
            ):
                verdicts.append(duplicate)
                originals.append(sequence)
            else:
                verdicts.append(accepted)
                originals.append(None)
                fresh[id_] = head
                new_ids.append(id_)
                new_times.append(time)
                head += 1
        return Checked(verdicts, originals, self.head, new_ids, new_times)

    def check_units(self, units: Sequence[Sequence[bytes]], times: Sequence[int]) -> Checked:
        """Return verdicts for transactions, which may have several IDs. Changes nothing.

        HornetQ 37.1: if one message of a transaction is a duplicate, the whole transaction is ignored, and its new IDs are not added. All
        IDs of a transaction are judged at the same head; a repeated ID counts once. ``times``: record timestamps, in milliseconds.
        """
        if self.capacity == 0:
            return Checked([Verdict.UNCHECKED] * len(units), [None] * len(units), self.head, [], [], [])
        everything = [data for unit in units for data in unit]
        stored = dict(zip(everything, self.index.lookup(everything), strict=True))
        checked = Checked([], [], self.head, [], [], owners := [])
        fresh: dict[bytes, int] = {}
        for number, (unit, time) in enumerate(zip(units, times, strict=True)):
            head = self.head + len(checked.new_ids)
            original = None
            for each in unit:
                sequence = fresh.get(each, stored[each])
                if sequence is not None and self.is_live(each, sequence, head, time, checked.new_times):
                    original = sequence
                    break
            checked.originals.append(original)
            if original is not None or not unit:
                checked.verdicts.append(Verdict.UNCHECKED if original is None else Verdict.DUPLICATE)
                continue
            checked.verdicts.append(Verdict.ACCEPTED)
            for each in dict.fromkeys(unit):
                fresh[each] = self.head + len(checked.new_ids)
                checked.new_ids.append(each)
                checked.new_times.append(time)
                owners.append(number)
        return checked

    def is_live(self, id_: bytes, sequence: int, head: int, time: int, new_times: Sequence[int]) -> bool:
        """Return whether a known ID still counts for a message of this time."""
        return (
            sequence >= head - self.capacity
            and sequence >= self.floor
            and not (self._timed and self._too_old(id_, sequence, head, time, new_times))
        )

    def _too_old(self, id_: bytes, sequence: int, head: int, time: int, new_times: Sequence[int]) -> bool:
        """Return whether the original of a live sequence is too old for the message."""
        fresh = sequence - self.head
        age = time - (new_times[fresh] if fresh >= 0 else self.index.time(id_, sequence))
        if self.max_age_ms and age > self.max_age_ms:
            return True
        promise = self.promise
        return promise is not None and sequence < head - promise.size and age > promise.min_age_ms

    def aged(self, new_times: Sequence[int]) -> tuple[int, Promise | None]:
        """Return the floor and the promise after new IDs with these record timestamps. Changes nothing."""
        promise = self.promise
        if promise is None:
            return self.floor, None
        head, low = self.head + len(new_times), self.low
        newest = max([promise.newest_ms, *new_times])
        before = newest - promise.min_age_ms
        full = head - self.capacity
        gone = min(max(full, low), self.head)
        most = gone + AGED_AT_ONCE + len(new_times)
        until = max(gone, min(head - promise.size, self.head, most))
        broken, floor = self.index.leaving(low, gone, until, before)
        broken += sum(time >= before for time in new_times[: max(0, full - self.head)])
        if floor == gone and (broken or gone == low):
            floor = self.floor  # this shows that the oldest ID is young; duplicates change nothing
        return max(self.floor, floor), promise._replace(newest_ms=newest, broken=promise.broken + broken)

    def apply(self, checked: Checked, aged: tuple[int, Promise | None] | None = None) -> None:
        """Apply an outcome after the commit of its transaction.

        ``aged``: the result of :meth:`aged` for it, if already computed.
        Raises InvariantError if the ring moved since the check, although a lane is serial.
        """
        require(
            checked.first_sequence == self.head,
            "checked at head",
            checked.first_sequence,
            "the head is",
            self.head,
        )
        if self.promise is not None:
            self.floor, self.promise = self.aged(checked.new_times) if aged is None else aged
        self.head += len(checked.new_ids)
        self.index.add(checked, self.low)
