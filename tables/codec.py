"""Byte layout of the changelog and of RocksDB. Pure.

Every key begins with a record kind. Every value begins with the format version, or has it as a named field. Later kinds therefore need no
migration.

Changelog (compacted topic, partition p for lane p):

======== ======================================== =====================================================
kind     key                                      value
======== ======================================== =====================================================
meta     ``00``                                   JSON, see :class:`Meta`
ring     ``01`` capacity:u32 slot:u32             version:u8 sequence:u64 partition:i32 offset:i64
                                                  timestamp:i64 digest:u64 id (kind byte, bytes; see
                                                  :mod:`ringfence_kafka.protocol.stored_ids`); version 1 has no digest
hops     ``03`` arrived:u32 source                version:u8 floor:u64 runs of offsets above it, as
                                                  :mod:`ringfence_kafka.protocol.offset_ranges` writes them
======== ======================================== =====================================================

The capacity is part of a ring record's key, so that compaction keeps slots of the old and the new size apart. A hops record is a lane's memory
of one :class:`Route`; the last record counts. All integers are big-endian.
"""

import json
import struct
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, Self

from ringfence_kafka.protocol import hop, offset_ranges
from ringfence_kafka.protocol.hop import Source
from ringfence_kafka.protocol.offset_ranges import Run
from tables.promise import Promise

FORMAT_VERSION: Final = 1
FORMAT_DIGEST: Final = 2
"""Format of a ring record with a digest of the message's value."""
FORMAT_BRIDGED: Final = 2
"""Format of the meta record of a lane with hops. A version of Ringfence without hops must not open it."""
FORMAT_LANES: Final = 3
"""Format of the meta record of a lane whose address sets ``lanes``: its offsets are by partition."""

KIND_META: Final = b"\x00"
KIND_RING: Final = b"\x01"
KIND_HOPS: Final = b"\x03"
META_KEY: Final = KIND_META

_RING_KEY: Final = struct.Struct(">cII")
_RING_VALUE: Final = struct.Struct(">BQiqq")
_DIGEST: Final = struct.Struct(">Q")
_ID_AT: Final = {FORMAT_VERSION: _RING_VALUE.size, FORMAT_DIGEST: _RING_VALUE.size + _DIGEST.size}
"""Position of the ID in a ring record's value, by format."""
_HOPS_KEY: Final = struct.Struct(">cI")
_HOPS_VALUE: Final = struct.Struct(">BQ")
_SEQUENCE: Final = slice(1, 9)
"""Bytes of the sequence in a ring record's value."""


class FormatError(Exception):
    """Bytes that this version cannot read: written by a later version, or damaged."""


class Origin(NamedTuple):
    """Place of the accepted original in the input."""

    partition: int
    offset: int
    timestamp: int
    """Record timestamp, in milliseconds since the epoch."""


class Slot(NamedTuple):
    """A ring record: the ID that got this sequence, and its origin."""

    capacity: int
    sequence: int
    id: bytes
    """ID, encoded by :func:`ringfence_kafka.protocol.stored_ids.encode_id`."""
    origin: Origin
    digest: int = 0
    """Digest of the message's value, by :func:`ringfence_kafka.protocol.value_digest.slot_digest`; 0 = unknown."""


class Route(NamedTuple):
    """Route of a bridge's records to a lane. Records of one route come in offset order, apart from duplicate sends."""

    source: Source
    arrived: int
    """Input partition that the bridge wrote to. Records from another partition than the lane's own were forwarded."""


class Meta(NamedTuple):
    """The lane's state beside its slots. Each transaction has one such record.

    ``next_offsets`` contains the first unprocessed offset of each input; :meth:`next_of` reads it. ``partition_counts`` contains the
    partition counts of topics at the lane's start: input, accepted topic, and the accepted topics of other addresses that transactions may
    have parts for. A changed count moves homes, so the lane refuses to continue.
    """

    capacity: int
    head: int
    """Sequence of the next accepted ID."""
    floor: int
    """Lower sequences are dead, whatever the capacity."""
    next_offsets: dict[str, int]
    partition_counts: dict[str, int]
    incarnation: str
    """Random name of the changelog. RocksDB of another incarnation is not trusted."""
    older: list[list[int]] = []  # noqa: RUF012 - never changed in place
    """Earlier capacities with remaining slots: [capacity, end of its sequences, number of removed slots]."""
    persistent: bool = True
    """False: no slot has the IDs that were accepted since the floor, and the next opening forgets them."""
    topic_ids: dict[str, str] = {}  # noqa: RUF012 - never changed in place
    """Kafka's ID of each input. A topic that was deleted and created again has another ID."""
    app: str = ""
    """ID of the app that owns the rings."""
    address: str = ""
    """Address that owns the rings. Several addresses may produce the same topic name."""
    bridged: bool = False
    """Whether the lane has recorded hops, as the record's format says. It stays true, because tombstones of hops are hops records too."""
    max_age_ms: int = 0
    """``id_max_age`` in force, in milliseconds; 0 = no limit."""
    rules: dict[str, Any] = {}  # noqa: RUF012 - never changed in place
    """Rules of the lane by configuration key. Empty = a command wrote the record, and no worker has run the lane."""
    lanes: int = 0
    """``lanes`` of the address: partition p of the input belongs to lane p modulo this. 0 = each partition is a lane."""
    promise: Promise | None = None
    """Promise of ``id_min_age``. With it, ``capacity`` is ``id_cache_size_max``."""

    def next_of(self, topic: str, partition: int) -> int | None:
        """Return the first unprocessed offset of an input; None = the lane has not read it."""
        return self.next_offsets.get(next_key(topic, partition, self.lanes))

    def is_recreated(self, topic: str, topic_id: str) -> bool:
        """Return whether a topic with this ID was created again since the record."""
        return self.topic_ids.get(topic, topic_id) != topic_id


_LANES: Final = frozenset({"lanes", "bridged"})
"""Keys that only format 3 has."""
_META_KEYS: Final = frozenset(Meta._fields) - _LANES
_RULES: Final = "rules"
_PROMISE: Final = "promise"
_OPTIONAL: Final = frozenset({_RULES, _PROMISE})
"""Optional keys: empty values are not written."""


def next_key(topic: str, partition: int, lanes: int) -> str:
    """Return the key of an input in :attr:`Meta.next_offsets`. ``lanes``: value of the record."""
    return f"{topic}/{partition}" if lanes else topic


def ring_key(capacity: int, sequence: int) -> bytes:
    """Return the key of the slot of ``sequence`` in a ring of ``capacity`` slots (above 0)."""
    return _RING_KEY.pack(KIND_RING, capacity, sequence % capacity)


def ring_value(sequence: int, encoded_id: bytes, origin: Origin, digest: int = 0) -> bytes:
    """Return the value of a ring record. Without a digest it has format 1."""
    if not digest:
        return _RING_VALUE.pack(FORMAT_VERSION, sequence, *origin) + encoded_id
    return _RING_VALUE.pack(FORMAT_DIGEST, sequence, *origin) + _DIGEST.pack(digest) + encoded_id


def _is_whole(value: bytes) -> bool:
    """Return whether the value of a ring record has a known format, and is long enough for it."""
    return len(value) >= _RING_VALUE.size and len(value) >= _ID_AT.get(value[0], sys.maxsize)


def decode_ring(key: bytes, value: bytes) -> Slot:
    """Decode a ring record. Raises FormatError for a wrong length or another format."""
    try:
        _, capacity, _ = _RING_KEY.unpack(key)
        version, sequence, partition, offset, timestamp = _RING_VALUE.unpack_from(value)
        digest = _DIGEST.unpack_from(value, _RING_VALUE.size)[0] if version == FORMAT_DIGEST else 0
    except struct.error as error:
        raise FormatError(f"ring record with key {key.hex()} is damaged: {error}") from error
    if version not in _ID_AT:
        raise FormatError(
            f"ring record of format {version}; this version reads formats {FORMAT_VERSION} and {FORMAT_DIGEST}"
        )
    return Slot(capacity, sequence, value[_ID_AT[version] :], Origin(partition, offset, timestamp), digest)


def capacity_of(key: bytes) -> int:
    """Return the ring size in a ring record's key."""
    return int(_RING_KEY.unpack(key)[1])


def check_ring(key: bytes, value: bytes) -> None:
    """Check that a ring record is readable, at a fraction of the cost of decoding. Raises FormatError as :func:`decode_ring`."""
    if len(key) != _RING_KEY.size or not _is_whole(value):
        decode_ring(key, value)


def sequence_of(value: bytes) -> int:
    """Return the sequence in a ring record's value."""
    return int.from_bytes(value[_SEQUENCE], "big")


def is_newer(value: bytes, occupant: bytes) -> bool:
    """Return whether one ring record has a higher sequence than another, by their values.

    Both have formats of this version. Sequences are big-endian, so their bytes compare like numbers.
    """
    return value[_SEQUENCE] > occupant[_SEQUENCE]


def ring_entries(values: Iterable[bytes]) -> Iterator[tuple[int, bytes, int, int]]:
    """Yield sequence, ID, timestamp and digest of ring records, by their values. An index is built from them."""
    unpack, size = _RING_VALUE.unpack_from, _RING_VALUE.size
    for value in values:
        version, sequence, _, _, timestamp = unpack(value)
        digest = _DIGEST.unpack_from(value, size)[0] if version == FORMAT_DIGEST else 0
        yield sequence, value[_ID_AT[version] :], timestamp, digest


_LENGTH: Final = struct.Struct(">H")


def chunk_part(value: bytes) -> bytes:
    """Return a ring record's value in the form of a chunk with only this record."""
    return _LENGTH.pack(len(value)) + value


class Chunk:
    """Ring records of one capacity with consecutive sequences. A u16 length precedes each value."""

    __slots__ = ("capacity", "encoded")

    def __init__(self, capacity: int, encoded: bytes) -> None:
        self.capacity = capacity
        self.encoded = encoded

    @classmethod
    def from_values(cls, capacity: int, values: Iterable[bytes]) -> Self:
        """Return a chunk of ring record values, in order."""
        return cls(capacity, b"".join(map(chunk_part, values)))

    def values(self) -> Iterator[bytes]:
        """Yield the values of the ring records, in order. Raises FormatError if it is damaged, or has another format version."""
        encoded, at = self.encoded, 0
        while at < len(encoded):
            end = at + 2 + int.from_bytes(encoded[at : at + 2], "big")
            value = encoded[at + 2 : end]
            if end > len(encoded) or not _is_whole(value):
                raise FormatError(f"a chunk of ring records is damaged, or of another format, at byte {at}")
            yield value
            at = end

    def of_sequences(self, sequences: Iterable[int]) -> Iterator[bytes]:
        """Yield the values of these ascending sequences, as far as the chunk contains them. Raises as :meth:`values`, but skips other values unread."""
        encoded, at = self.encoded, 0
        size = len(encoded)
        number = sequence_of(encoded[2:]) if size > _RING_VALUE.size else 0
        for sequence in sequences:
            while number < sequence and at < size - 1:
                at += 2 + (encoded[at] << 8 | encoded[at + 1])
                number += 1
            if number != sequence or at >= size:
                continue
            value = encoded[at + 2 : at + 2 + int.from_bytes(encoded[at : at + 2], "big")]
            if not _is_whole(value) or sequence_of(value) != sequence:
                raise FormatError(f"a chunk of ring records is damaged, or of another format, at byte {at}")
            yield value

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield ring records, key and value."""
        pack, capacity = _RING_KEY.pack, self.capacity
        for value in self.values():
            yield pack(KIND_RING, capacity, sequence_of(value) % capacity), value


def hops_key(route: Route) -> bytes:
    """Return the key of a route's hops record."""
    return _HOPS_KEY.pack(KIND_HOPS, route.arrived) + hop.encode_source(route.source)


def hops_value(floor: int, offsets: Sequence[int]) -> bytes:
    """Return the value of a hops record. The offsets ascend from the floor."""
    return _HOPS_VALUE.pack(FORMAT_VERSION, floor) + offset_ranges.encode_offsets(floor, offsets)


def check_hops(key: bytes, value: bytes) -> None:
    """Raise FormatError if a hops record has no readable format, at a fraction of the cost of decoding."""
    if len(value) <= _HOPS_VALUE.size:
        raise FormatError(f"hops record with key {key.hex()} is damaged: {len(value)} bytes")
    if value[0] != FORMAT_VERSION:
        raise FormatError(f"hops record of format {value[0]}; this version reads format {FORMAT_VERSION}")


def decode_hops(key: bytes, value: bytes) -> tuple[Route, int, list[Run]]:
    """Decode a hops record: the route, its floor, and the ranges of offsets above it. Raises FormatError."""
    check_hops(key, value)
    try:
        _, arrived = _HOPS_KEY.unpack_from(key)
        _, floor = _HOPS_VALUE.unpack_from(value)
        above = offset_ranges.decode(floor, value[_HOPS_VALUE.size :])
    except (struct.error, ValueError) as error:
        raise FormatError(f"hops record with key {key.hex()} is damaged: {error}") from error
    source = hop.decode_source(key[_HOPS_KEY.size :])
    if source is None:
        raise FormatError(f"hops record with key {key.hex()} is damaged: it names no source of a bridge")
    return Route(source, arrived), floor, above


def encode_meta(meta: Meta) -> bytes:
    """Return the value of a meta record. It is JSON, so that operators can read it with any Kafka tool."""
    fields = meta._asdict()
    if meta.lanes:
        version = FORMAT_LANES
    else:
        version = FORMAT_BRIDGED if meta.bridged else FORMAT_VERSION
        for key in _LANES:
            del fields[key]
    for key in _OPTIONAL:
        if not fields[key]:
            del fields[key]
    if meta.promise is not None:
        fields[_PROMISE] = meta.promise._asdict()
    return json.dumps({"format": version, **fields}, separators=(",", ":")).encode()


def decode_meta(value: bytes) -> Meta:
    """Decode a meta record. Raises FormatError for other formats and for missing keys."""
    try:
        data: dict[str, Any] = json.loads(value)
        version = data["format"]
        if version not in {FORMAT_VERSION, FORMAT_BRIDGED, FORMAT_LANES}:
            raise FormatError(
                f"meta record of format {version}; this version reads formats {FORMAT_VERSION} to {FORMAT_LANES}"
            )
        keys = frozenset(Meta._fields) if version == FORMAT_LANES else _META_KEYS
        if missing := keys - data.keys() - _OPTIONAL:
            raise FormatError(f"meta record is damaged: it lacks {', '.join(sorted(missing))}")
        # A later version may add fields under the same format. They are ignored.
        known = {key: data[key] for key in data.keys() & keys}
        if known.get(_PROMISE):
            known[_PROMISE] = Promise(**known[_PROMISE])
        return Meta(**({"bridged": version == FORMAT_BRIDGED} | known))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FormatError(f"meta record is damaged: {error}") from error
