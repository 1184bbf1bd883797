"""Watermark of a partition: its finished offsets, and the offset below which all are finished. Pure.

Messages of different groups finish in any order. The progress is a floor, ``next``, below which everything is finished, and ranges of
finished offsets above it. A restart repeats nothing that was finished. Offsets have gaps (control records, compaction, retention). Offsets
between two delivered ones do not exist and count as finished, so there are few ranges. A delivery, a finish and the floor cost O(1).
"""

import copy
import itertools
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator

from ringfence_kafka.protocol.offset_ranges import Run, check


class Watermark:
    """Finished offsets of one partition."""

    def __init__(self, next_offset: int = 0, runs: Iterable[Run] = ()) -> None:
        """Start at ``next_offset``. The offsets of the ranges above it are finished. Raises ValueError for ranges out of order."""
        self._stored: list[Run] = list(runs)
        check(next_offset, self._stored)
        self._reached = 0
        """Number of stored ranges that end at or below the end."""
        self._end = next_offset
        """End of the log as read so far. At and above it, only the stored ranges are known to be finished."""
        self._unfinished: OrderedDict[int, None] = OrderedDict()
        """An OrderedDict finds its first key in O(1), also after many keys before it were removed; a dict does not."""

    @property
    def next(self) -> int:
        """The lowest unfinished offset, or the end of the offsets that are known to be finished."""
        for first in self._unfinished:
            return first
        return self._pending_end()

    def delivered(self, offset: int) -> bool:
        """Record the next offset that has a record; return whether it has to be processed. Raises ValueError for an earlier offset."""
        if offset < self._end:
            raise ValueError(
                f"offset {offset} was delivered, but the log was read up to {self._end}: offsets rise"
            )
        if not self._stored:
            self._unfinished[offset] = None
            self._end = offset + 1
            return True
        if due := not self.is_finished(offset):
            self._unfinished[offset] = None
        self.reached(offset + 1)
        return due

    def reached(self, offset: int) -> None:
        """Record that the log was read up to this offset, exclusive. Undelivered offsets below it do not exist."""
        self._end = max(self._end, offset)
        stored = self._stored
        while self._reached < len(stored) and stored[self._reached][1] <= self._end:
            self._reached += 1
        if self._reached == len(stored):
            stored.clear()
            self._reached = 0

    def finish(self, offset: int) -> None:
        """Finish a delivered offset. Raises KeyError if it is finished, or was never delivered."""
        if offset not in self._unfinished:
            why = "it is finished" if self.is_finished(offset) else "it was never delivered"
            raise KeyError(f"offset {offset} cannot be finished: {why}")
        del self._unfinished[offset]

    def finish_unread(self, offset: int) -> None:
        """Finish an offset that is not read yet. Does nothing if it is finished. Raises ValueError if it was delivered."""
        if self.is_finished(offset):
            return
        if offset < self._end:
            raise ValueError(f"offset {offset} was delivered: the log was read up to {self._end}")
        stored = self._stored
        index = bisect_right(stored, offset, lo=self._reached, key=lambda run: run[0])
        start, stop, first, last = offset, offset + 1, index, index
        if index > self._reached and stored[index - 1][1] == offset:
            start, first = stored[index - 1][0], index - 1
        if index < len(stored) and stored[index][0] == stop:
            stop, last = stored[index][1], index + 1
        stored[first:last] = [(start, stop)]

    def without(self, offsets: Iterable[int]) -> "Watermark":
        """Return a copy in which these delivered offsets are finished too."""
        unfinished = self._unfinished.copy()
        for offset in offsets:
            del unfinished[offset]
        other = copy.copy(self)
        other._unfinished = unfinished
        return other

    def is_finished(self, offset: int) -> bool:
        """Whether the offset is finished or does not exist."""
        if offset < self._end:
            return offset not in self._unfinished
        index = bisect_right(self._stored, offset, lo=self._reached, key=lambda run: run[0]) - 1
        return index >= self._reached and offset < self._stored[index][1]

    def runs(self) -> list[Run]:
        """Return the finished offsets above ``next`` as the fewest ranges, in ascending order."""
        unfinished = list(self._unfinished)
        found = [(one + 1, other) for one, other in itertools.pairwise(unfinished) if one + 1 < other]
        # If nothing is unfinished, ``next`` is the end of the known offsets.
        end = self._pending_end()
        if unfinished and unfinished[-1] + 1 < end:
            found.append((unfinished[-1] + 1, end))
        found.extend(run for run in self._pending() if run[0] > end)
        return found

    def _pending(self) -> Iterator[Run]:
        return (self._stored[index] for index in range(self._reached, len(self._stored)))

    def _pending_end(self) -> int:
        """Return the end, or the end of the stored range that contains it. Ranges do not touch, so at most one does."""
        for start, stop in self._pending():
            return stop if start <= self._end else self._end
        return self._end
