"""The progress record: how far a consumer group is in one partition, and whose it is: the lease. Pure.

One record a (consumer group, topic, partition) in the compacted topic ``<app id>-progress``; docs/formats.md has it for
other programs. The record is JSON, so that any console consumer shows it; the finished offsets in it are packed, because
they may be many. Commit metadata, which is where others keep such things, takes 4 KB.
"""

import base64
import binascii
import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ringfence_client.retries import Failures
from ringfence_kafka import runs

FORMAT: Final = 2

HELD: Final = "held"
DRAINING: Final = "draining"
"""Its holder lost the assignment, or may have: it acknowledges what it was delivered, and delivers nothing new."""
RELEASED: Final = "released"
"""All that was begun has ended: whoever is assigned the partition takes it."""
_STATES: Final = frozenset({HELD, DRAINING, RELEASED})


class ProgressFormatError(ValueError):
    """A record that this version cannot read."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What a successor must know.

    Attributes:
        next: Everything below is finished. It is the consumer group's committed offset too.
        finished: Finished offsets above it: half-open runs, rising.
        attempts: Of messages that were begun and are not finished, by offset: how often.
        reserved: No message at or above this offset was ever handed to a handler.
        holder: Who wrote it; made anew whenever a partition is opened.
        web: Where the holder's web server is; empty = it has none.
        purged: Groups of which an operator dropped everything from the first offset, which nobody had fetched, up to
            and without the second, which is not read yet.
        state: :data:`HELD`, :data:`DRAINING` or :data:`RELEASED`.
        token: The fencing token: each holder's is greater than those of all before it.
        delivered: Everything that a handler was ever given lies below.
        running: How many messages handlers have now, or will be given again before others of their groups.
        beat: Grows with each record that a holder writes: one that says nothing new is another one nevertheless.
        failures: Of the attempts, those that a handler failed in, and the time of the first, by offset. What is in neither
            ended without a word: with its process.
        topic_id: Kafka's own ID of the topic that the offsets are of; empty = not known, an earlier version wrote it.
        again: Offsets that are to be done once more, though they count as finished: their dead letters were redriven.
        blocked: Offsets whose dead letters are written, and which are not finished: their groups wait until they are redriven.
        redriven: How often an offset was redriven; of the last of them.
    """

    next: int
    finished: Sequence[tuple[int, int]] = ()
    attempts: Mapping[int, int] = field(default_factory=dict)
    reserved: int = 0
    holder: str = ""
    web: str = ""
    purged: Mapping[bytes, runs.Run] = field(default_factory=dict)
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

    @property
    def released(self) -> bool:
        """Whether it is nobody's."""
        return self.state == RELEASED


@functools.lru_cache(maxsize=4096)
def encode_key(group: str, topic: str, partition: int) -> bytes:
    """The record's key."""
    return json.dumps([group, topic, partition], separators=(",", ":")).encode()


def decode_key(key: bytes) -> tuple[str, str, int]:
    """Consumer group, topic, partition.

    Raises:
        ProgressFormatError: it is no such key.
    """
    try:
        group, topic, partition = json.loads(key)
        return str(group), str(topic), int(partition)
    except (ValueError, TypeError) as error:
        raise ProgressFormatError(f"{key!r} is no key of a progress record") from error


def encode(progress: Progress) -> bytes:
    """The record's value."""
    document = {
        "format": FORMAT,
        "next": progress.next,
        "finished": base64.b64encode(runs.encode(progress.next, progress.finished)).decode(),
        "attempts": {str(offset): count for offset, count in progress.attempts.items()},
        "reserved": progress.reserved,
        "holder": progress.holder,
        "web": progress.web,
        "state": progress.state,
        "token": progress.token,
        "delivered": progress.delivered,
        "running": progress.running,
        "beat": progress.beat,
        "failures": {str(offset): each for offset, each in progress.failures.items()},
        "purged": {group.hex(): run for group, run in progress.purged.items()},
        # Came after the others: no new format, because earlier versions leave names alone that they do not know.
        "topic_id": progress.topic_id,
    }
    if progress.again:
        document["again"] = list(progress.again)
    if progress.blocked:
        document["blocked"] = list(progress.blocked)
    if progress.redriven:
        document["redriven"] = {str(offset): count for offset, count in progress.redriven.items()}
    return json.dumps(document, separators=(",", ":")).encode()


def decode(value: bytes) -> Progress:
    """Reads :func:`encode`'s.

    Raises:
        ProgressFormatError: it is damaged, or of a later version.
    """
    try:
        document = json.loads(value)
        found = document["format"]
        progress = _progress(document) if found == FORMAT else None
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, binascii.Error) as error:
        raise ProgressFormatError(f"a progress record cannot be read ({error!r}): {value[:200]!r}") from error
    if progress is None:
        raise ProgressFormatError(
            f"a progress record has format {found}, this version reads {FORMAT}: run the version that wrote it, or a "
            "later one"
        )
    return progress


def _progress(document: dict[str, Any]) -> Progress:
    following, state = int(document["next"]), str(document["state"])
    if state not in _STATES:
        raise ValueError(f"unknown state {state}")
    return Progress(
        following,
        runs.decode(following, base64.b64decode(document["finished"], validate=True)),
        {int(offset): int(count) for offset, count in document["attempts"].items()},
        int(document["reserved"]),
        str(document["holder"]),
        str(document["web"]),
        {bytes.fromhex(group): (int(begin), int(end)) for group, (begin, end) in document["purged"].items()},
        state,
        int(document["token"]),
        int(document["delivered"]),
        int(document["running"]),
        int(document["beat"]),
        # Records of former versions have none.
        {
            int(offset): Failures(int(count), int(since))
            for offset, (count, since) in document.get("failures", {}).items()
        },
        str(document.get("topic_id", "")),
        tuple(map(int, document.get("again", ()))),
        tuple(map(int, document.get("blocked", ()))),
        {int(offset): int(count) for offset, count in document.get("redriven", {}).items()},
    )
