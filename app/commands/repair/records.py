"""Records of a quarantine or dead-letter topic: their content, and the selection of a command. Pure."""

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from ringfence_kafka.errors import ConfigurationError
from ringfence_kafka.protocol import wire_names
from ringfence_kafka.wording import first_of

Header = tuple[str, bytes | None]

_ACCEPTED: Final = (
    wire_names.DEAD_LETTER_TOPIC,
    wire_names.DEAD_LETTER_PARTITION,
    wire_names.DEAD_LETTER_OFFSET,
)
_DIGITS: Final = re.compile(rb"[0-9]{1,18}")
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_AT: Final = re.compile(r"([0-9]{1,9})/([0-9]{1,18})")
_SHOWN_MAX: Final = 5


class Place(NamedTuple):
    """Position of a record."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"


class Digest(NamedTuple):
    """Size and digest that replace a value that did not fit."""

    size: int
    blake2b_256: str

    def matches(self, value: bytes | None) -> bool:
        """Return whether this is the digest of a value."""
        content = value or b""
        return len(content) == self.size and blake2b(content, digest_size=32).hexdigest() == self.blake2b_256


@dataclass(frozen=True, slots=True)
class Refused:
    """Quarantined record or dead letter.

    Attributes:
        place: Position in the quarantine or dead-letter topic.
        key, value, headers, timestamp: Content at that place.
        reason: Why it was refused.
        source: ``<topic>/<partition>/<offset>`` of the input record; empty = unknown.
        redriven: Number of redrives.
        app_id: Application of the bridge that refused it; empty = unknown.
        consumer_group: Consumer group of a dead letter, else empty.
        attempts: Handler's attempts of a dead letter.
        accepted: Place of a dead letter's message in the accepted topic; None = unknown.
        digest: Digest that replaces the value; None = the value is complete.
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
    digest: Digest | None = None


def parse(topic: str, record: Any) -> Refused:
    """Parse aiokafka's record. Headers in another form count as missing: any program may write there."""
    known = dict(record.headers)  # the last of repeated headers wins, as in Kafka
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
        accepted=place_of("/".join(_text(known.get(name)) for name in _ACCEPTED)),
        digest=_digest(record.value),
    )


def place_of(text: str) -> Place | None:
    """Parse ``<topic>/<partition>/<offset>``; None = the text has another form."""
    topic, *numbers = text.rsplit("/", 2)
    found = [_number(number.encode()) for number in numbers]
    if not topic or len(found) != 2 or found[0] is None or found[1] is None:
        return None
    return Place(topic, found[0], found[1])


def _text(value: bytes | None) -> str:
    return (value or b"").decode(errors="backslashreplace")


def _number(value: bytes | None) -> int | None:
    return int(value) if value is not None and _DIGITS.fullmatch(value) else None


def _digest(value: bytes | None) -> Digest | None:
    """Parse a digest, or a user's value of its form until :class:`QuarantineRedrive` compares it."""
    if value is None or not value.startswith(b"{") or len(value) > 200:
        return None
    try:
        found = json.loads(value)
    except ValueError:
        return None
    match found:
        case {"bytes": int(size), "blake2b_256": str(digest), **rest}:
            if not rest and type(size) is int and _DIGEST.fullmatch(digest):
                return Digest(size, digest)
    return None


@dataclass(frozen=True, slots=True)
class Selection:
    """Filters of a command. All given ones must match; without any, every record is selected.

    Attributes:
        reason: Part of the reason, ignoring case.
        group: Group of the message.
        older_s: Minimum age in seconds, by the record's timestamp.
        newer_s: Maximum age in seconds.
        at: Partition and offset of each selected record; empty = any.
        consumer_group: Consumer group of a dead letter; None = any.
    """

    reason: str = ""
    group: bytes | None = None
    older_s: float | None = None
    newer_s: float | None = None
    at: Collection[tuple[int, int]] = ()
    consumer_group: str | None = None

    def matches(self, refused: Refused, group: bytes | None, now_ms: float) -> bool:
        """Return whether a record is selected. ``group``: its group."""
        age = (now_ms - refused.timestamp) / 1000
        return (
            (not self.at or refused.place[1:] in self.at)
            and (not self.consumer_group or refused.consumer_group == self.consumer_group)
            and (self.group is None or group == self.group)
            and (self.older_s is None or age >= self.older_s)
            and (self.newer_s is None or age <= self.newer_s)
            and self.reason.casefold() in refused.reason.casefold()
        )


@dataclass(slots=True)
class FilterCounts:
    """Open records that were read but not selected: they reveal a mistyped name."""

    count: int = 0
    consumer_groups: set[str] = field(default_factory=set)
    """Consumer groups of dead letters."""
    foreign: Counter[str] = field(default_factory=Counter)
    """Records of other applications' bridges of this name. Only those know which are settled."""

    def __str__(self) -> str:
        groups = sorted(self.consumer_groups)
        shown = f" (consumer groups: {first_of(groups, _SHOWN_MAX)})" if groups else ""
        return f"{self.count} others are open{shown}"

    @property
    def foreign_note(self) -> str:
        """Number and applications of foreign records, and what to do; empty = no such records."""
        if not self.foreign:
            return ""
        shown = first_of([f"{app}: {count}" for app, count in sorted(self.foreign.items())], _SHOWN_MAX)
        return (
            f"other applications' bridges of this name put records there: {shown}. They are not changed "
            "here: list, redrive or drop them with the configuration of that application"
        )


@dataclass(frozen=True, slots=True)
class Wanted:
    """Records that a command works on."""

    selection: Selection
    group_of: Callable[[Any], bytes | None]
    """Function that returns a record's group by the rules of its address."""
    settled_too: bool = False
    limit: int | None = None
    """Maximum number of records."""
    app_id: str = ""
    """Application whose bridge refused the records; empty = all."""
    passed: FilterCounts = field(default_factory=FilterCounts)
    """Open records that were not wanted."""

    def takes(self, refused: Refused, record: Any, now_ms: float, *, is_open: bool) -> bool:
        """Return whether a record is wanted; count it if it is open but not wanted."""
        if self.app_id and refused.app_id not in {"", self.app_id}:
            self.passed.foreign[refused.app_id] += 1
            return False
        if self.selection.matches(refused, self.group_of(record), now_ms):
            return True
        if is_open:
            self.passed.count += 1
            self.passed.consumer_groups |= {refused.consumer_group} - {""}
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveOptions:
    """Options of a redrive."""

    dry_run: bool = False
    rate: float | None = None
    """Records per second; None = no limit."""
    limit: int | None = None
    """Maximum number of records."""
    redrives_max: int = 3
    """Number of redrives from which a record is skipped."""
    force: bool = False

    def too_often(self, refused: Refused) -> str:
        """Return why a record was redriven too often; empty = it was not."""
        if refused.redriven < self.redrives_max or self.force:
            return ""
        return f"redriven {refused.redriven} times already: fix the cause, then use --force"


def parse_place(text: str) -> tuple[int, int]:
    """Return partition and offset of ``PARTITION/OFFSET``, as ``list`` prints them.

    Raises:
        ConfigurationError: The text has another form.
    """
    found = _AT.fullmatch(text.strip())
    if found is None:
        raise ConfigurationError(f"{text!r} is not PARTITION/OFFSET: write 0/17, as `list` shows it")
    return int(found[1]), int(found[2])


def resend_advice(address: str) -> str:
    """Return how messages in the quarantine of a chained address are sent again. ``address``: the first one of the chain."""
    return (
        f"send the messages again to {address} under new duplicate IDs, since their present IDs are known there; "
        "'ringfence quarantine drop' then discards these"
    )
