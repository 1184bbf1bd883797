"""Brings inputs and outputs together: what came of each input, and what came of none."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import blake2b
from operator import itemgetter
from typing import Final

from ringfence_kafka import wire
from tests.faults.finding import Anomaly, Finding
from tests.faults.history import History, Place, Record

ID_BYTES_MAX: Final = 256
"""A longer ID is known, and finds its home, by its BLAKE2b-256 digest."""


class Fate(StrEnum):
    """What may become of an input, where a topic shows it. Dropped duplicates are shown nowhere."""

    ACCEPTED = "accepted"
    DIVERTED = "diverted"
    QUARANTINED = "quarantined"


@dataclass(slots=True, eq=False)
class Input:
    """An input record and its fates."""

    record: Record
    id: bytes | None
    group: bytes | None
    lane: int
    deleted: bool = False
    """Retention took the record; this one is made of what came of it."""
    accepted: Record | None = None
    """The first in the order of the output; so the next two."""
    diverted: Record | None = None
    quarantined: Record | None = None
    again: list[tuple[Fate, Record]] | None = None
    """Further records of the same fate."""

    @property
    def place(self) -> Place:
        """Where it stands in the input."""
        return self.record.place

    def outputs(self) -> list[tuple[Fate, Record]]:
        """All that came of it."""
        first = (
            (Fate.ACCEPTED, self.accepted),
            (Fate.DIVERTED, self.diverted),
            (Fate.QUARANTINED, self.quarantined),
        )
        return [(fate, record) for fate, record in first if record is not None] + (self.again or [])

    def describe(self) -> str:
        """For people."""
        return f"{self.place} (ID {shown(self.id)}, group {shown(self.group)})"


@dataclass(slots=True)
class Evidence:
    """All inputs of a history, with what came of them."""

    history: History
    phantoms: list[Finding] = field(default_factory=list)
    from_deleted: Counter[int] = field(default_factory=Counter)
    """By input partition: outputs whose input retention deleted."""
    accepted: list[Input] = field(default_factory=list)
    """In the order of the accepted topic, each once."""
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
        self._ends = [max(each, default=-1) + 1 for each in self._inputs]
        for fate, records in (
            (Fate.ACCEPTED, history.accepted),
            (Fate.DIVERTED, history.diverted),
            (Fate.QUARANTINED, history.quarantined),
        ):
            self._attach(fate, records)

    def inputs(self) -> Iterator[Input]:
        """By partition and offset, then those that retention deleted."""
        for each in self._inputs:
            yield from each.values()

    def find(self, place: Place) -> Input | None:
        """The input that stands there."""
        if place.topic != self.history.input_topic or place.partition >= len(self._inputs):
            return None
        return self._inputs[place.partition].get(place.offset)

    def _input(self, record: Record, *, deleted: bool = False) -> Input:
        each, group = self.history.id_of(record), self.history.group_of(record)
        key = group if group is not None else each
        if key is None:
            return Input(record, None, None, record.partition, deleted)
        if group is None and len(key) > ID_BYTES_MAX:
            key = blake2b(key, digest_size=32).digest()
        lane = self._homes.get(key)
        if lane is None:
            lane = self._homes[key] = self.history.home(key)
        return Input(record, each, group, lane, deleted)

    def _attach(self, fate: Fate, records: Sequence[Record]) -> None:
        for record in sorted(records, key=itemgetter(1, 2)):
            each = self._origin(fate, record)
            if each is None:
                continue
            if fate is Fate.ACCEPTED and each.accepted is None:
                each.accepted = record
                self.accepted.append(each)
            elif fate is Fate.DIVERTED and each.diverted is None:
                each.diverted = record
            elif fate is Fate.QUARANTINED and each.quarantined is None:
                each.quarantined = record
            else:
                each.again = [*(each.again or []), (fate, record)]

    def _origin(self, fate: Fate, record: Record) -> Input | None:
        """The input that an output came from; where there is none, that is noted."""
        source = record.source
        if source is None:
            self._phantom(fate, record, f"names no input record in {wire.HEADER_SOURCE}")
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
            found = self._input(_restored(source, fate, record), deleted=True)
            self._inputs[source.partition][source.offset] = found
            return found
        end = self._ends[source.partition]
        where = f"the input ends at {end}" if source.offset >= end else "no committed record stands there"
        self._phantom(fate, record, f"names {source}, but {where}")
        return None

    def _phantom(self, fate: Fate, record: Record, why: str) -> None:
        self.phantoms.append(Finding(Anomaly.PHANTOM, (record.place,), f"{record.place}: {fate}, and {why}"))


def _restored(source: Place, fate: Fate, record: Record) -> Record:
    """The input as its output tells it, so that IDs and order are judged beyond what retention left."""
    key = record.key
    if fate is Fate.ACCEPTED and any(name == wire.HEADER_KEY for name, _ in record.headers):
        key = record.header(wire.HEADER_KEY)
    ours = {wire.HEADER_SOURCE, wire.HEADER_KEY, wire.HEADER_ORIGINAL, wire.HEADER_REASON}
    headers = tuple(each for each in record.headers if each[0] not in ours)
    return Record(*source, key, record.value, headers, record.timestamp)


def shown(value: bytes | None) -> str:
    """Bytes for people."""
    return "none" if value is None else repr(value)[1:]
