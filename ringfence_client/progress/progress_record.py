"""Progress record: the position of a consumer group in one partition, and its lease. Pure.

The compacted topic ``<app id>-progress`` has one record for each consumer group, topic and partition; docs/formats.md describes it for
other programs. A large record has parts beside it (:mod:`ringfence_client.progress.record_parts`). Records are JSON, so that any console
consumer shows them. Only the finished offsets are packed.
"""

import base64
import binascii
import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Final

from ringfence_client.handlers.retries import Failures
from ringfence_client.progress import record_parts
from ringfence_client.progress.record_parts import ByOffset, Change
from ringfence_kafka.protocol import offset_ranges

FORMAT: Final = 2
"""Format of a record without parts, the largest that has none."""
FORMAT_WITH_PARTS: Final = 3

HELD: Final = "held"
DRAINING: Final = "draining"
"""The holder lost the assignment, or may have lost it. It finishes delivered messages and delivers no new ones."""
RELEASED: Final = "released"
"""All runs have ended. The next consumer that is assigned the partition takes it."""
_STATES: Final = frozenset({HELD, DRAINING, RELEASED})
_FIELDS: Final[Mapping[str, type]] = {
    **dict.fromkeys(("next", "reserved"), int), **dict.fromkeys(("holder", "web", "state"), str),
    **dict.fromkeys(("token", "delivered", "running", "beat"), int), "topic_id": str,
}  # fmt: skip


class ProgressFormatError(ValueError):
    """A record that this version cannot read."""


class MissingPartsError(ProgressFormatError):
    """Parts are missing, or another write has replaced them. The record must be read again."""


@dataclass(frozen=True, slots=True)
class Progress(ByOffset):
    """Facts for a successor.

    Attributes:
        next: Every lower offset is finished. It is also the consumer group's committed offset.
        reserved: Handlers received only lower offsets.
        holder: The holder that wrote the record. Each opening of a partition has a new name.
        web: Address of the holder's web server; empty = the holder has no server.
        purged: Groups whose messages an operator dropped. Each has two offsets: the first dropped one that was not fetched, and the first
            kept one.
        state: :data:`HELD`, :data:`DRAINING` or :data:`RELEASED`.
        token: Fencing token, greater than those of all earlier holders.
        delivered: Every message that a handler ever received has a lower offset.
        running: Number of messages that handlers have now, or receive again before others of their groups.
        beat: Counter of the holder's records. It makes a record differ from the previous one even if nothing else changed.
        topic_id: Kafka's ID of the topic that the offsets belong to; empty = unknown.
        parts: Numbers of the record's parts.
        states: Kafka's ID of the topic with the states of the groups; empty = no state was kept, or unknown.
    """

    next: int
    _: KW_ONLY
    reserved: int = 0
    holder: str = ""
    web: str = ""
    purged: Mapping[bytes, offset_ranges.Run] = field(default_factory=dict)
    state: str = RELEASED
    token: int = 0
    delivered: int = 0
    running: int = 0
    beat: int = 0
    topic_id: str = ""
    parts: Sequence[int] = field(default=(), compare=False)
    states: str = ""

    @property
    def released(self) -> bool:
        """Whether no consumer holds the partition."""
        return self.state == RELEASED


@functools.lru_cache(maxsize=4096)
def encode_key(group: str, topic: str, partition: int) -> bytes:
    """Return the record's key."""
    return json.dumps([group, topic, partition], separators=(",", ":")).encode()


def decode_key(key: bytes) -> tuple[str, str, int]:
    """Return consumer group, topic and partition; raise ProgressFormatError for another key."""
    try:
        group, topic, partition = json.loads(key)
        return str(group), str(topic), int(partition)
    except (ValueError, TypeError) as error:
        raise ProgressFormatError(f"{key!r} is no key of a progress record") from error


def encode(progress: Progress, checksums: Mapping[str, int] | None = None) -> bytes:
    """Return the record's value. ``checksums``: those of the parts with the facts by offset; None = the record itself contains them."""
    document: dict[str, Any] = {
        "format": FORMAT if checksums is None else FORMAT_WITH_PARTS,
        **{name: getattr(progress, name) for name in _FIELDS},
        "purged": {group.hex(): run for group, run in progress.purged.items()},
    }
    if progress.states:
        document["states"] = progress.states
    if checksums is not None:
        document["parts"] = checksums
    else:
        document |= _encoded(progress)
    return json.dumps(document, separators=(",", ":")).encode()


def records(key: bytes, progress: Progress, change: Change) -> list[tuple[bytes, bytes | None]]:
    """Return keys and values of the records to write. Parts come first, so that readers of the record find them."""
    parts = [(record_parts.key_of(key, number), value) for number, value in change.parts]
    return [*parts, (key, encode(progress, change.head))]


def _encoded(progress: Progress) -> dict[str, Any]:
    document: dict[str, Any] = {
        "finished": base64.b64encode(offset_ranges.encode(progress.next, progress.finished)).decode(),
        "attempts": {str(offset): count for offset, count in progress.attempts.items()},
        "failures": {str(offset): failure for offset, failure in progress.failures.items()},
    }
    if progress.again:
        document["again"] = list(progress.again)
    if progress.blocked:
        document["blocked"] = list(progress.blocked)
    if progress.redriven:
        document["redriven"] = {str(offset): count for offset, count in progress.redriven.items()}
    return document


def decode(
    value: bytes, find: Callable[[int], bytes | None] | None = None, *, partial: bool = False
) -> Progress:
    """Read a value that :func:`encode` wrote. ``find`` returns a part's last value; ``partial``: messages of missing parts are unfinished.

    Raises:
        MissingPartsError: Parts are missing, or belong to another write.
        ProgressFormatError: The record is damaged, or has another version.
    """
    try:
        document = json.loads(value)
        found = document["format"]
        known = type(found) is int and found in {FORMAT, FORMAT_WITH_PARTS}
        progress, missing = _progress(document, find or (lambda _: None)) if known else (None, [])
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, binascii.Error) as error:
        raise ProgressFormatError(
            f"a progress record cannot be read ({error!r}): {value[:200]!r}: run the version that wrote it, or stop the group's consumers "
            "and delete its progress with 'ringfence consumers forget'"
        ) from error
    if progress is None:
        raise ProgressFormatError(
            f"a progress record has format {found}, this version reads {FORMAT} and {FORMAT_WITH_PARTS}: run the version that wrote "
            "it"
        )
    if missing and not partial:
        raise MissingPartsError(
            f"a progress record has parts that are not there as it names them: {', '.join(map(str, missing))}"
        )
    return progress


def part_keys(key: bytes, value: bytes) -> list[bytes]:
    """Return the keys of a record's parts; empty if it has no parts or cannot be read."""
    if b'"parts"' not in value:  # most records have no parts
        return []
    try:
        numbers = [int(load) for load in json.loads(value)["parts"]]
    except (ValueError, KeyError, TypeError):
        return []
    return [record_parts.key_of(key, number) for number in numbers]


def _progress(
    document: dict[str, Any], find: Callable[[int], bytes | None]
) -> tuple[Progress, Sequence[int]]:
    facts: dict[str, Any] = {name: kind(document[name]) for name, kind in _FIELDS.items()}
    if facts["state"] not in _STATES:
        raise ValueError(f"unknown state {facts['state']}")
    following = facts["next"]
    missing: Sequence[int] = ()
    parts: Sequence[int] = ()
    if document["format"] == FORMAT_WITH_PARTS:
        by_offset, missing = record_parts.join(following, document["parts"], find)
        parts = tuple(int(number) for number in document["parts"])
    else:
        by_offset = _by_offset(following, document)
    progress = Progress(
        **facts,
        **{name: getattr(by_offset, name) for name in ByOffset.__slots__},
        purged={
            bytes.fromhex(group): (int(begin), int(end)) for group, (begin, end) in document["purged"].items()
        },
        parts=parts,
        states=str(document.get("states", "")),
    )
    return progress, missing


def _by_offset(following: int, document: dict[str, Any]) -> ByOffset:
    return ByOffset(
        finished=offset_ranges.decode(following, base64.b64decode(document["finished"], validate=True)),
        attempts={int(offset): int(count) for offset, count in document["attempts"].items()},
        failures={
            int(offset): Failures(int(count), int(since))
            for offset, (count, since) in document["failures"].items()
        },
        again=tuple(map(int, document.get("again", ()))),
        blocked=tuple(map(int, document.get("blocked", ()))),
        redriven={int(offset): int(count) for offset, count in document.get("redriven", {}).items()},
    )
