"""Records of a lane's changelog that an outbox reads. Pure.

This duplicates :mod:`tables.codec`, which the client's distribution does not contain. A test compares both.
"""

import json
import struct
import sys
from typing import Any, Final, NamedTuple, Self

from ringfence_kafka.errors import RingfenceError

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
    """Decode the value of a meta record.

    Raises:
        ChangelogFormatError: It has another format.
    """
    try:
        data: dict[str, Any] = json.loads(value)
        return LaneState(
            data["capacity"],
            data["head"],
            data["persistent"],
            data.get("lanes", 0),
            data["next_offsets"],
            data["partition_counts"],
            data["topic_ids"],
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _unreadable(f"a meta record ({error!r})") from error


def id_of(value: bytes) -> bytes:
    """Return the stored ID in the value of a ring record.

    Raises:
        ChangelogFormatError: It has another format.
    """
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
