"""Offsets of a bridge: where it starts, and what stands beside a committed one. Pure."""

import json
from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Literal

from agents.bridge.plan import Plan
from agents.bridge.window import Place

BYTES_MAX: Final = 4_000
ERROR_CHARACTERS_MAX: Final = 600


@dataclass(frozen=True, slots=True)
class Map:
    """The members of a strict connection that this was forwarded by."""

    number: int
    """Grows with each change."""
    members: tuple[str, ...]


NOT_BEGUN: Final = "not begun"
"""These members were agreed upon, and nobody has opened the partition yet."""
AT_REST: Final = "at rest"
"""The last holder ended in order and sent nothing beyond the offset."""


@dataclass(frozen=True, slots=True)
class OffsetMetadata:
    """Commit metadata of one source partition."""

    topic_id: str = ""
    """ID of the source topic; empty = not known."""
    partitions: int = 0
    """Partition count of the source topic when the bridge began here."""
    instance: str = ""
    """Instance that wrote it."""
    web: str = ""
    """Location of that instance's web pages."""
    forwarded: int = 0
    """Records that the target acknowledged, also what was sent again."""
    retried: int = 0
    """Records that were sent again, or will be, after a failure."""
    filtered: int = 0
    quarantined: int = 0
    gap_records: int = 0
    """Offsets that retention took before they were read."""
    error: str = ""
    """Problem of the partition; empty = none."""
    since_ms: int = 0
    """When that began."""
    map: Map | None = None
    lost_end: int = 0
    """Everything that was forwarded lies below, and the log ended before: it stands until somebody sets the offset. 0 = it does not."""
    sent: int = 0
    """The target may have got what lies below; 0 = nothing beyond the offset, as far as its bridge knew then."""
    still: str = ""
    """:data:`NOT_BEGUN` or :data:`AT_REST`; empty = it is open, or was when its bridge died: more may have been sent."""
    returned: int = 0
    """Messages that had been at the target, or here: of those that were filtered, or forwarded all the same."""


def encode(note: OffsetMetadata) -> str:
    """As it is committed."""
    text = _dump(replace(note, error=note.error[:ERROR_CHARACTERS_MAX]))
    return text if len(text.encode()) <= BYTES_MAX else _dump(replace(note, error=note.error[:100]))


def _dump(note: OffsetMetadata) -> str:
    given = {key: value for key, value in asdict(note).items() if value}
    return json.dumps({"v": 1, **given}, ensure_ascii=False, separators=(",", ":"))


def decode(text: str) -> OffsetMetadata | None:
    """None = it is not ours."""
    try:
        found: dict[str, Any] = json.loads(text)
        if found.pop("v") != 1:
            return None
        shared = found.pop("map", None)
        members = None if shared is None else Map(int(shared["number"]), tuple(map(str, shared["members"])))
        kinds = {name: type(default) for name, default in asdict(OffsetMetadata()).items() if name != "map"}
        return OffsetMetadata(
            **{name: kinds[name](item) for name, item in found.items() if name in kinds}, map=members
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


@dataclass(frozen=True, slots=True)
class SourceLog:
    """A partition as it is now. Ask for the ID before the rest."""

    topic_id: str
    partitions: int
    """Partition count of the topic."""
    start: int
    """Offset of the oldest record that retention left."""
    stable: int
    """Up to where committed data can be read."""
    end: int
    """The offset that the next record gets."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """Start position of an opening, and its events to report."""

    offset: int
    note: OffsetMetadata
    recreated: bool = False
    """The commit belongs to a deleted topic of the same name."""
    gap: int = 0
    """Offsets that retention took before they were forwarded."""
    skipped: int = 0
    """Offsets before it that are there and are not forwarded, because nothing was committed and the bridge starts at the latest."""
    beyond: bool = False
    """The log has lost its end: nothing may be forwarded before somebody has looked. The note says so, too."""


@dataclass(frozen=True, slots=True)
class Missing:
    """An opening that ended because the next offset was not there."""

    place: Place
    offset: int


def begin(
    partition: int,
    log: SourceLog,
    committed: int | None,
    known: OffsetMetadata | None,
    others: Collection[OffsetMetadata],
    start: Literal["earliest", "latest"],
    missing: Missing | None = None,
) -> Beginning:
    """Find the start position of a partition from its commit and its log.

    Args:
        partition: Its number.
        log: The log as it is now.
        committed: The group's offset; None = none.
        known: The commit's metadata; None = none, or not Ringfence's.
        others: The group's commit metadata of other partitions.
        start: Beginning of a bridge that has never run.
        missing: The opening before this one, if it ended so: it has confirmed and sent more than is committed.
    """
    before = None if missing is None or missing.place.topic_id != log.topic_id else missing.place
    fresh = OffsetMetadata(log.topic_id, log.partitions)
    if committed is None and before is None:
        # Under 'latest' too a partition that was added since is forwarded from its beginning.
        added = any(other.topic_id == log.topic_id and 0 < other.partitions <= partition for other in others)
        if start == "earliest" or added:
            return Beginning(log.start, fresh)
        return Beginning(log.stable, fresh, skipped=log.stable - log.start)
    if known is not None and known.topic_id and known.topic_id != log.topic_id:
        return Beginning(log.start, replace(fresh, map=known.map), recreated=True)
    note = replace(known or fresh, topic_id=log.topic_id)
    if not note.partitions:
        note = replace(note, partitions=log.partitions)
    confirmed = max(at for at in (committed, None if before is None else before.confirmed) if at is not None)
    reached = max(confirmed, note.sent, 0 if before is None else before.reached)
    cut = before is not None and missing is not None and log.start <= missing.offset  # retention took nothing
    if note.lost_end or reached > log.end or cut:
        return Beginning(confirmed, replace(note, lost_end=max(note.lost_end, reached)), beyond=True)
    gap = max(0, log.start - confirmed)
    if gap:
        note = replace(note, gap_records=note.gap_records + gap)
    return Beginning(confirmed + gap, note, gap=gap)


def unknown_place(plan: Plan, partition: int, offset: int) -> str:
    """Return why a partition waits whose committed offset is a foreign consumer's, and what to do.

    Without duplicate detection a second copy of all would go to the target. With ``start = "latest"`` nobody knows which messages are not
    to be forwarded.
    """
    return (
        f"the offset {offset} of group {plan.group} for {plan.source_topic}/{partition} was not committed "
        "by this bridge, and its own position is unknown. Its messages wait. Find the last one that "
        "arrived at the target, stop the bridge, run 'kafka-consumer-groups.sh --reset-offsets --group "
        f"{plan.group} --topic {plan.source_topic}:{partition} --to-offset OFFSET --execute' with the next "
        "offset, and start the bridge"
    )


def lost_end(plan: Plan, partition: int, end: int, committed: int, reached: int = 0) -> str:
    """Return why a partition stopped whose log ended before the forwarded offset, and the way out.

    ``reached``: the offset up to which this bridge may have forwarded; 0 = unknown, an operator has set the offset.
    """
    place = f"{plan.source_topic}/{partition}"
    if reached:
        return (
            f"stopped: {place} ends at {end}, but was forwarded up to {reached}, so it lost its last "
            "records. The target knows the offsets of new messages there, and would discard them as "
            "duplicates. Give the bridge another name; any other way loses messages"
        )
    return (
        f"stopped: group {plan.group} has committed {committed} of {place}, which ends at {end}. If this "
        "bridge forwarded up to there, the log lost its last records: give the bridge another name. If "
        "somebody set the offset, stop the bridge, correct it (kafka-consumer-groups.sh --reset-offsets), "
        "and start it"
    )
