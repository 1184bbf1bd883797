"""Offset at which reading continues, from the progress record and the present state of the cluster. Pure."""

import dataclasses
from dataclasses import dataclass

from ringfence_client.progress.progress_record import Progress
from ringfence_client.progress.watermark import Watermark


@dataclass(frozen=True, slots=True)
class Log:
    """A partition as it is now. Ask for the ID before the rest: offsets of a topic that is older than its ID would be skipped."""

    topic_id: str
    """Kafka's own, of the topic."""
    committed: int | None
    """The consumer group's offset, as far as it is trusted; None = none. Kafka forgets it together with the topic."""
    start: int
    """Offset of the oldest record that retention left."""
    end: int
    """The offset that the next record gets."""


@dataclass(frozen=True, slots=True)
class Resumption:
    """The offset at which reading continues, and facts for the log."""

    progress: Progress
    """Progress in the present topic. It has nothing of another one."""
    recreated: bool = False
    """The record is of a topic of that name that was deleted."""
    moved: bool = False
    """Somebody has set the group's offset since."""
    beyond: bool = False
    """Somebody has set it beyond the end of the log, so it is not followed."""
    lost_tail: bool = False
    """The log ends before what is finished."""
    gap: int = 0
    """How many offsets retention deleted that were not finished."""


def resume(recorded: Progress | None, log: Log) -> Resumption:
    """Return where to go on, by a record and the log as it is now.

    Record and offset are written in one transaction, so they differ only if somebody has set the offset. Then it counts, also in a new
    topic. An offset beyond the end of the log names no message; where the record knows better it is not followed.
    """
    recreated = moved = beyond = lost_tail = False
    gap = 0
    if recorded is None:
        progress = Progress(log.start if log.committed is None else log.committed)
    else:
        recreated = recorded.topic_id != log.topic_id
        moved = log.committed is not None and log.committed != recorded.next
        progress = Progress(log.start) if recreated else recorded
        if moved and log.committed is not None and log.committed > log.end >= progress.next:
            moved, beyond = False, True
        if log.committed is not None and moved:
            # Redriven messages below are owed all the same. From there on everything is done again.
            owed = () if recreated else tuple(number for number in recorded.again if number < log.committed)
            blocked = tuple(number for number in recorded.blocked if number in owed)
            redriven = {} if recreated else recorded.redriven
            progress = Progress(log.committed, again=owed, blocked=blocked, redriven=redriven)
    if progress.next > log.end:
        lost_tail = True
        progress = Progress(log.start)
    elif progress.next < log.start:
        gap = _missed(progress, log.start)
        progress = _from(progress, log.start)
    return Resumption(
        dataclasses.replace(progress, topic_id=log.topic_id),
        recreated=recreated, moved=moved, beyond=beyond, lost_tail=lost_tail, gap=gap,
    )  # fmt: skip


def _missed(progress: Progress, start: int) -> int:
    """Return how many offsets below ``start`` were due."""
    finished = sum(min(stop, start) - min(begin, start) for begin, stop in progress.finished)
    return start - progress.next - finished + sum(number < start for number in progress.again)


def _from(progress: Progress, start: int) -> Progress:
    """Return what it says of offsets from ``start`` on: below there is nothing any more."""
    watermark = Watermark(progress.next, progress.finished)
    watermark.reached(start)
    attempts = {offset: count for offset, count in progress.attempts.items() if offset >= start}
    failures = {offset: failure for offset, failure in progress.failures.items() if offset >= start}
    return dataclasses.replace(
        progress,
        next=watermark.next,
        finished=watermark.runs(),
        attempts=attempts,
        failures=failures,
        again=tuple(number for number in progress.again if number >= start),
        blocked=tuple(number for number in progress.blocked if number >= start),
    )
