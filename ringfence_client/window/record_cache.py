"""Choice of the records of a partition that stay in memory, and of those that are parked. No I/O.

A *parked* message keeps only its offset in memory. The consumer reads it again from the log before its turn. Groups share the memory by
dynamic thresholds (Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory packet switches", 1998): a group may keep as
much as is free. A group that grows without end gets half, and two such groups get a third each. Other groups always have room. A lone group
has no further limit.

A partition has only a part of the memory of the process (:mod:`ringfence_client.window.memory_budget`).

The kept messages of a group are always its first ones: once a message is parked, all later ones are parked too. A group that has used up
half of its kept messages is *wanted*. It is read again from the log before its handler has to wait.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, Final

from ringfence_client.window.memory_budget import (
    GROUP_BYTES,
    MESSAGE_BYTES,
    WAITING_BYTES,
    MemoryBudget,
    size,
)

_GONE: Final = -1
_EVICTED_MAX: Final = 64
"""Limits of the records, and of the groups, that are parked to make room for one new record."""
_OFFERS_MAX: Final = 500
"""Number of wanted groups from which the next read is chosen. Each fetch chooses, and a hundred thousand groups may be wanted."""


class _Share:
    """Kept and parked messages of one group, or of all messages without a group."""

    __slots__ = ("bytes", "count", "mark", "parked", "stuck")

    def __init__(self) -> None:
        self.count = 0
        self.bytes = 0
        self.parked: deque[int] = deque()
        """Parked offsets in ascending order. Offsets that were dropped meanwhile are still in it."""
        self.mark = 0
        """The group is wanted when its kept messages fall to this number."""
        self.stuck = False
        """The group's first message waits, and all others wait behind it."""


class RecordCache:
    """The records of one partition."""

    def __init__(
        self,
        records_max: int,
        memory: MemoryBudget,
        available: Callable[[bytes], Iterable[int]] = lambda _: (),
    ) -> None:
        """``memory``: :meth:`close` returns this partition's share. ``available`` returns the offsets of a group that no handler holds."""
        self.parked: set[int] = set()
        self._records: dict[int, Any] = {}
        self.bytes = 0
        self._record_bytes = 0
        """Bytes of kept records. Only these bytes can be parked."""
        self._records_max = records_max
        self._available = available
        self._memory = memory
        memory.join(self)
        self._closed = False
        self._shares: dict[bytes | None, _Share] = {}
        self._wanting: dict[bytes | None, None] = {}
        """Wanted groups, the longest wanted first."""
        self._set_back: dict[int, bytes | None] = {}
        """Kept records that are not needed for a while, the longest set aside first: groups by offset."""
        self._aside_bytes = 0
        self._waiting: dict[int, bytes | None] = {}
        """Messages that wait for an attempt or an operator, kept or not: groups by offset."""
        self.evicted: set[int] = set()
        """Offsets that are parked because their messages wait."""
        self._stuck: dict[bytes, None] = {}
        """Groups that may have kept records behind a waiting message, the longest waiting first."""
        self._behind: set[int] = set()
        """Offsets that are parked because they are behind a waiting message."""

    def __len__(self) -> int:
        """Return the number of kept records."""
        return len(self._records)

    def record(self, offset: int) -> Any | None:
        """Return a kept record; None = it is parked."""
        return self._records.get(offset)

    def takes(self, count: int) -> bool:
        """Return whether ``count`` more records of average size leave half of the room free. Records that are set aside make room."""
        there, used = len(self._records) - len(self._set_back), self.bytes - self._aside_bytes
        if 2 * (there + count) > self._records_max:
            return False
        more = min(count * (used // there), self._memory.partition_bytes_max) if there else 0
        return 2 * (used + more) < self._bytes_max

    @property
    def backlog(self) -> int:
        """Number of messages that are parked for lack of room, and not because they wait."""
        return len(self.parked) - len(self.evicted) - len(self._behind)

    def mark_waiting(self, offset: int, group: bytes | None) -> None:
        """Mark a message as waiting for an attempt or an operator. Its record may be parked to make room for others."""
        if offset not in self._waiting:
            self._waiting[offset] = group
            self._use(WAITING_BYTES)
        if group is not None:
            self._shares[group].stuck = True
            self._stuck[group] = None
        record = self._records.get(offset)
        if record is not None and offset not in self._set_back:
            self._set_back[offset] = group
            self._aside_bytes += size(record)
        # A record that is read again for its turn is kept even without room.
        while self._set_back and (len(self._records) > self._records_max or self.bytes > self._bytes_max):
            self._evict(*next(iter(self._set_back.items())))

    def recall(self, offset: int) -> None:
        """Mark a message as no longer waiting."""
        if offset in self._waiting:
            group = self._waiting.pop(offset)
            self._use(-WAITING_BYTES)
            self._unmark_waiting(offset)
            if group is not None:
                self._shares[group].stuck = False
                self._stuck.pop(group, None)

    def _unmark_waiting(self, offset: int) -> None:
        if offset in self._set_back:
            del self._set_back[offset]
            self._aside_bytes -= size(self._records[offset])

    @property
    def full(self) -> bool:
        """Whether even the offset of another message has no room."""
        return self.bytes >= self._bytes_max

    @property
    def crowding(self) -> float:
        """Share of the memory that messages need if all of them are parked. At 1 no other message has room."""
        return (self.bytes - self._record_bytes) / self._bytes_max

    def close(self) -> None:
        """Drop all records, and return their memory."""
        self._closed = True
        self._memory.leave(self)
        self._records.clear()

    def cache(self, record: Any) -> None:
        """Keep or park a record. Records come in order."""
        group = record.key
        share = self._shares.get(group)
        used = MESSAGE_BYTES
        if share is None:
            share = self._shares[group] = _Share()
            used += GROUP_BYTES
        first = self._head(share) is None
        if first and (self._room(group, share) or self._make_room(group, share)):
            self._use(used + self._keep(share, record))
            if share.stuck and group is not None:
                self._stuck[group] = None
            return
        self._use(used)
        if first:
            share.mark = share.count // 2
        share.parked.append(record.offset)
        self.parked.add(record.offset)
        self._judge(group, share)

    def unpark(self, records: Sequence[Any], *, always: bool) -> None:
        """Keep the parked records among these while they have room; ``always`` keeps the first one even without room."""
        if self._closed:
            return
        touched: dict[bytes | None, None] = {}
        for record in records:
            if record.offset not in self.parked:
                continue
            group = record.key
            share = self._shares[group]
            # A group's records come back in order; ungrouped records have no order.
            if not (always and record is records[0]):
                due = not share.stuck and (group is None or self._head(share) == record.offset)
                if not (due and (self._room(group, share) or self._make_room(group, share))):
                    continue
            self.parked.discard(record.offset)
            self.evicted.discard(record.offset)
            self._behind.discard(record.offset)
            self._use(self._keep(share, record))
            touched[group] = None
        for group in touched:
            share = self._shares[group]
            share.mark = share.count // 2
            self._judge(group, share)

    def drop(self, offset: int, group: bytes | None) -> None:
        """Drop a finished message."""
        if self._closed:
            return
        share = self._shares[group]
        if offset in self._waiting:
            self.recall(offset)
        record = self._records.pop(offset, None)
        freed = MESSAGE_BYTES
        if record is None:
            self.parked.discard(offset)
            self.evicted.discard(offset)
            self._behind.discard(offset)
        else:
            bytes_kept = size(record)
            share.bytes -= bytes_kept
            self._record_bytes -= bytes_kept
            share.count -= 1
            freed += bytes_kept
        if share.parked:
            self._judge(group, share)
        if not share.count and self._head(share) is None:
            del self._shares[group]
            freed += GROUP_BYTES
        self._use(-freed)

    def wanted(self) -> int | None:
        """Return the parked offset from which to read ahead now; None = nothing is wanted, or nothing has room."""
        if len(self._records) >= self._records_max or self.full:
            return None
        offers = []
        for group in islice(self._wanting, _OFFERS_MAX):
            share = self._shares[group]
            head = self._head(share)
            if head is not None and self._room(group, share):
                offers.append((share.count, head))
        return min(offers)[1] if offers else None

    def gone(self, offset: int) -> None:
        """Stop reading ahead for the group of a parked message that the log has deleted."""
        for group in list(self._wanting):
            share = self._shares[group]
            if self._head(share) == offset:
                share.mark = _GONE
                self._judge(group, share)

    @property
    def room(self) -> int:
        """Free memory, in bytes."""
        return max(0, self._bytes_max - self.bytes)

    @property
    def _bytes_max(self) -> int:
        """Present limit in bytes. It falls when other partitions keep more."""
        return self._memory.limit(self.bytes)

    def _use(self, more: int) -> None:
        before = self.bytes
        self.bytes = after = before + more
        self._memory.use(before, after)

    def _room(self, group: bytes | None, share: _Share) -> bool:
        free, free_bytes = self._records_max - len(self._records), self._bytes_max - self.bytes
        if group is None:
            return free > 0 and free_bytes > 0
        return share.count < free and share.bytes < free_bytes

    def _make_room(self, group: bytes | None, share: _Share) -> bool:
        """Make room for the first record of a new group: park waiting records, then the records behind them."""
        if share.count:
            return False
        for _ in range(min(_EVICTED_MAX, len(self._set_back))):
            offset, owner = next(iter(self._set_back.items()))
            self._evict(offset, owner)
            if self._room(group, share):
                return True
        for _ in range(min(_EVICTED_MAX, len(self._stuck))):
            self._evict_behind(next(iter(self._stuck)))
            if self._room(group, share):
                return True
        return False

    def _evict(self, offset: int, group: bytes | None) -> None:
        self._unmark_waiting(offset)
        share = self._shares[group]
        used = self._park(share, offset)
        share.mark = _GONE  # it is read again when it is needed, and not before
        self.evicted.add(offset)
        self._judge(group, share)
        self._use(-used)

    def _evict_behind(self, group: bytes) -> None:
        """Park the kept records of a group whose first message waits. Thousands of such groups would leave no room for others."""
        del self._stuck[group]
        share, used = self._shares[group], 0
        first = share.parked.popleft() if self._head(share) in self.evicted else None
        for offset in sorted(self._available(group), reverse=True):
            if offset in self._records and offset not in self._waiting:
                used += self._park(share, offset)
                self._behind.add(offset)
        if first is not None:
            share.parked.appendleft(first)
        share.mark = _GONE
        self._judge(group, share)
        self._use(-used)

    def _park(self, share: _Share, offset: int) -> int:
        """Park a kept record before all parked ones of its group; return the bytes that it used."""
        used = size(self._records.pop(offset))
        share.bytes -= used
        self._record_bytes -= used
        share.count -= 1
        share.parked.appendleft(offset)
        self.parked.add(offset)
        return used

    def _keep(self, share: _Share, record: Any) -> int:
        self._records[record.offset] = record
        used = size(record)
        share.bytes += used
        self._record_bytes += used
        share.count += 1
        return used

    def _head(self, share: _Share) -> int | None:
        while share.parked and share.parked[0] not in self.parked:
            share.parked.popleft()
        return share.parked[0] if share.parked else None

    def _judge(self, group: bytes | None, share: _Share) -> None:
        if share.count <= share.mark and self._head(share) is not None:
            self._wanting[group] = None
        else:
            self._wanting.pop(group, None)
