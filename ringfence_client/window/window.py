"""Messages of one partition that were fetched and are not finished. No I/O.

The ledger knows every one of them. :mod:`ringfence_client.window.record_cache` keeps the records of a bounded number; the others are read
again before their turn. One stuck group does not fill the window.
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
"""Records kept of a partition."""
PARKED_MAX: Final = 100_000
"""Messages whose offset alone is kept."""
SLOW: Final = 1_000
"""With fewer finished messages a second there is time to look for others."""
TICK_S: Final = 0.1
AHEAD_MIN: Final = 1_000
AHEAD_MAX: Final = 20_000
"""Offsets that are reserved ahead of what handlers were given. If the holder dies, its successor tries the unfinished ones of them with care,
so they are not more than handlers are given in a few intervals."""
AHEAD_INTERVALS: Final = 4


class End(Enum):
    """Result of a message."""

    ACK = auto()
    """Its handler is done with it."""
    REJECT = auto()
    """Its holder takes it out: an operator dropped it, or its dead letter is committed."""
    DEAD_LETTER = auto()
    """Its dead letter is committed, in one transaction with progress that says so. Its group waits until it is rejected."""
    PURGE = auto()
    """An operator dropped it, and the ledger has let go of it."""
    GONE = auto()
    """An operator dropped it before it was fetched; or it was redriven, and the log has no record of it."""


class Window:
    """One partition, from its opening until it is given away."""

    def __init__(
        self,
        progress: Progress,
        *,
        memory: MemoryBudget,
        prefetch: int = 1,
        records_max: int = RECORDS_MAX,
        gap: int = 0,
    ) -> None:
        """Continue where the last holder was.

        Args:
            progress: The last holder's.
            memory: The process's.
            prefetch: Messages of one group that a handler holds.
            records_max: Records that are kept.
            gap: Offsets that retention deleted before anybody handled their messages.
        """
        self.ledger: GroupLedger[int] = GroupLedger(prefetch)
        self.watermark = Watermark(progress.next, progress.finished)
        self.redrives = RedriveQueue(progress)
        self.attempts = AttemptLog(
            progress, lambda offset: offset in self.redrives.owed or not self.watermark.is_finished(offset)
        )
        self.cache = RecordCache(records_max, memory, self.ledger.available)
        self.gap_records = gap
        self._given_then = progress.next
        """Everything that handlers had been given lay below it when progress was written last."""
        self.reserved = 0
        """Nothing at or above it may be handed out: a successor would not suspect it."""
        self.suspect_below = 0 if progress.released else progress.reserved
        """Unfinished messages below it may have been running when the last holder died."""
        self.closed = False
        """It belongs to somebody else; nothing of it counts any more."""
        self.end = progress.next
        """Everything below was fetched."""
        self._groups: dict[int, bytes | None] = {}
        self._buried: set[int] = set()
        """Messages that count as finished while their groups wait for the turn that holds them."""
        self._purged = dict(progress.purged)
        self._in_vain = False
        """All that was fetched last belongs to groups that handlers have, or could have, already."""
        self._kept_then = 0
        self._finished = 0
        self._ticked = 0.0
        self._slow = True

    # -- what comes in ---------------------------------------------------------------------------------------

    def feed(self, records: Sequence[Any]) -> None:
        """Take what was fetched, in order."""
        undone, free = 0, self.ledger.free
        for record in records:
            offset = record.offset
            if offset < self.end:
                continue  # a fetch from before a seek
            self.end = offset + 1
            if not self.watermark.delivered(offset):
                continue
            if self._purged and self._is_purged(record):
                self._count_finished(offset)
                continue
            self._add(record)
            undone += 1
        if undone:
            self._in_vain = self.ledger.free <= free
            self._kept_then = len(self.cache)

    def _is_purged(self, record: Any) -> bool:
        begin, end = self._purged.get(record.key, (0, 0))
        return record.key is not None and begin <= record.offset < end

    def reached(self, offset: int) -> None:
        """Note that the log was read up to here: no message lies between."""
        self.end = max(self.end, offset)
        self.watermark.reached(self.end)

    def bring(self, record: Any) -> bool:
        """Take a redriven message, before all later ones of its group that nobody has acquired; whether it was missing."""
        # It may be here until the turn that wrote its dead letter ends.
        if record.offset in self._groups or not self.redrives.arrive(record.offset):
            return False
        self._add(record)
        return True

    def _add(self, record: Any) -> None:
        self.ledger.append(record.offset, record.key, record.timestamp)
        self._groups[record.offset] = record.key
        self.cache.cache(record)

    def wants_more(self, idle: int, fetch_max: int = 0) -> bool:
        """Whether to fetch on; ``idle`` = handlers that lack work, ``fetch_max`` = records that a fetch brings.

        Half of what may be kept is filled in any case. Beyond it, fetching only looks for work that handlers lack: what has to be parked
        is read twice. After a look that brought nothing new, the next one waits until the window has moved on, or so little is finished that
        there is time for it.
        """
        if not self._groups or (not self.cache.backlog and self.cache.takes(fetch_max)):
            return len(self.cache.parked) < PARKED_MAX and not self.cache.full
        if not idle or len(self.cache.parked) >= PARKED_MAX or self.cache.full:
            return False
        return not self._in_vain or self._slow or 4 * len(self.cache) <= 3 * self._kept_then

    def tick(self, now: float) -> None:
        """Measure how fast messages are finished; ``now``: s."""
        if now - self._ticked < TICK_S:
            return
        self._slow = self._finished < SLOW * (now - self._ticked)
        self._ticked, self._finished = now, 0

    def set_aside(self, offset: int) -> None:
        """Note that a message waits for its next attempt, or for an operator: its record need not stay in memory."""
        self.cache.set_aside(offset, self._groups[offset])

    def unpark(self, records: Sequence[Any], *, always: bool) -> bool:
        """Keep those that are parked, as far as there is room; with ``always`` the first in any case.

        Returns:
            False: another message has one of the offsets now, so the log is another one. Nothing of it is kept.
        """
        known = ((record, self.ledger.find(record.offset)) for record in records)
        if any(found is not None and found != (item.key, item.timestamp) for item, found in known):
            return False
        self.cache.unpark(records, always=always)
        return True

    def offsets_of(self, group: bytes | None) -> list[int]:
        """Return the undone messages of a group, in order; O(n)."""
        return sorted(offset for offset, item in self._groups.items() if item == group)

    def group_of(self, offset: int) -> bytes | None:
        """Return the group of an undone message."""
        return self._groups[offset]

    # -- what is finished ------------------------------------------------------------------------------------

    def finish(self, offset: int, how: End, holder: Hashable = None) -> None:
        """End a message; its group goes on, except behind a dead letter.

        Args:
            offset: Its.
            how: Its result.
            holder: The turn that acknowledges or rejects it.

        Raises:
            KeyError: the holder does not hold it.
        """
        if how is End.ACK:  # called for each message
            self.ledger.acknowledge(holder, offset)
        elif how is End.REJECT:
            self.ledger.reject(holder, offset)
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
        """Drop what nobody acquired of a group below an offset, fetched or not; returns how many were fetched."""
        dropped = self.ledger.purge(group)
        for offset in dropped:
            self.finish(offset, End.PURGE)
        # Its acquired messages lie below the end: a successor has to do that.
        begin, known = self._purged.get(group, (0, 0))
        self._purged[group] = (begin, max(below, known)) if known > self.end else (self.end, below)
        return len(dropped)

    def skip(self, group: bytes) -> int:
        """Drop the first message of a group, if nobody acquired any of it; returns how many went, 1 or 0."""
        offset = self.ledger.skip(group)
        if offset is None:
            return 0
        self.finish(offset, End.PURGE)
        return 1

    def unfetched(self, below: int) -> list[int]:
        """Return the offsets below this one that the progress names and that are not here, in order.

        Their groups are known to the log alone.
        """
        begun = {*self.redrives.blocked, *self.attempts.counts, *self.attempts.failures}
        unread = (number for number in begun if number >= self.end)
        return sorted(number for number in {*unread, *self.redrives.missing()} if number < below)

    def drop_unfetched(self, group: bytes, groups: Mapping[int, bytes | None]) -> list[int]:
        """Finish what is unfetched of a group, by the groups of those offsets; returns which. Messages that were fetched meanwhile stay.

        A purge leaves unfetched messages to the fetch. A blocked one may be redriven before that, and would be dropped then.
        """
        found = [
            offset for offset in self.unfetched(max(groups, default=-1) + 1) if groups.get(offset) == group
        ]
        for offset in found:
            self.finish(offset, End.GONE)
        return found

    def redrive(self, offset: int, number: int) -> bool:
        """Have a finished or blocked message done once more. As :meth:`RedriveQueue.redrive`."""
        is_finished = self.watermark.is_finished(offset)
        if not self.redrives.redrive(offset, number, finished=is_finished, undone=self._groups):
            return False
        self.attempts.start_over(offset)
        return True

    def written(self, progress: Progress) -> None:
        """Note that this is committed: a successor would suspect what lies below its ``reserved``."""
        self.reserved = max(self.reserved, progress.reserved)
        self._given_then = max(progress.delivered, progress.next)

    def close(self) -> None:
        """Note that the partition belongs to somebody else."""
        self.closed = True

    # -- what others see -------------------------------------------------------------------------------------

    @property
    def next(self) -> int:
        """Everything below is finished."""
        return self.watermark.next

    @property
    def undone(self) -> int:
        """Messages that were fetched and are not finished."""
        return len(self._groups)

    @property
    def counts(self) -> Mapping[str, int]:
        """Messages that are undone; of these kept, parked and blocked."""
        found = {"undone": self.undone, "kept": len(self.cache), "parked": len(self.cache.parked)}
        blocked = len(self.redrives.blocked)
        return {**found, "blocked": blocked} if blocked else found

    @property
    def crowding(self) -> float:
        """Share of :data:`PARKED_MAX`, or of the memory, that is used up; at 1 nothing more is fetched."""
        return max(len(self.cache.parked) / PARKED_MAX, self.cache.crowding)

    @property
    def _given(self) -> int:
        """Everything that a handler was ever given lies below it."""
        return max(self.attempts.delivered, self.watermark.next)

    @property
    def _ahead(self) -> int:
        """How many offsets handlers may be given until progress is written again."""
        return min(AHEAD_MAX, max(AHEAD_MIN, AHEAD_INTERVALS * (self._given - self._given_then)))

    def progress(
        self,
        holder: str,
        web: str,
        *,
        state: str = HELD,
        token: int = 0,
        beat: int = 0,
        burying: Collection[int] = (),
        blocking: Collection[int] = (),
        outlived: bool = False,
        topic_id: str = "",
    ) -> Progress:
        """Return what a successor must know now; reserves ahead.

        ``burying``: messages that count as finished in it already; ``blocking``: as blocked; ``outlived``: a run that nobody could end goes on.
        """
        watermark, redrives, attempts = self.watermark, self.redrives, self.attempts
        if finishing := [number for number in burying if number not in redrives.owed]:
            watermark = watermark.without(finishing)
        blocked = redrives.blocked.union(blocking)
        return Progress(
            watermark.next,
            watermark.runs(),
            _without(attempts.counts, burying),
            max(self.reserved, self.suspect_below, self._given + self._ahead),
            holder,
            web,
            # Below the end they have been dropped already.
            {group: run for group, run in self._purged.items() if run[1] > self.end},
            state,
            token,
            attempts.delivered,
            len(attempts.running.difference(burying)) or int(outlived),
            beat,
            _without(attempts.failures, burying),
            topic_id,
            tuple(sorted(number for number in redrives.owed if number not in burying)),
            tuple(
                sorted(item for item in blocked if item in redrives.owed or not watermark.is_finished(item))
            ),
            dict(redrives.counts),
        )


def _without(known: Mapping[int, _Known], offsets: Iterable[int]) -> dict[int, _Known]:
    """Return a copy without these offsets. It is made with each write: a hundred thousand entries take a millisecond."""
    found = dict(known)
    for offset in offsets:
        found.pop(offset, None)
    return found
