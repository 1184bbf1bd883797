"""An outbox's memory of one lane: its position, and the IDs that it accepted lately.

The layout of a changelog's records duplicates :mod:`tables.codec`, which the client's distribution does not contain. A test compares both.
"""

import asyncio
import json
import struct
import sys
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple, Self

from ringfence_kafka.errors import RingfenceError
from ringfence_kafka.protocol.stored_ids import without_value

META_KEY: Final = b"\x00"
RING_KIND: Final = b"\x01"
_RING: Final = struct.Struct(">BQiqq")
_DIGEST_SIZE: Final = 8
_ID_AT: Final = {1: _RING.size, 2: _RING.size + _DIGEST_SIZE}
"""Position of the ID by format. In format 2, a digest of the value precedes it."""


class ChangelogFormatError(RingfenceError):
    """A changelog record has a format that this version does not know."""


class Place(NamedTuple):
    """Place of a message in the input. The timestamp differs in a former topic of the same name."""

    partition: int
    offset: int
    timestamp: int
    """Record timestamp, in milliseconds since the epoch."""

    def follows(self, other: Self) -> bool:
        """Return whether this place is known to be later than another one."""
        later = self.offset > other.offset and self.timestamp >= other.timestamp
        return later and self.partition == other.partition


class LaneState(NamedTuple):
    """A meta record: the position of a lane."""

    capacity: int
    """Size of the ring in IDs; 0 = the lane remembers no IDs."""
    head: int
    """Sequence of the next accepted ID."""
    persistent: bool
    """False: IDs are in no ring record."""
    lanes: int
    next_offsets: dict[str, int]
    partition_counts: dict[str, int]
    topic_ids: dict[str, str]
    """Kafka's IDs of the inputs. They differ for another topic of the same name."""

    @classmethod
    def unknown(cls) -> Self:
        """Return the state of a lane that has processed nothing."""
        return cls(0, 0, True, 0, {}, {}, {})

    def next_of(self, topic: str, partition: int) -> int:
        """Return the first offset of an input that the lane has not processed; 0 = it has read no record of it."""
        return self.next_offsets.get(f"{topic}/{partition}" if self.lanes else topic, 0)


def read_state(value: bytes) -> LaneState:
    """Decode the value of a meta record."""
    try:
        data: dict[str, Any] = {"lanes": 0} | json.loads(value)
        return LaneState(*(data[name] for name in LaneState._fields))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _unreadable(f"a meta record ({error!r})") from error


def id_of(value: bytes) -> bytes:
    """Return the stored ID in the value of a ring record."""
    if len(value) <= _RING.size or len(value) <= _ID_AT.get(value[0], sys.maxsize):
        raise _unreadable(f"a ring record of format {value[:1].hex() or 'none'}")
    return value[_ID_AT[value[0]] :]


def place_of(value: bytes) -> Place:
    """Return the accepted message's place in the value of a ring record. :func:`id_of` has checked the format."""
    _, _, *place = _RING.unpack_from(value)
    return Place(*place)


def digest_of(value: bytes) -> int:
    """Return the accepted value's digest in the value of a ring record; 0 = unknown."""
    return int.from_bytes(value[_RING.size : _ID_AT[value[0]]], "big")


def sequence_of(value: bytes) -> int:
    """Return the sequence in the value of a ring record."""
    return int.from_bytes(value[1:9], "big")


def _unreadable(what: str) -> ChangelogFormatError:
    return ChangelogFormatError(
        f"the changelog has {what}, which this version cannot read: install the ringfence-client of the workers' version"
    )


SPARE_IDS: Final = 1_000
"""Number of IDs that are kept beyond the ring. They may leave the ring between a verdict and the lookup of the original."""


class Target(NamedTuple):
    """An offset of an input that a lane has to pass."""

    topic: str
    partition: int
    offset: int
    deleted_id: str | None
    """Kafka's ID of a former topic of this name; None = there was none."""


class Awaited:
    """A message whose verdict is awaited. Created before the send."""

    def __init__(self, stored_id: bytes | None, before: LaneState | None) -> None:
        """Create the entry. ``stored_id``: None = no ID. ``before``: state of its lane before the send; None = unknown."""
        self.id = stored_id
        self.before = before
        self.place: Place | None = None
        self.accepted_places: list[Place] = []
        """Places of messages with its ID that were accepted since."""
        self._waiting: asyncio.Future[None] | None = None

    @property
    def accepted(self) -> bool:
        """Whether the message's own slot has come."""
        return self.place in self.accepted_places

    def covers(self, state: LaneState) -> bool:
        """Return whether its own slot would still be in the changelog: the ring has not turned completely since the send."""
        return self.before is not None and state.head <= self.before.head + state.capacity

    def add(self, place: Place) -> None:
        """Record an accepted message with its ID."""
        self.accepted_places.append(place)
        if self._waiting is not None and self.accepted:
            complete(self._waiting)

    async def wait(self, memory: "LaneMemory", topic: str, partition: int, offset: int) -> None:
        """Wait until its own slot has come, or the lane has passed an offset of an input."""
        # A lane that had passed the offset before the send knew a former topic of this name.
        deleted = self.before if self.before and self.before.next_of(topic, partition) > offset else None
        target = Target(topic, partition, offset, deleted and deleted.topic_ids.get(topic))
        if not self.accepted and not memory.is_past(target):
            self._waiting = memory.future_of(target)
            await self._waiting


class LaneMemory:
    """The end of one lane's changelog, as far as it was read."""

    def __init__(self, *, complete: bool) -> None:
        """Create a memory. ``complete``: the changelog has no records before the start of the reading."""
        self.complete = complete
        """Whether unknown IDs have no slot in the ring."""
        self.state: LaneState | None = None
        self.known: dict[bytes, bytes] = {}
        """Value of the latest ring record by stored ID, in the order of acceptance."""
        self._futures: list[tuple[Target, asyncio.Future[None]]] = []

    def is_past(self, target: Target) -> bool:
        """Return whether the lane has processed an offset of an input."""
        state, (topic, partition, offset, deleted_id) = self.state, target
        if state is None or state.next_of(topic, partition) <= offset:
            return False
        return deleted_id is None or state.topic_ids.get(topic) != deleted_id

    def future_of(self, target: Target) -> "asyncio.Future[None]":
        """Return a future that completes when the lane has passed an offset."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._futures.append((target, future))
        return future

    def apply_records(
        self, records: Sequence[Any], awaited: Mapping[bytes, Sequence[Awaited]], ids_max: int
    ) -> None:
        """Take the next records. ``awaited``: messages by stored ID; ``ids_max``: limit of kept IDs."""
        for record in records:
            if record.value is None:
                continue
            if record.key[:1] == RING_KIND:
                stored = id_of(record.value)
                self.known.pop(stored, None)
                self.known[stored] = record.value
                for message in awaited.get(without_value(stored), ()):
                    message.add(place_of(record.value))
            elif record.key == META_KEY:
                self._advance(read_state(record.value))
        self._trim(ids_max)

    def add_older(self, older: Mapping[bytes, bytes], ids_max: int) -> None:
        """Add older IDs that are not in the memory: value of the latest ring record by stored ID."""
        before = {
            stored: value
            for stored, value in sorted(older.items(), key=lambda item: sequence_of(item[1]))
            if stored not in self.known
        }
        self.known = before | self.known
        self.complete = True
        self._trim(ids_max)

    def forget(self) -> None:
        """Start again with the first record of another changelog."""
        self.complete, self.state = True, None
        self.known.clear()

    def fail(self, error: Exception) -> None:
        """Fail all waits, because reading has stopped."""
        for _, future in self._futures:
            if not future.done():
                future.set_exception(error)
        self._futures = []

    def _advance(self, state: LaneState) -> None:
        self.state = state
        for target, future in self._futures:
            if self.is_past(target):
                complete(future)
        self._futures = [item for item in self._futures if not item[1].done()]

    def _trim(self, ids_max: int) -> None:
        """Keep the latest IDs: those of the ring and some more, up to ``ids_max``."""
        capacity = ids_max if self.state is None else self.state.capacity
        if capacity > ids_max:
            self.complete = False
        excess = len(self.known) - min(capacity + SPARE_IDS, ids_max)
        if excess > 0:
            for stored in list(islice(self.known, excess)):
                del self.known[stored]


def complete(future: "asyncio.Future[None]") -> None:
    """Complete a wait, if it has not ended yet."""
    if not future.done():
        future.set_result(None)
