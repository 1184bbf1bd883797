"""Offset at which reading continues, from the progress record and the present state of the cluster. Pure."""

import dataclasses
from dataclasses import dataclass

from ringfence_client.progress.progress_record import Progress
from ringfence_client.progress.watermark import Watermark


@dataclass(frozen=True, slots=True)
class Log:
    """Present state of a partition. Read the topic's ID first: an ID newer than the offsets would skip messages."""

    topic_id: str
    """Kafka's ID of the topic."""
    committed: int | None
    """The consumer group's trusted offset; None = no such offset. Kafka deletes it together with the topic."""
    start: int
    """Offset of the oldest record that retention left."""
    end: int
    """Offset of the next record."""


@dataclass(frozen=True, slots=True)
class Resumption:
    """Offset at which reading continues, and facts for the log."""

    progress: Progress
    """Progress in the present topic, without facts about a former one."""
    recreated: bool = False
    """The record belongs to a deleted topic of the same name."""
    moved: bool = False
    """Another program has set the group's offset since the record was written."""
    beyond: bool = False
    """Another program has set the offset beyond the end of the log, so it is ignored."""
    lost_tail: bool = False
    """The log ends before finished offsets."""
    gap: int = 0
    """Number of unfinished offsets that retention deleted."""


def resume(recorded: Progress | None, log: Log) -> Resumption:
    """Return the position at which reading continues, from a record and the present log.

    One transaction writes record and offset, so they differ only if another program has set the offset. Then the offset counts, also in a
    new topic. An offset beyond the end of the log names no message. It is ignored if the record lies within the log.
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
            # Redriven messages below the new offset stay due. All messages from that offset on are processed again.
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
    """Return the number of due offsets below ``start``."""
    finished = sum(min(stop, start) - min(begin, start) for begin, stop in progress.finished)
    return start - progress.next - finished + sum(number < start for number in progress.again)


def _from(progress: Progress, start: int) -> Progress:
    """Return the progress from ``start`` on. Lower offsets no longer exist."""
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
