"""Records as Kafka returns them, and what each input record asks for."""

import base64
import json
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

ID_HEADER: Final = "_AMQ_DUPL_ID"
SOURCE_HEADER: Final = "_RF_SOURCE"
TRANSACTION_HEADER: Final = "_RF_TX"
PART_HEADER: Final = "_RF_TX_PART"

Place = tuple[str, int, int]
"""Topic, partition and offset of an input record."""
Id = tuple[str, bytes]
"""A duplicate ID, and the address whose it is."""
Headers = tuple[tuple[str, bytes | None], ...]


class CannotJudgeError(Exception):
    """Kafka did not let us see all of it, or what it shows cannot be read."""


class Record(NamedTuple):
    """A record as Kafka returned it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int


class Wanted(NamedTuple):
    """An accepted record as it must be, but for what Ringfence adds to its headers."""

    address: str
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int


class Unit(NamedTuple):
    """An input record: a message, or a transaction, of which all parts are accepted or none."""

    place: Place
    ids: tuple[Id, ...]
    """What makes it the same as another one: one ID that both have."""
    wanted: dict[str, Wanted]
    """By part, ``i/N``; a message has one, without a name."""

    def __str__(self) -> str:
        topic, partition, offset = self.place
        [first, *_] = self.wanted.values()
        ids = ", ".join(text(each) for _, each in self.ids) or "none"
        return f"{topic}/{partition}/{offset} (group {text(first.key)}, ID {ids})"


def unit(topic: str, record: Record) -> Unit:
    """What an input record asks for.

    Raises:
        CannotJudgeError: it says that it is a transaction, and is none.
    """
    place = (topic, record.partition, record.offset)
    own = _ids(topic, record.headers)
    if TRANSACTION_HEADER not in dict(record.headers):
        return Unit(
            place, own, {"": Wanted(topic, record.key, record.value, record.headers, record.timestamp)}
        )
    try:
        parts = [_part(topic, each, record.timestamp) for each in json.loads(record.value or b"")["parts"]]
        wanted = {f"{number}/{len(parts)}": each for number, each in enumerate(parts, 1)}
        [*_, _last] = parts
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CannotJudgeError(
            f"{topic}/{record.partition}/{record.offset} is no transaction: {error!r}"
        ) from error
    return Unit(place, own + tuple(_ids_of(parts)), wanted)


def _part(topic: str, part: dict[str, Any], timestamp: int) -> Wanted:
    headers = tuple((each["name"], _bytes(each, "value")) for each in part.get("headers") or ())
    return Wanted(
        part.get("address") or topic, _bytes(part, "key"), _bytes(part, "value"), headers, timestamp
    )


def _bytes(holder: dict[str, Any], name: str) -> bytes | None:
    plain, encoded = holder.get(name), holder.get(f"{name}_base64")
    if encoded is not None:
        return base64.b64decode(encoded)
    return None if plain is None else str(plain).encode()


def _ids_of(parts: list[Wanted]) -> Iterator[Id]:
    for each in parts:
        yield from _ids(each.address, each.headers)


def _ids(address: str, headers: Headers) -> tuple[Id, ...]:
    """The last of several counts; null is none."""
    found = dict(headers).get(ID_HEADER)
    return () if found is None else ((address, found),)


def text(value: bytes | None) -> str:
    """For a person."""
    return "none" if value is None else value.decode("utf-8", "replace")
