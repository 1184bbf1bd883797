"""Where a bridge goes on in a source partition. Pure."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Literal

from agents.bridge.note import Note


@dataclass(frozen=True, slots=True)
class SourceLog:
    """A partition as it is now. Ask for the ID before the rest."""

    topic_id: str
    partitions: int
    """Of the topic."""
    start: int
    """Of the oldest record that retention left."""
    stable: int
    """Up to where committed data can be read."""
    end: int
    """The offset that the next record gets."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where to go on, and what is to be said about it."""

    offset: int
    note: Note
    recreated: bool = False
    """What was committed is of a topic of that name that was deleted."""
    gap: int = 0
    """Offsets that retention took before they were forwarded."""
    beyond: bool = False
    """The offset is beyond the log's end: nothing may be forwarded before somebody has looked."""


def begin(
    partition: int,
    log: SourceLog,
    committed: int | None,
    known: Note | None,
    others: Collection[Note],
    start: Literal["earliest", "latest"],
) -> Beginning:
    """What a commit says of the log as it is now.

    Args:
        partition: Which.
        log: As it is.
        committed: The group's offset; None = none.
        known: What was noted beside it; None = nothing, or nothing of ours.
        others: What the group has noted of other partitions.
        start: Where a bridge begins that has never run.
    """
    fresh = Note(log.topic_id, log.partitions)
    if committed is None:
        # Under 'latest' too a partition that was added since is forwarded from its beginning.
        added = any(each.topic_id == log.topic_id and 0 < each.partitions <= partition for each in others)
        return Beginning(log.stable if start == "latest" and not added else log.start, fresh)
    if known is not None and known.topic_id and known.topic_id != log.topic_id:
        return Beginning(log.start, replace(fresh, map=known.map), recreated=True)
    note = replace(known or fresh, topic_id=log.topic_id)
    if not note.partitions:
        note = replace(note, partitions=log.partitions)
    if committed > log.end:
        return Beginning(committed, note, beyond=True)
    gap = max(0, log.start - committed)
    if gap:
        note = replace(note, gap_records=note.gap_records + gap)
    return Beginning(committed + gap, note, gap=gap)
