"""A record of a quarantine or dead-letter topic, as an operator sees it. Pure."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from ringfence_kafka.protocol import wire_names

Header = tuple[str, bytes | None]

_DIGITS: Final = re.compile(rb"[0-9]{1,18}")
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_DIGEST_NAMES: Final = frozenset({"bytes", "blake2b_256"})


class Place(NamedTuple):
    """Where a record stands."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"


class Digest(NamedTuple):
    """What stands for a value that did not fit."""

    size: int
    blake2b_256: str

    def of(self, value: bytes | None) -> bool:
        """Whether it is this value's."""
        found = value or b""
        return len(found) == self.size and blake2b(found, digest_size=32).hexdigest() == self.blake2b_256


@dataclass(frozen=True, slots=True)
class Refused:
    """One of them.

    Attributes:
        place: Where it stands there.
        key, value, headers, timestamp: As they stand there.
        reason: Why.
        source: ``<topic>/<partition>/<offset>`` of the input record; empty = it does not say.
        redriven: How often it was.
        app_id: Of what a bridge has refused: its application; empty = it does not say.
        consumer_group: Of a dead letter: whose handler; else empty.
        attempts: Of a dead letter: how often it was tried.
        accepted: Of a dead letter: where its message stands; None = it does not say.
        digest: What stands for its value; None = the value is there.
    """

    place: Place
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header]
    timestamp: int
    reason: str = ""
    source: str = ""
    redriven: int = 0
    app_id: str = ""
    consumer_group: str = ""
    attempts: int = 0
    accepted: Place | None = None
    digest: Digest | None = field(default=None)


def read(topic: str, record: Any) -> Refused:
    """What aiokafka's record says. What is not as we write it counts as missing: anybody may write there."""
    known = dict(record.headers)  # of repeats the last wins, as in Kafka
    return Refused(
        place=Place(topic, record.partition, record.offset),
        key=record.key,
        value=record.value,
        headers=tuple(record.headers),
        timestamp=record.timestamp,
        reason=_text(known.get(wire_names.HEADER_REASON)),
        source=_text(known.get(wire_names.HEADER_SOURCE)),
        redriven=_number(known.get(wire_names.HEADER_REDRIVEN)) or 0,
        app_id=_text(known.get(wire_names.HEADER_BRIDGE_APP)),
        consumer_group=_text(known.get(wire_names.HEADER_CONSUMER_GROUP)),
        attempts=_number(known.get(wire_names.HEADER_ATTEMPTS)) or 0,
        accepted=_accepted(known),
        digest=_digest(record.value),
    )


def place_of(text: str) -> Place | None:
    """The place that ``<topic>/<partition>/<offset>`` names; None = it is not that."""
    topic, *numbers = text.rsplit("/", 2)
    found = [_number(number.encode()) for number in numbers]
    if not topic or len(found) != 2 or found[0] is None or found[1] is None:
        return None
    return Place(topic, found[0], found[1])


def _accepted(headers: dict[str, bytes | None]) -> Place | None:
    topic = _text(headers.get(wire_names.DEAD_LETTER_TOPIC))
    partition = _number(headers.get(wire_names.DEAD_LETTER_PARTITION))
    offset = _number(headers.get(wire_names.DEAD_LETTER_OFFSET))
    if not topic or partition is None or offset is None:
        return None
    return Place(topic, partition, offset)


def _text(value: bytes | None) -> str:
    return (value or b"").decode(errors="backslashreplace")


def _number(value: bytes | None) -> int | None:
    return int(value) if value is not None and _DIGITS.fullmatch(value) else None


def _digest(value: bytes | None) -> Digest | None:
    """A user's value of just this form is taken for one too: what it stands for is looked for, and found to be itself."""
    if value is None or not value.startswith(b"{") or len(value) > 200:
        return None
    try:
        found = json.loads(value)
    except ValueError:
        return None
    if not isinstance(found, dict) or found.keys() != _DIGEST_NAMES:
        return None
    size, digest = found["bytes"], found["blake2b_256"]
    if type(size) is not int or not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        return None
    return Digest(size, digest)
