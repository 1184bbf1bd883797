"""Fetched, unfinished messages of one partition. No I/O.

The ledger contains all of them. :mod:`ringfence_client.window.record_cache` keeps a bounded number of records. The consumer reads the
others again before their turn. One stuck group does not fill the window.
"""

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from enum import Enum, auto
from typing import Any, Final, TypeVar

from ringfence_client.progress.progress_record import HELD, Progress
from ringfence_client.progress.watermark import Watermark
from ringfence_client.window.attempt_log import AttemptLog
from ringfence_client.window.ledger import GroupLedger
from ringfence_client.window.memory_budget import MemoryBudget
from ringfence_client.window.record_cache import RecordCache
from ringfence_client.window.redrive_queue import RedriveQueue

_Known = TypeVar("_Known")

RECORDS_MAX: Final = 10_000
PARKED_MAX: Final = 100_000
"""Limit of messages of a partition of which memory has only the offset."""
SLOW: Final = 1_000
"""Finished messages per second. Below this rate there is time to fetch in search of other groups."""
TICK_S: Final = 0.1
AHEAD_MIN: Final = 1_000
AHEAD_MAX: Final = 20_000
"""Limits of offsets reserved beyond those that handlers received. A dead holder's successor tries unfinished reserved ones with care."""
AHEAD_INTERVALS: Final = 4


class End(Enum):
    """Result of a message."""

    ACK = auto()
    REJECT = auto()
    """Its holder removes it: an operator dropped it, or its dead letter is committed."""
    DEAD_LETTER = auto()
    """Its dead letter is committed, with progress that counts it as finished. Its group waits until it is rejected."""
    PURGE = auto()
    """An operator dropped it, and the ledger has removed it."""
    GONE = auto()
    """An operator dropped it before it was fetched; or it was redriven and the log has deleted its record."""


class Window:
    """Window of one partition, from its opening until another consumer takes it."""

    def __init__(
        self,
        progress: Progress,
        *,
        memory: MemoryBudget,
        prefetch: int = 1,
        records_max: int = RECORDS_MAX,
        gap: int = 0,
    ) -> None:
        """Continue from the last holder's progress. ``gap``: offsets that retention deleted before a handler processed them."""
        self.ledger = GroupLedger(prefetch)
        self.watermark = Watermark(progress.next, progress.finished)
        self.redrives = RedriveQueue(progress)
        self.attempts = AttemptLog(
            progress, lambda offset: offset in self.redrives.owed or not self.watermark.is_finished(offset)
        )
        self.cache = RecordCache(records_max, memory, self.ledger.available)
        self.gap_records = gap
        self._given_then = progress.next
        """Highest received end at the last progress write: handlers had received only lower offsets."""
        self.reserved = 0
        """Handlers receive only lower offsets. A successor would not suspect a message at or above this offset."""
        self.suspect_below = 0 if progress.released else progress.reserved
        """Unfinished messages below it may have been running when the last holder died."""
        self.closed = False
        """Another consumer holds the partition; the window has no effect any more."""
        self.end = progress.next
        """Every lower offset was fetched."""
        self._groups: dict[int, bytes | None] = {}
        self._buried: set[int] = set()
        """Messages that count as finished while their groups wait for the turns that hold them."""
        self._purged = dict(progress.purged)
        self._no_progress = False
        """The last fetch brought only messages of groups that were available or owned before."""
        self._kept_then = 0
        self._finished = 0
        self._ticked = 0.0
        self._slow = True

    # -- what comes in ---------------------------------------------------------------------------------------

    def feed(self, records: Sequence[Any]) -> None:
        """Add fetched records, in order."""
        unfinished, free = 0, self.ledger.free
        for record in records:
            offset = record.offset
            if offset < self.end:
                continue  # the fetch began before a seek
            self.end = offset + 1
            if not self.watermark.delivered(offset):
                continue
            if self._purged and self._is_purged(record):
                self._count_finished(offset)
                continue
            self._add(record)
            unfinished += 1
        if unfinished:
            self._no_progress = self.ledger.free <= free
            self._kept_then = len(self.cache)

    def _is_purged(self, record: Any) -> bool:
        begin, end = self._purged.get(record.key, (0, 0))
        return record.key is not None and begin <= record.offset < end

    def reached(self, offset: int) -> None:
        """Record that the log was read up to an offset: no message lies between."""
        self.end = max(self.end, offset)
        self.watermark.reached(self.end)

    def add_redriven(self, record: Any) -> bool:
        """Add a fetched redriven message, before later ones of its group that no handler has; return whether it was missing."""
        # The message may be here until the turn that wrote its dead letter ends.
        if record.offset in self._groups or not self.redrives.arrive(record.offset):
            return False
        self._add(record)
        return True

    def _add(self, record: Any) -> None:
        self.ledger.append(record.offset, record.key, record.timestamp)
        self._groups[record.offset] = record.key
        self.cache.cache(record)

    def wants_more(self, idle: int, fetch_max: int = 0) -> bool:
        """Return whether to fetch more. ``idle``: handlers without work; ``fetch_max``: limit of records in one fetch.

        Half of the cache is always filled. Beyond it, a fetch only searches for work for idle handlers: the consumer reads parked records
        twice. After a fetch without new groups, the next one waits until a quarter of the kept records is used up, or few messages finish.
        """
        if not self._groups or (not self.cache.backlog and self.cache.takes(fetch_max)):
            return len(self.cache.parked) < PARKED_MAX and not self.cache.full
        if not idle or len(self.cache.parked) >= PARKED_MAX or self.cache.full:
            return False
        return not self._no_progress or self._slow or 4 * len(self.cache) <= 3 * self._kept_then

    def tick(self, now: float) -> None:
        """Measure how fast messages finish; ``now``: seconds."""
        if now - self._ticked < TICK_S:
            return
        self._slow = self._finished < SLOW * (now - self._ticked)
        self._ticked, self._finished = now, 0

    def mark_waiting(self, offset: int) -> None:
        """Mark a message as waiting for an attempt or an operator. Its record need not stay in memory."""
        self.cache.mark_waiting(offset, self._groups[offset])

    def unpark(self, records: Sequence[Any], *, always: bool) -> bool:
        """Keep the parked records among these while they have room; ``always`` keeps the first one even without room.

        Returns False, and keeps none, if another message has one of the offsets: the topic was created again.
        """
        known = ((record, self.ledger.find(record.offset)) for record in records)
        if any(found is not None and found != (item.key, item.timestamp) for item, found in known):
            return False
        self.cache.unpark(records, always=always)
        return True

    def offsets_of(self, group: bytes | None) -> list[int]:
        """Return the unfinished messages of a group, in order; O(n)."""
        return sorted(offset for offset, item in self._groups.items() if item == group)

    def group_of(self, offset: int) -> bytes | None:
        """Return the group of an unfinished message."""
        return self._groups[offset]

    # -- what is finished ------------------------------------------------------------------------------------

    def finish(self, offset: int, how: End, holder: Hashable = None) -> None:
        """End a message with a result. Its group continues, except behind a dead letter. ``holder``: the turn that acknowledges or rejects it."""
        if how is End.ACK or how is End.REJECT:  # called for each message
            self.ledger.acknowledge(holder, offset)
        elif how is not End.PURGE:
            self._count_finished(offset, unread=how is End.GONE)
            if how is End.DEAD_LETTER:
                self._buried.add(offset)
            return
        if offset in self._buried:
            self._buried.discard(offset)
        else:
            self._count_finished(offset)
        self._finished += 1
        self.cache.drop(offset, self._groups.pop(offset))

    def _count_finished(self, offset: int, *, unread: bool = False) -> None:
        redrives = self.redrives
        if offset not in redrives.owed:
            (self.watermark.finish_unread if unread else self.watermark.finish)(offset)
        if redrives.owed or redrives.blocked:
            redrives.forget(offset)
        self.attempts.forget(offset)

    def purge(self, group: bytes, below: int) -> int:
        """Drop a group's unacquired messages below an offset, fetched or not; return the number of fetched ones."""
        dropped = self.ledger.purge(group)
        for offset in dropped:
            self.finish(offset, End.PURGE)
        # The range starts at the end: a successor must still process acquired messages, which lie below it.
        begin, known = self._purged.get(group, (0, 0))
        self._purged[group] = (begin, max(below, known)) if known > self.end else (self.end, below)
        return len(dropped)

    def skip(self, group: bytes) -> int:
        """Drop the first message of a group if no handler has any of the group; return the number dropped, 0 or 1."""
        offset = self.ledger.skip(group)
        if offset is None:
            return 0
        self.finish(offset, End.PURGE)
        return 1

    def unfetched(self, below: int) -> list[int]:
        """Return the offsets below this one that progress names and the window does not contain, in order.

        Only the log has their groups.
        """
        begun = {*self.redrives.blocked, *self.attempts.counts, *self.attempts.failures}
        unread = (number for number in begun if number >= self.end)
        return sorted(number for number in {*unread, *self.redrives.missing()} if number < below)

    def drop_unfetched(self, group: bytes, groups: Mapping[int, bytes | None]) -> list[int]:
        """Finish the unfetched messages of a group, and return their offsets. ``groups``: groups of unfetched offsets in the log.

        A purge drops unfetched messages at their fetch. A blocked one may be redriven before that, and would be dropped then.
        """
        found = [
            offset for offset in self.unfetched(max(groups, default=-1) + 1) if groups.get(offset) == group
        ]
        for offset in found:
            self.finish(offset, End.GONE)
        return found

    def redrive(self, offset: int, number: int) -> bool:
        """Schedule a finished or blocked message to be processed again, as :meth:`RedriveQueue.redrive` does."""
        is_finished = self.watermark.is_finished(offset)
        if not self.redrives.redrive(offset, number, finished=is_finished, unfinished=self._groups):
            return False
        self.attempts.start_over(offset)
        return True

    def written(self, progress: Progress) -> None:
        """Record that a progress record is committed. A successor suspects unfinished messages below its ``reserved``."""
        self.reserved = max(self.reserved, progress.reserved)
        self._given_then = max(progress.delivered, progress.next)

    def close(self) -> None:
        """Mark the partition as taken by another consumer."""
        self.closed = True

    # -- what others see -------------------------------------------------------------------------------------

    @property
    def next(self) -> int:
        """Every lower offset is finished."""
        return self.watermark.next

    @property
    def unfinished(self) -> int:
        """Number of fetched, unfinished messages."""
        return len(self._groups)

    @property
    def counts(self) -> Mapping[str, int]:
        """Numbers of unfinished messages, and of the kept, parked and blocked ones among them."""
        found = {"undone": self.unfinished, "kept": len(self.cache), "parked": len(self.cache.parked)}
        blocked = len(self.redrives.blocked)
        return {**found, "blocked": blocked} if blocked else found

    @property
    def crowding(self) -> float:
        """Used share of :data:`PARKED_MAX` or of the memory, whichever is larger. At 1 the fetch stops."""
        return max(len(self.cache.parked) / PARKED_MAX, self.cache.crowding)

    @property
    def _given(self) -> int:
        """Every message that a handler ever received has a lower offset."""
        return max(self.attempts.delivered, self.watermark.next)

    @property
    def _ahead(self) -> int:
        """Number of offsets to reserve for handlers until the next progress write."""
        return min(AHEAD_MAX, max(AHEAD_MIN, AHEAD_INTERVALS * (self._given - self._given_then)))

    def progress(
        self, dead_lettered: Collection[int] = (), blocking: Collection[int] = (), *, outlived: bool = False
    ) -> Progress:
        """Return the progress for a successor, without the facts about the holder. It reserves offsets ahead.

        ``dead_lettered`` and ``blocking``: messages that it counts as finished or blocked already; ``outlived``: a run continues that the
        consumer failed to stop.
        """
        watermark, redrives, attempts = self.watermark, self.redrives, self.attempts
        if finishing := [number for number in dead_lettered if number not in redrives.owed]:
            watermark = watermark.without(finishing)
        blocked = redrives.blocked.union(blocking)
        return Progress(
            watermark.next,
            finished=watermark.runs(),
            attempts=_without(attempts.counts, dead_lettered),
            failures=_without(attempts.failures, dead_lettered),
            again=tuple(sorted(number for number in redrives.owed if number not in dead_lettered)),
            blocked=tuple(
                sorted(item for item in blocked if item in redrives.owed or not watermark.is_finished(item))
            ),
            redriven=dict(redrives.counts),
            reserved=max(self.reserved, self.suspect_below, self._given + self._ahead),
            # The fetch has applied purges below the end already.
            purged={group: run for group, run in self._purged.items() if run[1] > self.end},
            state=HELD,
            delivered=attempts.delivered,
            running=len(attempts.running.difference(dead_lettered)) or int(outlived),
        )


def _without(known: Mapping[int, _Known], offsets: Iterable[int]) -> dict[int, _Known]:
    """Return a copy without these offsets. Each write makes it; a hundred thousand entries take a millisecond."""
    found = dict(known)
    for offset in offsets:
        found.pop(offset, None)
    return found
