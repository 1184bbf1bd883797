"""History of a run: the sent records, and the content of the topics. Independent clients read it, and the checker judges it."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, NamedTuple, Self

from ringfence_kafka.protocol import wire_names

TOKEN_HEADER: Final = "t"
"""Header with a value that is unique to one attempt of a producer: duplicate sends of one ID differ in it."""
ID_HEADER: Final = "_AMQ_DUPL_ID"

Headers = tuple[tuple[str, bytes | None], ...]


class Outcome(StrEnum):
    """A producer's knowledge of an attempt."""

    OK = "ok"
    """Acknowledged, and its transaction committed: it must be in the input."""
    FAIL = "fail"
    """Certainly not written, or its transaction aborted: it must not be there."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Send:
    """One attempt of a producer. A duplicate send of the same ID is another one."""

    token: bytes
    id: bytes | None
    group: bytes | None
    outcome: Outcome


class Place(NamedTuple):
    """Place of a record."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"

    @classmethod
    def parse(cls, text: bytes | None) -> Self | None:
        parts = (text or b"").rsplit(b"/", 2)
        if (
            len(parts) != 3
            or not parts[0]
            or not all(part.isdigit() and len(part) < 20 for part in parts[1:])
        ):
            return None
        return cls(parts[0].decode("utf-8", "replace"), int(parts[1]), int(parts[2]))


class Record(NamedTuple):
    """A record as a read_committed consumer got it. ``timestamp`` is in milliseconds."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int

    @property
    def place(self) -> Place:
        return Place(self.topic, self.partition, self.offset)

    @property
    def token(self) -> bytes | None:
        return self.header(TOKEN_HEADER)

    @property
    def source(self) -> Place | None:
        return Place.parse(self.header(wire_names.HEADER_SOURCE))

    def header(self, name: str) -> bytes | None:
        found = None
        for item, value in self.headers:
            if item == name:
                found = value
        return found


def records(topic: str, got: Iterable[Any]) -> list[Record]:
    return [record_of(topic, item.partition, item) for item in got]


def record_of(topic: str, partition: int, item: Any) -> Record:
    headers: Headers = tuple(item.headers)
    return Record(topic, partition, item.offset, item.key, item.value, headers, item.timestamp)


def id_in_header(record: Record) -> bytes | None:
    """Return the duplicate ID, unless the configuration names another. Null or empty = none."""
    return record.header(ID_HEADER) or None


def group_in_key(record: Record) -> bytes | None:
    return record.key


@dataclass(frozen=True, slots=True)
class Target:
    """An address that parts of transactions may go to."""

    topic: str
    id_of: Callable[[Record], bytes | None] = id_in_header
    group_of: Callable[[Record], bytes | None] = group_in_key


@dataclass(slots=True)
class History:
    """A run of one address, after it came to rest."""

    input_topic: str
    partitions: int
    capacity: int
    """Number of IDs that the ring promises for each lane, throughout the run; 0 = off."""
    home: Callable[[bytes], int]
    """Home partition of a group or an ID, by an implementation that is not Ringfence's."""
    lanes: int = 0
    """Partition p belongs to lane p modulo this; 0 = each partition is a lane."""
    sends: list[Send] = field(default_factory=list)
    inputs: list[Record] = field(default_factory=list)
    """All committed records of the input, in any order."""
    accepted: list[Record] = field(default_factory=list)
    """All records of the topic, in any order; likewise the next two. Other addresses' records of this one's transactions are included."""
    diverted: list[Record] = field(default_factory=list)
    quarantined: list[Record] = field(default_factory=list)
    log_starts: dict[int, int] = field(default_factory=dict)
    """Input partition to the first offset that is still there; missing = 0."""
    divert: bool = False
    observe: bool = False
    """Whether duplicates pass, and each accepted record names its verdict."""
    by_value: bool = False
    """Whether an ID with another value is another message, unless it is that of a transaction."""
    id_of: Callable[[Record], bytes | None] = id_in_header
    """Duplicate ID of an input record. One that is made of the value is the value's BLAKE2b-256 digest."""
    group_of: Callable[[Record], bytes | None] = group_in_key
    min_age_ms: int = 0
    """The ring keeps younger IDs than this up to its capacity, which is ``id_cache_size_max``; 0 = it keeps them whatever their age."""
    size: int = 0
    """Number of IDs that it keeps whatever their age, with ``min_age_ms``."""
    others: dict[str, Target] = field(default_factory=dict)
    """The other addresses that parts of its transactions may go to, by name."""

    @property
    def targets(self) -> dict[str, Target]:
        own = Target(f"{self.input_topic}.accepted", self.id_of, self.group_of)
        return {self.input_topic: own, **self.others}


def attributed(histories: Sequence[History]) -> list[History]:
    """Move the accepted records of several addresses of one run to the histories of the inputs that they name."""
    accepted: dict[str, list[Record]] = {history.input_topic: [] for history in histories}
    for history in histories:
        for record in history.accepted:
            source = record.source
            owner = source.topic if source is not None and source.topic in accepted else history.input_topic
            accepted[owner].append(record)
    return [replace(history, accepted=accepted[history.input_topic]) for history in histories]
