"""Bring inputs and outputs together: the outputs of each input, and outputs without an input."""

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import blake2b
from operator import itemgetter
from typing import Final, NamedTuple

from ringfence_kafka.protocol import wire_names
from tests.harness.checker import hops, transactions
from tests.harness.checker.findings import Anomaly, Finding
from tests.harness.checker.hops import MalformedHopError, Step
from tests.harness.checker.transactions import MalformedError, Part
from tests.harness.history import History, Place, Record

ID_BYTES_MAX: Final = 256
"""Longest ID in bytes; a longer one is known, and finds its home, by its BLAKE2b-256 digest."""


class Fate(StrEnum):
    """Fates of an input that a topic shows. Dropped duplicates are shown nowhere."""

    ACCEPTED = "accepted"
    OBSERVED = "observed"
    DIVERTED = "diverted"
    QUARANTINED = "quarantined"


@dataclass(slots=True, eq=False)
class Input:
    """An input record and its fates."""

    record: Record
    ids: tuple[Hashable, ...]
    """All IDs, each once: a transaction has its own, and those of its parts."""
    group: bytes | None
    lane: int
    deleted: bool = False
    parts: list[Part | None] | None = None
    """Parts of a transaction; each None = known by its number alone. None = a plain message, or a malformed envelope."""
    own_id: Hashable = None
    malformed: str = ""
    hop: Step | None = None
    """Hop that the bridge's headers state; None = it came over no bridge."""
    accepted: Record | None = None
    """First accepted record in the order of the output, whichever part it is; the next three are first in the same way."""
    observed: Record | None = None
    diverted: Record | None = None
    quarantined: Record | None = None
    by_part: dict[int, Record] = field(default_factory=dict)
    """First accepted or observed record of each part of a transaction, by the part's number."""
    again: list[tuple[Fate, Record]] | None = None

    @property
    def place(self) -> Place:
        return self.record.place

    @property
    def passed(self) -> Record | None:
        return self.accepted or self.observed

    @property
    def whole(self) -> bool:
        return self.passed is not None and len(self.by_part) == len(self.parts or ())

    def outputs(self) -> list[tuple[Fate, Record]]:
        passed: list[Record | None] = [*self.by_part.values()] or [self.passed]
        fate = Fate.ACCEPTED if self.accepted is not None else Fate.OBSERVED
        first = (
            *((fate, item) for item in passed),
            (Fate.DIVERTED, self.diverted),
            (Fate.QUARANTINED, self.quarantined),
        )
        return [(fate, record) for fate, record in first if record is not None] + (self.again or [])

    def finding(self, anomaly: Anomaly, said: str, *more: Place) -> Finding:
        return Finding(anomaly, (self.place, *more), f"{self.describe()} {said}")

    def fates(self) -> int:
        first = (self.passed, self.diverted, self.quarantined)
        return sum(item is not None for item in first) + len(self.again or ())

    def describe(self) -> str:
        if self.parts is None:
            return f"{self.place} (ID {shown(self.ids[0] if self.ids else None)}, group {shown(self.group)})"
        known = ", ".join(map(shown, self.ids)) or "none"
        return f"{self.place} (transaction of {len(self.parts)}, IDs {known}, key {shown(self.group)})"


class Accepted(NamedTuple):
    """An accepted record with its origin: an input, or a part of one."""

    input: Input
    number: int
    record: Record
    group: bytes | None


@dataclass(slots=True)
class Evidence:
    """All inputs of a history, with their outputs."""

    history: History
    phantoms: list[Finding] = field(default_factory=list)
    from_deleted: Counter[int] = field(default_factory=Counter)
    accepted: list[Input] = field(default_factory=list)
    lines: list[Accepted] = field(default_factory=list)
    """First record in the accepted topic of each message and of each part, in the order of the outputs."""
    _inputs: list[dict[int, Input]] = field(default_factory=list)
    _homes: dict[bytes, int] = field(default_factory=dict)
    _ends: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        history = self.history
        self._inputs = [{} for _ in range(history.partitions)]
        for record in sorted(history.inputs, key=itemgetter(1, 2)):
            if record.topic != history.input_topic or record.partition >= history.partitions:
                raise ValueError(f"{record.place} is no input of this history")
            self._inputs[record.partition][record.offset] = self._input(record)
        self._ends = [max(input_, default=-1) + 1 for input_ in self._inputs]
        for fate, records in (
            (Fate.ACCEPTED, history.accepted),
            (Fate.DIVERTED, history.diverted),
            (Fate.QUARANTINED, history.quarantined),
        ):
            self._attach(fate, records)

    def inputs(self) -> Iterator[Input]:
        for input_ in self._inputs:
            yield from input_.values()

    def find(self, place: Place) -> Input | None:
        if place.topic != self.history.input_topic or place.partition >= len(self._inputs):
            return None
        return self._inputs[place.partition].get(place.offset)

    def _input(self, record: Record) -> Input:
        own, group = self.history.id_of(record), self.history.group_of(record)
        try:
            step = hops.read(record)
        except MalformedHopError as error:
            lane = self._lane(record, group, own)
            return Input(record, (), group, lane, malformed=f"malformed: {error}")
        # A record from a bridge without an ID finds its lane by its hop.
        last = None if step is None else record.header(wire_names.HEADER_HOP)
        own = None if step is not None and step.ids_ignored else own
        if not transactions.is_envelope(record):
            lane = self._lane(record, group, last if own is None else own)
            known: Hashable = (own, record.value or b"") if self.history.by_value else own
            return Input(record, () if own is None else (known,), group, lane, hop=step)
        # The key of an envelope decides its home, whatever the groups of its address.
        lane = self._lane(record, record.key, last if own is None else own)
        try:
            parts = transactions.read(self.history, record)
        except MalformedError as error:
            return Input(record, (), record.key, lane, malformed=f"malformed: {error}", hop=step)
        named = () if step is not None and step.ids_ignored else (own, *(part.id for part in parts))
        ids = tuple(dict.fromkeys(item for item in named if item is not None))
        if record.key is None and own is None and ids:
            lane = self._lane(record, None, ids[0])
        own_id = own if ids else None
        return Input(record, ids, record.key, lane, parts=[*parts], own_id=own_id, hop=step)

    def _lane(self, record: Record, group: bytes | None, known: Hashable) -> int:
        """Return the lane where the group, or without one the ID, hashes to; a record with neither stays in its partition's."""
        key = group
        if key is None:
            key = known.id if isinstance(known, transactions.Foreign) else known  # type: ignore[assignment]
            if key is None:
                return self._lane_of(record.partition)
            if len(key) > ID_BYTES_MAX:
                key = blake2b(key, digest_size=32).digest()
        lane = self._homes.get(key)
        if lane is None:
            lane = self._homes[key] = self._lane_of(self.history.home(key))
        return lane

    def _lane_of(self, partition: int) -> int:
        return partition % self.history.lanes if self.history.lanes else partition

    def _attach(self, fate: Fate, records: Sequence[Record]) -> None:
        for record in sorted(records, key=itemgetter(0, 1, 2)):
            each = self._origin(fate, record)
            if each is None:
                continue
            if fate is Fate.ACCEPTED:
                self._accept(each, record)
            elif fate is Fate.DIVERTED and each.diverted is None:
                each.diverted = record
            elif fate is Fate.QUARANTINED and each.quarantined is None:
                each.quarantined = record
            else:
                each.again = [*(each.again or []), (fate, record)]

    def _accept(self, each: Input, record: Record) -> None:
        number = 0
        if each.parts is not None or each.malformed:
            number, why = self._number(each, record)
            if why:
                self._phantom(Fate.ACCEPTED, record, f"names {each.place}, {why}")
                return
        observed = (record.header(wire_names.HEADER_VERDICT) or b"").startswith(b"DUPLICATE")
        if each.passed is not None and (not number or number in each.by_part):
            each.again = [*(each.again or []), (Fate.OBSERVED if observed else Fate.ACCEPTED, record)]
            return
        if each.passed is None and observed:
            each.observed = record
        elif each.passed is None:
            each.accepted = record
            self.accepted.append(each)
        part = each.parts[number - 1] if each.parts else None
        if number:
            each.by_part[number] = record
        if part is not None or not number:
            self.lines.append(Accepted(each, number, record, part.group if part else each.group))

    def _number(self, each: Input, record: Record) -> tuple[int, str]:
        if each.parts is None:
            what = "an envelope" if transactions.is_envelope(each.record) else "a record"
            return 0, f"{what} that is {each.malformed}"
        found = transactions.number_of(record)
        if found is None or found[1] != len(each.parts):
            return (
                0,
                f"a transaction of {len(each.parts)} parts, as part {shown(record.header(transactions.PLACE))}",
            )
        part = each.parts[found[0] - 1]
        if part is not None and part.target != record.topic:
            return 0, f"of which part {found[0]} belongs into {part.target}"
        return found[0], ""

    def _origin(self, fate: Fate, record: Record) -> Input | None:
        source = record.source
        if source is None:
            self._phantom(fate, record, f"names no input record in {wire_names.HEADER_SOURCE}")
            return None
        found = self.find(source)
        if found is not None:
            if found.deleted:
                self.from_deleted[source.partition] += 1
            return found
        if source.topic != self.history.input_topic or source.partition >= self.history.partitions:
            self._phantom(fate, record, f"names {source}, which is no place of the input")
            return None
        if source.offset < self.history.log_starts.get(source.partition, 0):
            self.from_deleted[source.partition] += 1
            found = self._restored(source, fate, record)
            self._inputs[source.partition][source.offset] = found
            return found
        end = self._ends[source.partition]
        where = f"the input ends at {end}" if source.offset >= end else "no committed record stands there"
        self._phantom(fate, record, f"names {source}, but {where}")
        return None

    def _phantom(self, fate: Fate, record: Record, why: str) -> None:
        self.phantoms.append(Finding(Anomaly.PHANTOM, (record.place,), f"{record.place}: {fate}, and {why}"))

    def _restored(self, source: Place, fate: Fate, record: Record) -> Input:
        """Rebuild an input that retention deleted from its output. One part of a transaction shows the number of parts."""
        count = transactions.number_of(record) if fate is Fate.ACCEPTED else None
        known = _restored(source, fate, record)
        if count is not None:
            lane = self._lane_of(source.partition)
            return Input(known, (), None, lane, deleted=True, parts=[None] * count[1])
        found = self._input(known)
        found.deleted = True
        return found


def _restored(source: Place, fate: Fate, record: Record) -> Record:
    """Rebuild the input record from its output, so that IDs and order are judged beyond the reach of retention."""
    key = record.key
    if fate is Fate.ACCEPTED and any(name == wire_names.HEADER_KEY for name, _ in record.headers):
        key = record.header(wire_names.HEADER_KEY)
    ours = {
        wire_names.HEADER_SOURCE,
        wire_names.HEADER_KEY,
        wire_names.HEADER_ORIGINAL,
        wire_names.HEADER_REASON,
        wire_names.HEADER_SEQUENCE,
        wire_names.HEADER_VERDICT,
    }
    headers = tuple(header for header in record.headers if header[0] not in ours)
    return Record(*source, key, record.value, headers, record.timestamp)


def shown(value: Hashable) -> str:
    if isinstance(value, transactions.Foreign):
        return f"{shown(value.id)} of {value.address}"
    return "none" if value is None else repr(value)[1:]
