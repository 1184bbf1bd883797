"""Records from Kafka, and the accepted records expected for an input record."""

import base64
import json
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

ID_HEADER: Final = "_AMQ_DUPL_ID"
SOURCE_HEADER: Final = "_RF_SOURCE"
TRANSACTION_HEADER: Final = "_RF_TX"
PART_HEADER: Final = "_RF_TX_PART"
SEQUENCE_HEADER: Final = "_RF_SEQ"
HOP_HEADER: Final = "_RF_BRIDGE_DUPL_ID"
CONFIRMED_HEADER: Final = "_RF_BRIDGE_CONFIRMED"
IGNORED_HEADER: Final = "_RF_BRIDGE_IDS"
PASSED_HEADER: Final = "_RF_HOPS"
_OF_BRIDGES: Final = "_RF_BRIDGE_"

Place = tuple[str, int, int]
"""Topic, partition and offset of an input record."""
Id = tuple[str, bytes]
"""Duplicate ID and the address that it belongs to."""
Headers = tuple[tuple[str, bytes | None], ...]


class CannotJudgeError(Exception):
    """Some records could not be read."""


@dataclass(kw_only=True)
class Faults:
    """Problems that a judgement found. Each list entry describes one."""

    lost: list[str] = field(default_factory=list)
    torn: list[str] = field(default_factory=list)
    """Transactions accepted in part."""
    doubled: list[str] = field(default_factory=list)
    out_of_order: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    @property
    def exact(self) -> bool:
        """Whether no problem was found."""
        return not (self.lost or self.torn or self.doubled or self.out_of_order or self.changed or self.wrong)

    def by_kind(self, *kinds: str) -> dict[str, list[str]]:
        """Return the problems of these kinds."""
        return {kind: getattr(self, kind.replace(" ", "_")) for kind in kinds}


class Record(NamedTuple):
    """Record as Kafka returned it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int


class Wanted(NamedTuple):
    """Expected accepted record, without Ringfence's own headers."""

    address: str
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int


class Hop(NamedTuple):
    """Hop of a record over a bridge."""

    source: tuple[str, str, str]
    """Bridge, topic ID of the source, partition."""
    offset: int
    confirmed: int
    """Offset below which the target had all source offsets before."""


class Unit(NamedTuple):
    """Input record: a message or a transaction."""

    place: Place
    ids: tuple[Id, ...]
    """Two units with a common ID are the same."""
    wanted: dict[str, Wanted]
    """Part ``i/N`` → expected record. A message has one, under an empty name."""
    hop: Hop | None = None

    def __str__(self) -> str:
        topic, partition, offset = self.place
        [first, *_] = self.wanted.values()
        ids = ", ".join(text(data) for _, data in self.ids) or "none"
        return f"{topic}/{partition}/{offset} (group {text(first.key)}, ID {ids})"


def unit(topic: str, record: Record) -> Unit:
    """Return the unit of an input record.

    Raises:
        CannotJudgeError: The record is marked as a transaction, but is not one.
    """
    place = (topic, record.partition, record.offset)
    found = dict(record.headers)
    hop = _hop(place, found)
    # over a bridge, the last list of passed clusters is kept
    passed = ((PASSED_HEADER, found[PASSED_HEADER]),) if hop and PASSED_HEADER in found else ()
    counted = hop is None or IGNORED_HEADER not in found
    own = _ids(topic, record.headers) if counted else ()
    if TRANSACTION_HEADER not in found:
        headers = (*_without_bridges(record.headers), *passed)
        wanted_one = Wanted(topic, record.key, record.value, headers, record.timestamp)
        return Unit(place, own, {"": wanted_one}, hop)
    try:
        listed = json.loads(record.value or b"")["parts"]
        parts = [_part(topic, item, record.timestamp) for item in listed]
        if counted:
            own += tuple(known for part in parts for known in _ids(part.address, part.headers))
        parts = [part._replace(headers=(*part.headers, *passed)) for part in parts]
        wanted = {f"{number}/{len(parts)}": part for number, part in enumerate(parts, 1)}
        [*_, _last] = parts
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CannotJudgeError(
            f"{topic}/{record.partition}/{record.offset} is no transaction: {error!r}"
        ) from error
    return Unit(place, own, wanted, hop)


def _hop(place: Place, headers: dict[str, bytes | None]) -> Hop | None:
    """Return the hop; None = the record did not come over a bridge. Raises CannotJudgeError."""
    if HOP_HEADER not in headers:
        return None
    try:
        bridge, topic_id, partition, offset = (headers[HOP_HEADER] or b"").decode().split("/")
        return Hop(
            (bridge, topic_id, partition), int(offset), int(headers.get(CONFIRMED_HEADER, b"0") or b"")
        )
    except ValueError as error:
        raise CannotJudgeError(f"{'/'.join(map(str, place))} came over no bridge: {error!r}") from error


def _without_bridges(headers: Headers) -> Headers:
    return tuple(
        header for header in headers if not header[0].startswith(_OF_BRIDGES) and header[0] != PASSED_HEADER
    )


def _part(topic: str, part: dict[str, Any], timestamp: int) -> Wanted:
    headers = tuple((item["name"], _bytes(item, "value")) for item in part.get("headers") or ())
    return Wanted(
        part.get("address") or topic, _bytes(part, "key"), _bytes(part, "value"), headers, timestamp
    )


def _bytes(holder: dict[str, Any], name: str) -> bytes | None:
    plain, encoded = holder.get(name), holder.get(f"{name}_base64")
    if encoded is not None:
        return base64.b64decode(encoded)
    return None if plain is None else str(plain).encode()


def _ids(address: str, headers: Headers) -> tuple[Id, ...]:
    """Return the ID, if there is one: the last of repeated headers, and not null or empty."""
    found = dict(headers).get(ID_HEADER)
    return ((address, found),) if found else ()


def text(value: bytes | None) -> str:
    """Return bytes as readable text."""
    return "none" if value is None else value.decode("utf-8", "replace")
