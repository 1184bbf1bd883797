"""A large progress record in parts: a head, and a record for each range of offsets. Pure.

A hundred thousand messages that failed, wait or are blocked do not fit a record. Beyond :data:`WHOLE_MAX` entries, parts in the same
partition contain the facts by offset. A write contains the head and the changed parts, in one transaction. The head has the checksum of
each part, so a reader notices parts of another write.
"""

import base64
import json
import math
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from ringfence_client.handlers.retries import Failures
from ringfence_kafka.protocol import offset_ranges
from ringfence_kafka.protocol.offset_ranges import Run

WHOLE_MAX: Final = 1_000
"""Limit of entries of a record without parts. An entry is a range of finished offsets, or a message that the record names."""
PART_MAX: Final = 512
"""Limit of entries of a part. A full part takes less than 50 kB."""
SPARSE: Final = 4
"""Parts are laid out again when they contain on average less than 1/``SPARSE`` of their limit."""
PARTS_MIN: Final = 4
"""A layout of at most this number of parts stays, because it costs little."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ByOffset:
    """Facts by offset of a :class:`ringfence_client.progress.progress_record.Progress`. Only these grow.

    Attributes:
        finished: Finished offsets above the floor: half-open ranges in ascending order.
        attempts: Number of attempts at each started, unfinished message, by offset.
        failures: Failed attempts and the time of the first one, by offset. An attempt without a recorded failure ended with its process.
        again: Finished offsets to process again, because their dead letters were redriven.
        blocked: Unfinished offsets whose dead letters are written. Their groups wait until they are redriven.
        redriven: Number of redrives by offset, for the last redriven offsets.
    """

    finished: Sequence[Run] = ()
    attempts: Mapping[int, int] = field(default_factory=dict)
    failures: Mapping[int, Failures] = field(default_factory=dict)
    again: Sequence[int] = ()
    blocked: Sequence[int] = ()
    redriven: Mapping[int, int] = field(default_factory=dict)

    def entries(self) -> int:
        """Return the number of entries. A message in several of the maps may count twice."""
        named = max(len(self.attempts), len(self.failures))
        return len(self.finished) + named + len(self.again) + len(self.blocked) + len(self.redriven)


class Change(NamedTuple):
    """Records to write, in order. A value of None deletes a part."""

    head: dict[str, int] | None
    """Checksums by part number, for the head; None = the record has no parts."""
    parts: list[tuple[int, bytes | None]]


@dataclass(eq=False, slots=True)
class _Part:
    """A part as it was encoded last. It ends where the next one begins."""

    number: int
    begin: int
    noted: set[int]
    finished: Sequence[Run] = ()
    checksum: int | None = None
    """None = the part must be written."""
    entries: int = 0


class PartLayout:
    """The parts of one progress record, as its writer keeps them.

    :meth:`change` compares with the last write. The caller reports the outcome: :meth:`written` after a commit, or :meth:`forget` if the
    outcome is unknown or the topic is empty.
    """

    def __init__(self, numbers: Iterable[int] = ()) -> None:
        """``numbers``: parts that the predecessor left in the topic."""
        self._there = set(numbers)
        """Numbers of parts that may be in the topic."""
        self._parts: list[_Part] = []
        self._known = ByOffset()

    def change(self, now: ByOffset) -> Change:
        """Return the records to write so that the topic contains ``now``."""
        limit = WHOLE_MAX // 2 if self._parts else WHOLE_MAX  # does not switch to and fro
        if now.entries() <= limit:
            self._parts, self._known = [], ByOffset()
            return Change(None, [(number, None) for number in sorted(self._there)])
        self._note(now)
        self._divide(now)
        entries = sum(part.entries for part in self._parts)
        if len(self._parts) > PARTS_MIN and SPARSE * entries < PART_MAX * len(self._parts):
            self._parts = []
            self._note(now)
            self._divide(now)
        self._known = now
        again, blocked = frozenset(now.again), frozenset(now.blocked)
        changed: list[tuple[int, bytes | None]] = []
        for part, end in zip(self._parts, self._ends(), strict=True):
            if part.checksum is None:
                value = _encode(part, end, now, again, blocked)
                part.checksum = zlib.crc32(value)
                changed.append((part.number, value))
        numbers = {part.number for part in self._parts}
        changed += [(number, None) for number in sorted(self._there - numbers)]
        self._there |= numbers
        return Change({str(part.number): part.checksum or 0 for part in self._parts}, changed)

    def written(self) -> None:
        """Record that the result of the last :meth:`change` is committed."""
        self._there = {part.number for part in self._parts}

    def forget(self) -> None:
        """Mark every part for writing, because the topic's content is unknown."""
        for part in self._parts:
            part.checksum = None

    def _note(self, now: ByOffset) -> None:
        """Apply the changes. Parts with changes lose their checksums."""
        if self._parts:
            changed = _changed(self._known, now)
        else:
            changed = _named(now)
            self._parts = [_Part(0, 0, set())]
        begins = [part.begin for part in self._parts]
        named = now.attempts, now.failures, now.redriven, frozenset(now.blocked), frozenset(now.again)
        for offset in changed:
            part = self._parts[bisect_right(begins, offset) - 1]
            part.checksum = None
            if any(offset in offsets for offsets in named):
                part.noted.add(offset)
            else:
                part.noted.discard(offset)

    def _divide(self, now: ByOffset) -> None:
        """Assign the finished ranges to the parts, and divide parts that are too large."""
        divided: list[_Part] = []
        taken = {part.number for part in self._parts}
        for part, end in zip(self._parts, self._ends(), strict=True):
            finished = _within(now.finished, part.begin, end)
            if finished != part.finished:
                part.finished, part.checksum = finished, None
            part.entries = len(finished) + len(part.noted)
            if part.entries <= PART_MAX:
                divided.append(part)
                continue
            noted = sorted(part.noted)
            places = sorted([*noted, *(start for start, _ in finished)])
            begins = sorted({part.begin, *places[PART_MAX // 2 :: PART_MAX // 2]})
            for begin, stop in zip(begins, [*begins[1:], end], strict=True):
                number = part.number if begin == part.begin else _free(taken)
                piece = _Part(number, begin, set(noted[bisect_left(noted, begin) : bisect_left(noted, stop)]))
                piece.finished = _within(finished, begin, stop)
                piece.entries = len(piece.finished) + len(piece.noted)
                divided.append(piece)
        self._parts = divided

    def _ends(self) -> list[float]:
        return [*(part.begin for part in self._parts[1:]), math.inf]


def key_of(head_key: bytes, number: int) -> bytes:
    """Return the key of a part: the head's key with the part's number at the end."""
    return head_key[:-1] + b",%d]" % number


def is_key(key: bytes) -> bool:
    """Return whether a key belongs to a part, and not to a head."""
    try:
        group, topic, partition, number = json.loads(key)
    except (ValueError, TypeError):
        return False
    return isinstance(group, str) and isinstance(topic, str) and {type(partition), type(number)} == {int}


def join(
    floor: int, checksums: Mapping[str, int], find: Callable[[int], bytes | None]
) -> tuple[ByOffset, list[int]]:
    """Return the facts by offset, and the numbers of missing or foreign parts, whose facts are left out. ``find`` returns a part's last value.

    Every offset below ``floor`` is finished. A damaged part raises ValueError, KeyError or TypeError.
    """
    wrong: list[int] = []
    documents: list[dict[str, Any]] = []
    for number, checksum in ((int(name), checksum) for name, checksum in checksums.items()):
        value = find(number)
        if value is None or zlib.crc32(value) != checksum:
            wrong.append(number)
        else:
            documents.append(json.loads(value))
    finished: list[Run] = []
    attempts: dict[int, int] = {}
    failures: dict[int, Failures] = {}
    again: list[int] = []
    blocked: list[int] = []
    redriven: dict[int, int] = {}
    for item in sorted(documents, key=lambda document: int(document["begin"])):
        begin, since = int(item["begin"]), int(item["since"])
        for start, stop in offset_ranges.decode(begin, base64.b64decode(item["finished"], validate=True)):
            if finished and finished[-1][1] >= start:
                finished[-1] = finished[-1][0], stop
            elif stop > floor:
                finished.append((max(floor, start), stop))
        for apart, begun, failed, after in item["messages"]:
            if begun:
                attempts[begin + apart] = int(begun)
            if failed:
                failures[begin + apart] = Failures(int(failed), since + after)
        again += [begin + int(apart) for apart in item["again"]]
        blocked += [begin + int(apart) for apart in item["blocked"]]
        redriven.update((begin + int(apart), int(count)) for apart, count in item["redriven"])
    return (
        ByOffset(
            finished=finished,
            attempts=attempts,
            failures=failures,
            again=tuple(again),
            blocked=tuple(blocked),
            redriven=redriven,
        ),
        wrong,
    )


def _encode(
    part: _Part, end: float, now: ByOffset, again: Collection[int], blocked: Collection[int]
) -> bytes:
    begin, offsets = part.begin, sorted(part.noted)
    failed = [now.failures[offset] for offset in offsets if offset in now.failures]
    since = min((item.since_ms for item in failed), default=0)
    messages = []
    for offset in offsets:
        known = now.failures.get(offset)
        if known is not None or offset in now.attempts:
            row = (0, 0) if known is None else (known.attempts, known.since_ms - since)
            messages.append([offset - begin, now.attempts.get(offset, 0), *row])
    document = {
        "begin": begin,
        "end": None if end == math.inf else end,
        "finished": base64.b64encode(offset_ranges.encode(begin, part.finished)).decode(),
        "since": since,
        "messages": messages,
        "again": [offset - begin for offset in offsets if offset in again],
        "blocked": [offset - begin for offset in offsets if offset in blocked],
        "redriven": [[offset - begin, now.redriven[offset]] for offset in offsets if offset in now.redriven],
    }
    return json.dumps(document, separators=(",", ":")).encode()


def _within(finished: Sequence[Run], begin: int, end: float) -> list[Run]:
    """Return the finished ranges between two offsets, cut off at both."""
    first = bisect_right(finished, begin, key=lambda run: run[1])
    last = bisect_left(finished, end, lo=first, key=lambda run: run[0])
    found = list(finished[first:last])
    if found and found[0][0] < begin:
        found[0] = begin, found[0][1]
    if found and found[-1][1] > end:
        found[-1] = found[-1][0], int(end)
    return found


def _changed(before: ByOffset, now: ByOffset) -> set[int]:
    """Return the offsets of messages whose facts changed, apart from finished ranges."""
    found = (set(before.again) ^ set(now.again)) | (set(before.blocked) ^ set(now.blocked))
    maps: Iterable[tuple[Mapping[int, Any], Mapping[int, Any]]] = (
        (before.attempts, now.attempts),
        (before.failures, now.failures),
        (before.redriven, now.redriven),
    )
    for then, there in maps:
        found |= then.keys() - there.keys()
        # The symmetric difference of items would hash each of them.
        found.update(offset for offset, known in there.items() if then.get(offset) != known)
    return found


def _named(now: ByOffset) -> set[int]:
    return {*now.attempts, *now.failures, *now.again, *now.blocked, *now.redriven}


def _free(taken: set[int]) -> int:
    number = next(index for index in range(len(taken) + 1) if index not in taken)
    taken.add(number)
    return number
