"""The progress record: how far a consumer group is in one partition, and whose it is: the lease. Pure.

One record a (consumer group, topic, partition) in the compacted topic ``<app id>-progress``; docs/formats.md has it for other programs. A
large one has parts beside it (:mod:`ringfence_client.progress.record_parts`). It is JSON, so that any console consumer shows it; the finished
offsets in it are packed.
"""

import base64
import binascii
import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ringfence_client.handlers.retries import Failures
from ringfence_client.progress import record_parts
from ringfence_client.progress.record_parts import ByOffset, Change
from ringfence_kafka.protocol import offset_ranges

FORMAT: Final = 2
"""Largest record without parts."""
FORMAT_WITH_PARTS: Final = 3

HELD: Final = "held"
DRAINING: Final = "draining"
"""Its holder lost the assignment, or may have: it acknowledges what it was delivered, and delivers nothing new."""
RELEASED: Final = "released"
"""Everything that was begun has ended, so the next consumer that is assigned the partition takes it."""
_STATES: Final = frozenset({HELD, DRAINING, RELEASED})


class ProgressFormatError(ValueError):
    """A record that this version cannot read."""


class MissingPartsError(ProgressFormatError):
    """Parts of a record are not there, or another write has replaced them: to be read again."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Facts for a successor.

    Attributes:
        next: Everything below is finished. It is the consumer group's committed offset too.
        finished: Finished offsets above it: half-open runs, rising.
        attempts: How often each begun and unfinished message was begun, by offset.
        reserved: No message at or above this offset was ever handed to a handler.
        holder: The holder that wrote it. Each opening of a partition has a new name.
        web: Address of the holder's web server; empty = it has none.
        purged: Groups whose messages an operator dropped, each with two offsets: the first dropped one that was not fetched, and the first
            kept one.
        state: :data:`HELD`, :data:`DRAINING` or :data:`RELEASED`.
        token: The fencing token: each holder's is greater than those of all before it.
        delivered: Everything that a handler was ever given lies below.
        running: How many messages handlers have now, or will be given again before others of their groups.
        beat: Grows with each record that a holder writes: one that says nothing new is another one nevertheless.
        failures: Attempts in which a handler failed, and the time of the first one, by offset. An attempt that is in neither ended with its
        process.
        topic_id: Kafka's own ID of the topic that the offsets are of; empty = not known.
        again: Offsets that are to be done once more, though they count as finished: their dead letters were redriven.
        blocked: Offsets whose dead letters are written, and which are not finished: their groups wait until they are redriven.
        redriven: How often an offset was redriven; of the last of them.
        parts: Numbers of the parts that the record has beside it.
    """

    next: int
    finished: Sequence[tuple[int, int]] = ()
    attempts: Mapping[int, int] = field(default_factory=dict)
    reserved: int = 0
    holder: str = ""
    web: str = ""
    purged: Mapping[bytes, offset_ranges.Run] = field(default_factory=dict)
    state: str = RELEASED
    token: int = 0
    delivered: int = 0
    running: int = 0
    beat: int = 0
    failures: Mapping[int, Failures] = field(default_factory=dict)
    topic_id: str = ""
    again: Sequence[int] = ()
    blocked: Sequence[int] = ()
    redriven: Mapping[int, int] = field(default_factory=dict)
    parts: Sequence[int] = field(default=(), compare=False)

    def by_offset(self) -> ByOffset:
        """Return its facts by offset. This part grows."""
        return ByOffset(
            finished=self.finished,
            attempts=self.attempts,
            failures=self.failures,
            again=self.again,
            blocked=self.blocked,
            redriven=self.redriven,
        )

    @property
    def released(self) -> bool:
        """Whether it is nobody's."""
        return self.state == RELEASED


@functools.lru_cache(maxsize=4096)
def encode_key(group: str, topic: str, partition: int) -> bytes:
    """Return the record's key."""
    return json.dumps([group, topic, partition], separators=(",", ":")).encode()


def decode_key(key: bytes) -> tuple[str, str, int]:
    """Return consumer group, topic and partition; raises ProgressFormatError for another key."""
    try:
        group, topic, partition = json.loads(key)
        return str(group), str(topic), int(partition)
    except (ValueError, TypeError) as error:
        raise ProgressFormatError(f"{key!r} is no key of a progress record") from error


def encode(progress: Progress, checksums: Mapping[str, int] | None = None) -> bytes:
    """Return the record's value; ``checksums``: of the parts that say what is known by offset; None = the record says it."""
    document: dict[str, Any] = {
        "format": FORMAT if checksums is None else FORMAT_WITH_PARTS,
        "next": progress.next,
        "reserved": progress.reserved,
        "holder": progress.holder,
        "web": progress.web,
        "state": progress.state,
        "token": progress.token,
        "delivered": progress.delivered,
        "running": progress.running,
        "beat": progress.beat,
        "purged": {group.hex(): run for group, run in progress.purged.items()},
        "topic_id": progress.topic_id,
    }
    if checksums is not None:
        document["parts"] = checksums
    else:
        document |= _encoded(progress)
    return json.dumps(document, separators=(",", ":")).encode()


def records(key: bytes, progress: Progress, change: Change) -> list[tuple[bytes, bytes | None]]:
    """Return keys and values of the records to write: parts first, so that readers of the record find them."""
    parts = [(record_parts.key_of(key, number), value) for number, value in change.parts]
    return [*parts, (key, encode(progress, change.head))]


def _encoded(progress: Progress) -> dict[str, Any]:
    """Return what is known by offset, for a record that is whole."""
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
    """Read what :func:`encode` wrote.

    Args:
        value: The record's.
        find: Returns the last value of a part, by its number; None = the caller has no parts.
        partial: Leave out parts that are not there: what they said counts as not finished.

    Raises:
        MissingPartsError: parts are not there, or are of another write.
        ProgressFormatError: it is damaged, or of another version.
    """
    try:
        document = json.loads(value)
        found = document["format"]
        progress, missing = _progress(document, find or (lambda _: None)) if _reads(found) else (None, [])
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
    """Return the keys of a record's parts; none where it has none, or cannot be read."""
    if b'"parts"' not in value:  # most have none
        return []
    try:
        numbers = [int(load) for load in json.loads(value)["parts"]]
    except (ValueError, KeyError, TypeError):
        return []
    return [record_parts.key_of(key, number) for number in numbers]


def _reads(found: Any) -> bool:
    return type(found) is int and found in {FORMAT, FORMAT_WITH_PARTS}


def _progress(
    document: dict[str, Any], find: Callable[[int], bytes | None]
) -> tuple[Progress, Sequence[int]]:
    """Return what a record says, and the numbers of parts that are missing."""
    following, state = int(document["next"]), str(document["state"])
    if state not in _STATES:
        raise ValueError(f"unknown state {state}")
    missing: Sequence[int] = ()
    parts: Sequence[int] = ()
    if document["format"] == FORMAT_WITH_PARTS:
        by_offset, missing = record_parts.join(following, document["parts"], find)
        parts = tuple(int(number) for number in document["parts"])
    else:
        by_offset = _by_offset(following, document)
    progress = Progress(
        following,
        by_offset.finished,
        by_offset.attempts,
        int(document["reserved"]),
        str(document["holder"]),
        str(document["web"]),
        {bytes.fromhex(group): (int(begin), int(end)) for group, (begin, end) in document["purged"].items()},
        state,
        int(document["token"]),
        int(document["delivered"]),
        int(document["running"]),
        int(document["beat"]),
        by_offset.failures,
        str(document["topic_id"]),
        tuple(by_offset.again),
        tuple(by_offset.blocked),
        by_offset.redriven,
        parts,
    )
    return progress, missing


def _by_offset(following: int, document: dict[str, Any]) -> ByOffset:
    """Decode what a whole record knows by offset."""
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
