"""What was fetched of one partition and is not finished. No I/O.

The ledger knows every undone message; the records themselves are kept for a bounded number (:mod:`ringfence_client.window.record_cache`),
and what comes beyond is read again when its turn comes near. So one stuck group does not fill the window, and the others
flow on.
"""

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from ringfence_client.handlers.retries import Failures
from ringfence_client.progress.progress_record import HELD, Progress
from ringfence_client.progress.watermark import Watermark
from ringfence_client.window.ledger import GroupInfo, GroupLedger
from ringfence_client.window.memory_budget import MemoryBudget
from ringfence_client.window.record_cache import RecordCache

_Known = TypeVar("_Known")

RECORDS_MAX: Final = 10_000
"""Records kept of a partition."""
PARKED_MAX: Final = 100_000
"""Messages whose offset alone is kept."""
SLOW: Final = 1_000
"""With fewer finished messages a second there is time to look for others."""
TICK_S: Final = 0.1
AHEAD: Final = 20_000
"""Offsets that are reserved ahead of what was fetched."""
AGAIN_MAX: Final = 10_000
"""Redriven messages that wait to be done; more have to come later."""
REDRIVEN_MAX: Final = 1_000
"""Redriven messages of which is remembered how often they were, beside those that wait. More than are asked for at once: who asks writes
down that they are settled before it asks for others. They stand in every record of the progress."""


class Window:
    """One partition, from its opening until it is given away."""

    def __init__(
        self,
        progress: Progress,
        *,
        memory: MemoryBudget,
        prefetch: int = 1,
        records_max: int = RECORDS_MAX,
    ) -> None:
        """``progress`` is the last holder's, ``memory`` the process's."""
        self.ledger: GroupLedger[int] = GroupLedger(prefetch)
        self.watermark = Watermark(progress.next, progress.finished)
        again = frozenset(progress.again)

        def due(offset: int) -> bool:
            # What is carried on of a finished message would count as failing for ever.
            return offset in again or not self.watermark.is_finished(offset)

        self.attempts = {offset: count for offset, count in progress.attempts.items() if due(offset)}
        """Of what was begun and is not finished."""
        self.failures = {offset: failure for offset, failure in progress.failures.items() if due(offset)}
        """Of these what a handler failed at, and is not finished."""
        self.delivered = progress.delivered
        """Everything that a handler was ever given lies below."""
        self.running: set[int] = set()
        """What handlers have, or will be given again before others of its group."""
        self.reserved = 0
        """Nothing at or above it may be handed out: a successor would not suspect it."""
        self.suspect_below = 0 if progress.released else progress.reserved
        """Unfinished messages below it may have been running when the last holder died."""
        self.outlived = False
        """A run that nobody could end goes on."""
        self.closed = False
        """It belongs to somebody else; nothing of it counts any more."""
        self.gap_records = 0
        """Offsets that retention deleted before anybody opened it; nobody will be given their messages."""
        self.resident = RecordCache(records_max, memory)
        self._groups: dict[int, bytes | None] = {}
        self.redriven: dict[int, int] = dict(progress.redriven)
        """How often an offset was redriven."""
        self._again: dict[int, bool] = dict.fromkeys(progress.again, False)
        """Finished as far as the watermark goes, and to be done once more; and whether the record was brought."""
        self.blocked: set[int] = set(progress.blocked)
        """Not finished, and not to be tried: their dead letters are written, their groups wait for them to be redriven."""
        self._buried: set[int] = set()
        """Finished as far as the progress goes; their groups wait until that is written."""
        self._purged = dict(progress.purged)
        self.end = progress.next
        """Everything below was fetched."""
        self._in_vain = False
        """All that was fetched last belongs to groups that handlers have, or could have, already."""
        self._kept_then = 0
        self._finished = 0
        self._ticked = 0.0
        self._slow = True

    # -- what comes in ---------------------------------------------------------------------------------------

    def feed(self, records: Sequence[Any]) -> int:
        """Take what was fetched, in order; returns how many groups it brought that nobody has: handlers may begin them."""
        undone, free = 0, self.ledger.free
        for record in records:
            offset = record.offset
            if offset < self.end:
                continue  # a fetch from before a seek
            self.end = offset + 1
            if not self.watermark.delivered(offset):
                continue
            if record.key is not None and offset in range(*self._purged.get(record.key, (0, 0))):
                self._done(offset)
                continue
            self.ledger.append(offset, record.key, record.timestamp)
            self._groups[offset] = record.key
            self.resident.add(record)
            undone += 1
        if not undone:
            return 0
        found = self.ledger.free - free
        self._in_vain = not found
        self._kept_then = len(self.resident)
        return found

    def reached(self, offset: int) -> None:
        """The log was read up to here: what lies between is no message."""
        self.end = max(self.end, offset)
        self.watermark.reached(self.end)

    def wants_more(self, idle: int, fetch_max: int = 0) -> bool:
        """Whether to fetch on; ``idle`` = handlers that lack work, ``fetch_max`` = records that a fetch brings.

        Where there is nothing to do anything is fetched. Half of what may be kept is filled in any case. Beyond it one only looks for work that handlers lack: what has to be
        parked is read twice. Where the last look brought nothing new, the next one waits until the window has moved on, or
        until so little is finished that there is time for it.
        """
        if not self._groups or (not self.resident.backlog and self.resident.takes(fetch_max)):
            return len(self.resident.parked) < PARKED_MAX and not self.resident.full
        if not idle or len(self.resident.parked) >= PARKED_MAX or self.resident.full:
            return False
        return not self._in_vain or self._slow or 4 * len(self.resident) <= 3 * self._kept_then

    def tick(self, now: float) -> None:
        """The time, in seconds: to know how fast messages are finished."""
        if now - self._ticked < TICK_S:
            return
        self._slow = self._finished < SLOW * (now - self._ticked)
        self._ticked, self._finished = now, 0

    def record(self, offset: int) -> Any | None:
        """The record; None = it is parked."""
        return self.resident.record(offset)

    def set_aside(self, offset: int) -> None:
        """Note that a message waits for its next attempt, or for an operator: its record need not stay in memory."""
        self.resident.set_aside(offset, self._groups[offset])

    def unpark(self, records: Sequence[Any], *, always: bool) -> bool:
        """Keep those that are parked, as far as there is room; with ``always`` the first in any case.

        Returns:
            False: another message has the offset of one of them now, so the log is another one. Nothing of it is kept.
        """
        known = ((record, self.ledger.find(record.offset)) for record in records)
        if any(found is not None and found != (item.key, item.timestamp) for item, found in known):
            return False
        self.resident.unpark(records, always=always)
        return True

    def of(self, group: bytes | None) -> list[int]:
        """The undone messages of a group, in order; O(n)."""
        return sorted(offset for offset, item in self._groups.items() if item == group)

    def group(self, offset: int) -> bytes | None:
        """Of an undone message."""
        return self._groups[offset]

    # -- what is done ----------------------------------------------------------------------------------------

    def begin(self, offset: int, *, counted: bool = True) -> int:
        """Note that a handler gets a message, and return which attempt this is. An uncounted attempt is not a death if the process dies."""
        self.delivered = max(self.delivered, offset + 1)
        self.running.add(offset)
        attempt = self.attempts.get(offset, 0) + 1
        if counted:
            self.count(offset)
        return attempt

    def count(self, offset: int) -> None:
        """Count an attempt."""
        self.attempts[offset] = self.attempts.get(offset, 0) + 1

    def put_back(self, holder: Hashable) -> None:
        """All that it holds waits again, in its place."""
        self.running.difference_update(self.ledger.close(holder))

    def take_back(self, offset: int, *, counted: bool = True) -> None:
        """The attempt did not count: it was released, or cut short."""
        self.running.discard(offset)
        if not counted:
            return
        if self.attempts.get(offset, 0) > 1:
            self.attempts[offset] -= 1
        else:
            self.attempts.pop(offset, None)

    def rest(self, offsets: Iterable[int]) -> None:
        """Nothing runs of these, nor will before they are begun again: whoever waits for this holder need not wait for them."""
        self.running.difference_update(offsets)

    def fail(self, offset: int, now_ms: int) -> Failures:
        """Its handler failed: how often by now, and since when."""
        known = self.failures.get(offset, Failures(0, now_ms))
        found = self.failures[offset] = Failures(known.attempts + 1, known.since_ms)
        return found

    def block(self, offsets: Iterable[int]) -> None:
        """Their dead letters are written; their groups wait."""
        self.blocked.update(offsets)

    def buried(self, offsets: Iterable[int]) -> None:
        """Their dead letters are written, in one transaction with progress that says so."""
        for offset in offsets:
            self._done(offset)
            self._buried.add(offset)

    def finish(self, holder: Hashable, offset: int, *, reject: bool = False) -> None:
        """It is done; its group goes on.

        Raises:
            KeyError: the holder does not hold it.
        """
        if reject:
            self.ledger.reject(holder, offset)
        else:
            self.ledger.acknowledge(holder, offset)
        self._drop(offset)

    def purge(self, group: bytes, below: int) -> int:
        """Drop what nobody acquired of a group below an offset, also what is not fetched yet.

        Returns how many of those that are fetched.
        """
        dropped = self.ledger.purge(group)
        for offset in dropped:
            self._drop(offset)
        # What was acquired of it lies below the end: a successor has to do that.
        begin, known = self._purged.get(group, (0, 0))
        self._purged[group] = (begin, max(below, known)) if known > self.end else (self.end, below)
        return len(dropped)

    def skip(self, group: bytes) -> int:
        """Drop the first message of a group, if nobody acquired any of it; returns how many went, 1 or 0."""
        offset = self.ledger.skip(group)
        if offset is None:
            return 0
        self._drop(offset)
        return 1

    def _drop(self, offset: int) -> None:
        if offset in self._buried:
            self._buried.discard(offset)
        else:
            self._done(offset)
        self._finished += 1
        self.resident.drop(offset, self._groups.pop(offset))

    def _done(self, offset: int) -> None:
        if offset not in self._again:
            self.watermark.finish(offset)
        self._forget(offset)

    def _forget(self, offset: int) -> None:
        """All that is known of a message that is done."""
        self._again.pop(offset, None)
        self.blocked.discard(offset)
        self.attempts.pop(offset, None)
        self.failures.pop(offset, None)
        self.running.discard(offset)

    # -- what is done again ----------------------------------------------------------------------------------

    def redrive(self, offset: int, number: int) -> bool:
        """A finished or blocked message is to be done once more, for the ``number``-th time.

        Returns:
            False: that was asked for already, or it is going to be done in any case.

        Raises:
            OverflowError: too many wait for that.
        """
        if self.redriven.get(offset, 0) >= number:
            return False
        if offset in self.blocked:
            self.blocked.discard(offset)
        elif not self.watermark.is_finished(offset) or offset in self._again:
            return False
        elif len(self._again) >= AGAIN_MAX:
            raise OverflowError(f"{AGAIN_MAX} redriven messages wait already")
        else:
            self._again[offset] = False
        self.attempts.pop(offset, None)
        self.failures.pop(offset, None)
        self.redriven.pop(offset, None)
        self.redriven[offset] = number
        for item in list(self.redriven)[: max(0, len(self.redriven) - REDRIVEN_MAX)]:
            if item not in self._again and item not in self._groups:
                del self.redriven[item]
        return True

    def missing(self) -> list[int]:
        """Offsets of redriven messages whose records are not here, in order."""
        return sorted(offset for offset, there in self._again.items() if not there)

    def bring(self, record: Any) -> bool:
        """One of these. It takes its place in its group: before all later ones that nobody has acquired."""
        if self._again.get(record.offset, True) or record.offset in self._groups:
            return False  # in the latter case its dead letter has just been written
        self._again[record.offset] = True
        self.ledger.append(record.offset, record.key, record.timestamp)
        self._groups[record.offset] = record.key
        self.resident.add(record)
        return True

    def drop_unfetched(self, offset: int) -> None:
        """This message, of which nothing is fetched, is finished, and need not be done again."""
        if offset not in self._again:
            self.watermark.finish_unread(offset)
        self._forget(offset)

    def noted(self, below: int) -> list[int]:
        """Offsets below this one that were begun, or behind which their groups wait, and which are not finished; in order."""
        return sorted(number for number in {*self.blocked, *self.attempts, *self.failures} if number < below)

    def named(self, below: int) -> list[int]:
        """Offsets below this one that the progress names, and of which nothing is fetched: whose they are, the log says; in order."""
        unread = (number for number in self.noted(below) if number >= self.end)
        return sorted({*unread, *(number for number in self.missing() if number < below)})

    def drop_named(self, group: bytes, groups: Mapping[int, bytes | None]) -> list[int]:
        """Finish what is named of a group, by the groups of those; returns which. What was fetched meanwhile is left.

        A purge leaves what is not fetched to whoever fetches it. What is blocked may be redriven before that, and would be dropped then.
        """
        found = [number for number in self.named(max(groups, default=-1) + 1) if groups.get(number) == group]
        for number in found:
            self.drop_unfetched(number)
        return found

    def gone(self, offset: int) -> None:
        """Of a redriven message the log has no record any more."""
        self._again.pop(offset, None)

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
        """For health: undone, of these kept and parked."""
        found = {"undone": self.undone, "kept": len(self.resident), "parked": len(self.resident.parked)}
        return {**found, "blocked": len(self.blocked)} if self.blocked else found

    @property
    def crowding(self) -> float:
        """Return how much of the bound is used up by messages of which the offset alone is kept; at 1 nothing more is fetched."""
        return len(self.resident.parked) / PARKED_MAX

    def groups(self) -> Iterator[GroupInfo]:
        """As the ledger has them."""
        yield from self.ledger.groups()

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
        topic_id: str = "",
    ) -> Progress:
        """What a successor must know, now; reserves ahead.

        ``burying``: what counts as finished in it already; ``blocking``: as blocked.
        """
        watermark = self.watermark
        if finishing := [number for number in burying if number not in self._again]:
            watermark = watermark.without(finishing)
        blocked = self.blocked.union(blocking)
        return Progress(
            watermark.next,
            watermark.runs(),
            _without(self.attempts, burying),
            max(self.reserved, self.suspect_below, self.end + AHEAD),
            holder,
            web,
            # Below the end they have been dropped already.
            {group: run for group, run in self._purged.items() if run[1] > self.end},
            state,
            token,
            self.delivered,
            len(self.running.difference(burying)) or int(self.outlived),
            beat,
            _without(self.failures, burying),
            topic_id,
            tuple(sorted(number for number in self._again if number not in burying)),
            tuple(
                sorted(
                    number for number in blocked if number in self._again or not watermark.is_finished(number)
                )
            ),
            dict(self.redriven),
        )


def _without(known: Mapping[int, _Known], offsets: Iterable[int]) -> dict[int, _Known]:
    """Return a copy without these offsets. It is made with each write: a hundred thousand entries take a millisecond."""
    found = dict(known)
    for offset in offsets:
        found.pop(offset, None)
    return found
