"""Builds the record batches of one cycle from the records that were read. Pure except for aiokafka's builders."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from agents.batch.batch import Record
from agents.bridge.members import Owner
from agents.bridge.plan import Plan
from agents.bridge.translation import At, Header, Passing, Refused, RefusedError, Traced
from agents.bridge.window import Cycle, Place
from agents.decision.ids_and_groups import IdReader, is_envelope
from agents.decision.partitioner import Partitioner
from ringfence_kafka import clock
from ringfence_kafka.producer.transactional import Builder, NewBuilder
from ringfence_kafka.protocol import wire_names
from ringfence_kafka.protocol.hop import NO_IDS, OFFSET_MAX, Source, encode_at, encode_source
from ringfence_kafka.protocol.value_digest import placeholder_of
from ringfence_kafka.protocol.wire_names import NO_TIMESTAMP

QUARANTINE_PARTITION: Final = 0


@dataclass(frozen=True, slots=True)
class Target:
    """Partition count and limits of the target's topics."""

    partitions: int
    bytes_max: int
    """``max.message.bytes`` of the target topic."""
    compacted: bool
    """Whether the target topic is compacted and refuses records without a key."""
    quarantine_bytes_max: int
    """``max.message.bytes`` of the quarantine topic; 0 = the bridge has none."""
    topics: frozenset[bytes] = frozenset()
    """Topics that store a message after its arrival, if this user may see them; see :func:`ringfence_kafka.protocol.hop_trace.topic`."""
    settings: str = ""
    """Settings of both topics. After a change a topic may take records that it refused before."""


@dataclass(eq=False, slots=True)
class Batch:
    """Records on their way to one partition of the target."""

    topic: str
    partition: int
    builder: Builder
    cycle: Cycle
    first: At
    count: int = 1
    quarantine: bool = False
    """Whether the batch has a single record for the quarantine topic."""
    timestamp: int = 0
    """Timestamp of the first record, in ms."""
    made_at: float = field(default_factory=clock.now)


@dataclass(slots=True)
class CycleBatches:
    """Batches and counts of one cycle; counts are by source partition."""

    cycle: Cycle
    batches: list[Batch] = field(default_factory=list)
    filtered: dict[int, int] = field(default_factory=dict)
    returned: dict[int, int] = field(default_factory=dict)
    """Messages that came back: they are among :attr:`filtered`, or were forwarded nevertheless."""
    returned_from: bytes = b""
    """Hop trace of one of these messages."""
    quarantined: dict[int, int] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)
    too_large: bool = False
    """Whether a record exceeds a limit in :attr:`BatchBuilder.target`, which may be out of date."""
    stopped: dict[Place, RefusedError] = field(default_factory=dict)
    """Partitions with a record that neither topic takes. The batches contain neither that record nor later records of the partition."""


class BatchBuilder:
    """Builds batches for one producer session, by the current state of the target's topics."""

    def __init__(
        self,
        plan: Plan,
        target: Target,
        new_builder: NewBuilder,
        records_max: Mapping[int, int],
        refused: Refused,
    ) -> None:
        """Create the builder.

        ``records_max``: limit of a batch's records by target partition, after a refused batch. ``refused``: records that the target does
        not take.
        """
        self._plan = plan
        self.target = target
        self._new = new_builder
        self._records_max = records_max
        self._refused = refused
        self._home = Partitioner(target.partitions, plan.address.partitioner)
        self._reader = IdReader(plan.address)
        self._ids_count = plan.user_ids == "check"
        self._owner = None if plan.share is None else Owner(plan.share.members)

    def load(
        self, cycle: Cycle, read: Mapping[Place, Sequence[Record]], malformed: Mapping[tuple[int, int], str]
    ) -> CycleBatches:
        """Translate records and put them into batches, in order. A partition's part ends before a record that fits into no topic."""
        found = CycleBatches(cycle)
        records: dict[Place, int] = {}
        open_batches: dict[int, Batch] = {}
        for place, all_read in read.items():
            those = all_read
            passing = self._passing(place)
            translated = self._translate(place, those, passing)
            first = None if passing is None else passing.header
            try:
                self._fill(found, open_batches, place, translated, malformed, first)
            except RefusedError as refused:
                found.stopped[place] = refused
                those = [record for record in those if record.offset < refused.offset]
                translated = [record for record in translated if record.offset < refused.offset]
            if passing is not None and passing.returned:
                end = error.offset if (error := found.stopped.get(place)) else OFFSET_MAX
                found.returned[place.partition] = sum(number < end for number in passing.returned)
                found.returned_from = passing.example
            if len(translated) < len(those):
                found.filtered[place.partition] = len(those) - len(translated)
            records[place] = len(translated)
        found.batches += open_batches.values()
        cycle.records = records
        cycle.pending = len(found.batches)
        return found

    def _fill(
        self,
        found: CycleBatches,
        open_batches: dict[int, Batch],
        place: Place,
        translated: Sequence[Record],
        malformed: Mapping[tuple[int, int], str],
        first: Header | None,
    ) -> None:
        """Put the records of a partition into batches for the target or quarantine. ``first``: hop trace for messages without one.

        Raises RefusedError if a record fits nowhere, because the quarantine topic is missing, too small, or refused it.
        """
        number, home, detection = place.partition, self._home, self._plan.detection
        source = encode_source(Source(self._plan.name, place.topic_id, number))
        ours = self._ours(place)
        # In nearly all cycles no record needs the checks below.
        refused = self._refused.by_target
        oldest, farthest = self._refused.times()
        usual = not (malformed or refused or self._records_max or self.target.compacted)
        for record, group in zip(translated, self._groups(translated), strict=True):
            hop = encode_at(source, record.offset)
            partition = home[self._key(record, hop) if group is None else group]
            headers = (
                [*record.headers, (wire_names.HEADER_HOP, hop), *ours] if detection else list(record.headers)
            )
            if first is not None and type(record) is not Traced:
                headers.append(first)
            batch = open_batches.get(partition)
            if (
                usual
                and oldest < record.timestamp < farthest
                and batch is not None
                and batch.timestamp != NO_TIMESTAMP
                and batch.builder.append(
                    timestamp=record.timestamp, key=record.key, value=record.value, headers=headers
                )
                is not None
            ):
                batch.count += 1
                continue
            reason = malformed.get((number, record.offset)) or refused.get((place, record.offset))
            if reason is None and not oldest < record.timestamp < farthest:
                reason = (
                    f"its timestamp is {record.timestamp} ms, and {self._plan.target_topic} has already "
                    "refused a timestamp closer to now"
                )
            if reason is None and record.key is None and self.target.compacted:
                reason = f"it has no key, and {self._plan.target_topic} is compacted"
            if reason is None:
                reason = self._add(found, open_batches, place, record, partition, headers)
            if reason is not None:
                found.batches.append(self._quarantine(found, place, record, headers, hop, reason))
                found.quarantined[number] = found.quarantined.get(number, 0) + 1
                found.reasons.append(f"{self._plan.source_topic}/{number} offset {record.offset}: {reason}")

    def _ours(self, place: Place) -> list[Header]:
        ignored: Header = (wire_names.HEADER_USER_IDS, wire_names.USER_IDS_IGNORED)
        return [
            (wire_names.HEADER_CONFIRMED, b"%d" % place.confirmed),
            *([] if self._ids_count else [ignored]),
        ]

    def _groups(self, translated: Sequence[Record]) -> list[bytes | None]:
        """Return the groups by the target's rules. The group of an envelope is always its key."""
        groups = self._reader.groups(translated)
        if self._plan.address.group_header:
            for number, record in enumerate(translated):
                if is_envelope(record):
                    groups[number] = record.key
        return groups

    def _passing(self, place: Place) -> Passing | None:
        """Return the tracker of hop traces; None if this bridge does not trace or the topic has no ID."""
        plan = self._plan
        if not plan.traces or place.topic_id in NO_IDS:
            return None
        return Passing(place.topic_id, self.target.topics, forwards=plan.returns == "forward")

    def _translate(self, place: Place, those: Sequence[Record], passing: Passing | None) -> list[Record]:
        owner = self._owner
        if owner is not None and self._plan.share is not None:
            member, where = self._plan.share.member, f"{self._plan.source_topic}/{place.partition}/"
            those = [
                record
                for record in those
                if owner[f"{where}{record.offset}".encode() if record.key is None else record.key] == member
            ]
        return self._plan.translator.translate_all(those, passing)

    def _add(
        self,
        found: CycleBatches,
        open_batches: dict[int, Batch],
        place: Place,
        record: Record,
        partition: int,
        headers: list[Header],
    ) -> str | None:
        """Put a record into the batch of its partition. Return the reason if it does not fit into a batch."""
        batch = open_batches.get(partition)
        if batch is not None:
            limit = self._records_max.get(partition, batch.count + 1)
            # aiokafka would give the timestamp of this record to records without one.
            alike = batch.timestamp != NO_TIMESTAMP or record.timestamp == NO_TIMESTAMP
            if (
                alike
                and batch.count < limit
                and (
                    batch.builder.append(
                        timestamp=record.timestamp, key=record.key, value=record.value, headers=headers
                    )
                    is not None
                )
            ):
                batch.count += 1
                return None
            found.batches.append(open_batches.pop(partition))
        builder = self._new()
        builder.append(timestamp=record.timestamp, key=record.key, value=record.value, headers=headers)
        if builder.size() > self.target.bytes_max:
            found.too_large = True
            return f"{builder.size()} bytes, {self._plan.target_topic} takes max.message.bytes = {self.target.bytes_max}"
        first = (place, record.offset)
        open_batches[partition] = Batch(
            self._plan.target_topic, partition, builder, found.cycle, first, timestamp=record.timestamp
        )
        return None

    def _key(self, record: Record, hop: bytes) -> bytes:
        """Return the key of the home of a message without a group: its own ID if IDs count, else its hop."""
        if self._ids_count:
            own_id = self._reader.ids([record])[0][0]
            if own_id is not None:
                return own_id[1:]
        return hop

    def _quarantine(
        self,
        found: CycleBatches,
        place: Place,
        record: Record,
        headers: list[Header],
        hop: bytes,
        reason: str,
    ) -> Batch:
        """Return a batch for the quarantine topic, with reason and source in its headers.

        Size and digest replace a value that does not fit. If the record is still too large, its key and its other headers are left out too.
        """
        topic, bytes_max = self._plan.quarantine_topic, self.target.quarantine_bytes_max
        where = f"{self._plan.source_topic}/{place.partition}"
        refused = (
            f"{where} offset {record.offset} is refused permanently ({reason}), and {topic} does not accept "
            "it"
        )
        if (place, record.offset) in self._refused.by_all:
            why = self._refused.by_all[place, record.offset]
            raise RefusedError(
                record.offset,
                f"{refused} ({why}): change one of the two topics so that it accepts the record",
            )
        ours = [
            (wire_names.HEADER_REASON, reason.encode()),
            (wire_names.HEADER_SOURCE, f"{where}/{record.offset}".encode()),
            (wire_names.HEADER_BRIDGE_APP, self._plan.app_id.encode()),
        ]
        whole = [*headers, *ours]
        forms: Sequence[tuple[bytes | None, bytes | None, list[Header]]] = (
            (record.key, record.value, whole),
            (record.key, placeholder_of(record.value or b""), whole),
            (None, placeholder_of(record.value or b""), [*ours, (wire_names.HEADER_HOP, hop)]),
        )
        for key, value, carried in forms:
            builder = self._new()
            builder.append(timestamp=record.timestamp, key=key, value=value, headers=carried)
            if builder.size() <= bytes_max:
                return Batch(
                    topic, QUARANTINE_PARTITION, builder, found.cycle, (place, record.offset), quarantine=True
                )
            found.too_large = True
        way_out = f"raise its max.message.bytes = {bytes_max}" if bytes_max else "create it at the target"
        raise RefusedError(
            record.offset, f"{refused}: {way_out}, or make {self._plan.target_topic} accept it"
        )
