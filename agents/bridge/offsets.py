"""Start offsets of a bridge, and the metadata of its commits. Pure."""

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
    """Members of a strict connection at the time of a commit."""

    number: int
    """Number of the change of members; it increases."""
    members: tuple[str, ...]


NOT_BEGUN: Final = "not begun"
"""These members were agreed upon, and no process has opened the partition yet."""
AT_REST: Final = "at rest"
"""The last holder ended orderly and sent nothing at or above the offset."""


@dataclass(frozen=True, slots=True)
class OffsetMetadata:
    """Commit metadata of one source partition."""

    topic_id: str = ""
    """Kafka ID of the source topic; empty = not known."""
    partitions: int = 0
    """Partition count of the source topic when the bridge first started here."""
    instance: str = ""
    """Name of the process that wrote it."""
    web: str = ""
    """Location of that process's web pages."""
    forwarded: int = 0
    """Number of records that the target acknowledged, including repeated ones."""
    retried: int = 0
    """Number of records that are sent again after failures."""
    filtered: int = 0
    quarantined: int = 0
    gap_records: int = 0
    """Number of offsets that retention deleted before they were read."""
    error: str = ""
    """Problem of the partition; empty = none."""
    since_ms: int = 0
    """Start of the problem, in ms since the epoch; 0 = none."""
    map: Map | None = None
    lost_end: int = 0
    """End of the forwarded offsets, if the log ended below it. The partition waits until a person sets the offset. 0 = no such loss."""
    sent: int = 0
    """End of the offsets that the target may have; 0 = none above the committed offset, as far as the bridge knew."""
    still: str = ""
    """:data:`NOT_BEGUN` or :data:`AT_REST`. Empty = the partition is open, or was when its bridge died, and more may have been sent."""
    returned: int = 0
    """Number of messages that came back: they were filtered, or forwarded nevertheless."""


def encode(note: OffsetMetadata) -> str:
    """Return the text for a commit."""
    text = _dump(replace(note, error=note.error[:ERROR_CHARACTERS_MAX]))
    return text if len(text.encode()) <= BYTES_MAX else _dump(replace(note, error=note.error[:100]))


def _dump(note: OffsetMetadata) -> str:
    given = {key: value for key, value in asdict(note).items() if value}
    return json.dumps({"v": 1, **given}, ensure_ascii=False, separators=(",", ":"))


def decode(text: str) -> OffsetMetadata | None:
    """Read the text of a commit; None if Ringfence did not write it."""
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
    """State of a partition's log. Query the topic ID before the offsets."""

    topic_id: str
    partitions: int
    start: int
    """Offset of the oldest remaining record."""
    stable: int
    """End of the committed data that can be read."""
    end: int


@dataclass(frozen=True, slots=True)
class Beginning:
    """Start position of an opening, and events to report."""

    offset: int
    note: OffsetMetadata
    recreated: bool = False
    """Whether the commit belongs to a deleted topic of the same name."""
    gap: int = 0
    """Number of offsets that retention deleted before they were forwarded."""
    skipped: int = 0
    """Number of existing offsets that are skipped: nothing was committed and the bridge starts at the latest offset."""
    beyond: bool = False
    """Whether the log lost its end: a person must check before anything is forwarded. The metadata also states it."""


@dataclass(frozen=True, slots=True)
class Missing:
    """Opening that ended because its next offset did not exist."""

    place: Place
    offset: int


def start_position(
    partition: int,
    log: SourceLog,
    committed: int | None,
    known: OffsetMetadata | None,
    others: Collection[OffsetMetadata],
    start: Literal["earliest", "latest"],
    missing: Missing | None = None,
) -> Beginning:
    """Return the start position of a partition, from its commit and its log.

    ``committed``: the group's offset; ``known``: metadata of the commit, None = not written by Ringfence; ``others``: metadata of the group's
    commits of other partitions; ``start``: start of a bridge that never ran; ``missing``: previous opening, if its next offset was missing: it
    confirmed and sent more than is committed.
    """
    before = None if missing is None or missing.place.topic_id != log.topic_id else missing.place
    fresh = OffsetMetadata(log.topic_id, log.partitions)
    if committed is None and before is None:
        # With 'latest' too, partitions that were added later are forwarded from their start.
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
    # The offset is missing although retention deleted nothing.
    cut = before is not None and missing is not None and log.start <= missing.offset
    if note.lost_end or reached > log.end or cut:
        return Beginning(confirmed, replace(note, lost_end=max(note.lost_end, reached)), beyond=True)
    gap = max(0, log.start - confirmed)
    if gap:
        note = replace(note, gap_records=note.gap_records + gap)
    return Beginning(confirmed + gap, note, gap=gap)


def unknown_place(plan: Plan, partition: int, offset: int) -> str:
    """Return why a partition waits whose offset a foreign consumer committed, and what to do.

    Without duplicate detection the target would get a second copy of all messages. With ``start = "latest"`` it is not known which
    messages must not be forwarded.
    """
    return (
        f"the offset {offset} of group {plan.group} for {plan.source_topic}/{partition} was not committed "
        "by this bridge, and its own position is unknown. Its messages wait. Find the last one that "
        "arrived at the target, stop the bridge, run 'kafka-consumer-groups.sh --reset-offsets --group "
        f"{plan.group} --topic {plan.source_topic}:{partition} --to-offset OFFSET --execute' with the next "
        "offset, and start the bridge"
    )


def lost_end(plan: Plan, partition: int, end: int, committed: int, reached: int = 0) -> str:
    """Return why a partition stopped whose log ends below the forwarded offset, and the remedy.

    ``reached``: end of the offsets that this bridge may have forwarded; 0 = not known, because an operator set the offset.
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
