"""Offset at which reading continues, from the progress record and the present state of the cluster, and log lines about it."""

import dataclasses
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ringfence_client.progress.lease import Lease
from ringfence_client.progress.progress_record import RELEASED, Progress
from ringfence_client.progress.watermark import Watermark

log: Final = logging.getLogger("ringfence.consumer")


@dataclass(frozen=True, slots=True)
class Log:
    """Present state of a partition. Read the topic's ID first: an ID newer than the offsets would skip messages."""

    topic_id: str
    committed: int | None
    """The consumer group's trusted offset; None = no such offset. Kafka deletes it together with the topic."""
    start: int
    """Offset of the oldest record that retention left."""
    end: int


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


def unrecorded(progress: Progress) -> dict[int, int]:
    """Return the number of attempts without a recorded outcome, by offset: their process died, or failed to write the outcome."""
    failures = progress.failures
    found = {
        offset: count - (failures[offset].attempts if offset in failures else 0)
        for offset, count in progress.attempts.items()
    }
    return {offset: count for offset, count in found.items() if count > 0}


def survived(progress: Progress, before: Mapping[int, int]) -> Progress:
    """Return the progress of a holder whose process survived: attempts of its time ended, although no outcome was written.

    ``before``: attempts without an outcome from before its time, by offset.
    """
    counts = dict(progress.attempts)
    for offset, found in unrecorded(progress).items():
        counts[offset] -= found - min(found, before.get(offset, 0))
    attempts = {offset: count for offset, count in counts.items() if count > 0}
    return dataclasses.replace(progress, attempts=attempts, state=RELEASED)


def log_beginning(lease: Lease, recorded: Progress | None, log_now: Log, found: Resumption) -> None:
    """Log the offset at which an acquired partition begins, if the last holder ended elsewhere."""
    before = log_now.committed if recorded is None else recorded.next
    wanted = log_now.committed if found.moved else before
    if found.recreated:
        log.warning(
            "%s: %s was deleted and created again: beginning at %s, %d; the progress of %s in the old "
            "topic is discarded",
            lease, lease.topic, "the offset that was set" if found.moved else "its start", found.progress.next, lease.group,
        )  # fmt: skip
    elif found.moved:
        log.warning(
            "%s: the offset of %s was moved from %d to %d: beginning there, and finished messages above it "
            "are handled again",
            lease, lease.group, before, log_now.committed,
        )  # fmt: skip
    if found.beyond:
        log.warning(
            "%s: somebody set the offset of %s to %s, but the log ends at %d: the offset is not followed, "
            "and reading continues at %d. To move it, stop all consumers of the group, and set an offset "
            "up to the end",
            lease, lease.group, log_now.committed, log_now.end, found.progress.next,
        )  # fmt: skip
    if recorded is None and log_now.committed is None and log_now.start:
        log.warning(
            "GAP: %s begins at %d, and %s has neither progress nor an offset there: up to %d messages were "
            "deleted before it could read them. For a new group this is normal. For another one publish "
            "them again, after 'ringfence rings clear', and set a longer retention.ms on %s",
            lease, log_now.start, lease.group, log_now.start, lease.topic,
        )  # fmt: skip
    if recorded is None and log_now.committed is not None:
        log.warning(
            "%s: %s has an offset there, %d, but no progress record. For a group that is new to Ringfence "
            "this is normal. Otherwise the record is lost: messages that were finished above the offset are "
            "handled again, and fencing tokens begin at 1",
            lease, lease.group, log_now.committed,
        )  # fmt: skip
    if found.lost_tail:
        log.warning(
            "%s ends at %d, but %s has finished it up to %d: it was recreated, or lost its last records; "
            "beginning at its start", lease, log_now.end, lease.group, wanted,
        )  # fmt: skip
    if found.gap:
        log.error(
            "GAP: %s begins at %d, but %s has finished it only up to %d: retention deleted the messages "
            "between",
            lease, log_now.start, lease.group, wanted,
        )  # fmt: skip
