"""Which records of a partition are kept in memory, and which are parked. No I/O.

Of a *parked* message only its offset is kept; it is read again from the log when its turn comes near. What may be kept is
shared by dynamic thresholds (Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory packet switches",
1998): a group may keep as much as is free. So one that grows without end gets half, two get a third each, and there is
always room for the others, without a limit that a lone group would suffer from.

What is kept of a group are always the first of it: once one is parked, so are all that come after it. A group that has
used up half of what it had kept is *wanted*: whoever reads the log again reads it before its handler has to wait.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any, Final

_GONE: Final = -1


class _Share:
    """What is kept and parked of one group, or of all that have none."""

    __slots__ = ("bytes", "count", "mark", "parked")

    def __init__(self) -> None:
        self.count = 0
        self.bytes = 0
        self.parked: deque[int] = deque()
        """In order; what was dropped meanwhile is still in it."""
        self.mark = 0
        """With so few left, the next parked ones are wanted."""


class Kept:
    """The records of one partition."""

    def __init__(self, records_max: int, bytes_max: int) -> None:
        """``bytes_max`` counts values."""
        self.parked: set[int] = set()
        """Offsets."""
        self._records: dict[int, Any] = {}
        self._bytes = 0
        self._records_max = records_max
        self._bytes_max = bytes_max
        self._shares: dict[bytes | None, _Share] = {}
        self._wanting: set[bytes | None] = set()

    def __len__(self) -> int:
        """Records that are kept."""
        return len(self._records)

    def record(self, offset: int) -> Any | None:
        """The record; None = it is parked."""
        return self._records.get(offset)

    def takes(self, count: int) -> bool:
        """Whether so many more leave half of the room free."""
        return 2 * (len(self._records) + count) <= self._records_max and 2 * self._bytes < self._bytes_max

    def add(self, record: Any) -> None:
        """Keep it, or park it. Records come in order."""
        group = record.key
        share = self._shares.get(group)
        if share is None:
            share = self._shares[group] = _Share()
        first = self._head(share) is None
        if first and self._room(group, share):
            self._keep(share, record)
            return
        if first:
            share.mark = share.count // 2
        share.parked.append(record.offset)
        self.parked.add(record.offset)
        self._judge(group, share)

    def unpark(self, records: Sequence[Any], *, always: bool) -> None:
        """Keep those of them that are parked, as far as there is room; with ``always`` the first in any case."""
        touched = set()
        for record in records:
            if record.offset not in self.parked:
                continue
            group = record.key
            share = self._shares[group]
            # A group's first come first; the ungrouped have no order.
            due = self._room(group, share) and (group is None or self._head(share) == record.offset)
            if not due and not (always and record is records[0]):
                continue
            self.parked.discard(record.offset)
            self._keep(share, record)
            touched.add(group)
        for group in touched:
            share = self._shares[group]
            share.mark = share.count // 2
            self._judge(group, share)

    def drop(self, offset: int, group: bytes | None) -> None:
        """It is done."""
        share = self._shares[group]
        record = self._records.pop(offset, None)
        if record is None:
            self.parked.discard(offset)
        else:
            size = len(record.value or b"")
            self._bytes -= size
            share.bytes -= size
            share.count -= 1
        self._judge(group, share)
        if not share.count and self._head(share) is None:
            del self._shares[group]

    def wanted(self) -> int | None:
        """From which parked offset on the log should be read again, before somebody has to wait for it."""
        offers = []
        for group in self._wanting:
            share = self._shares[group]
            head = self._head(share)
            if head is not None and self._room(group, share):
                offers.append((share.count, head))
        return min(offers)[1] if offers else None

    def gone(self, offset: int) -> None:
        """The log has it no more: nothing of its group is wanted before its turn."""
        for group in list(self._wanting):
            share = self._shares[group]
            if self._head(share) == offset:
                share.mark = _GONE
                self._judge(group, share)

    def _room(self, group: bytes | None, share: _Share) -> bool:
        free, free_bytes = self._records_max - len(self._records), self._bytes_max - self._bytes
        if group is None:
            return free > 0 and free_bytes > 0
        return share.count < free and share.bytes < free_bytes

    def _keep(self, share: _Share, record: Any) -> None:
        self._records[record.offset] = record
        size = len(record.value or b"")
        self._bytes += size
        share.bytes += size
        share.count += 1

    def _head(self, share: _Share) -> int | None:
        while share.parked and share.parked[0] not in self.parked:
            share.parked.popleft()
        return share.parked[0] if share.parked else None

    def _judge(self, group: bytes | None, share: _Share) -> None:
        if share.count <= share.mark and self._head(share) is not None:
            self._wanting.add(group)
        else:
            self._wanting.discard(group)
