"""A large progress record has parts: what is written is read, and only what changed is written."""

import dataclasses
import itertools
import json
import random

import pytest

from ringfence_client.handlers.retries import Failures
from ringfence_client.progress import progress_record, record_parts
from ringfence_client.progress.progress_record import MissingPartsError, Progress
from ringfence_client.progress.record_parts import PART_MAX, WHOLE_MAX, PartLayout

KEY = progress_record.encode_key("group", "orders.accepted", 3)
SINCE_MS = 1_764_200_000_000
WINDOW = 100_000
"""Messages that may wait in a partition."""
RECORD_BYTES_MAX = 1_000_000
"""Kafka's default of ``max.message.bytes`` is a little more."""


class _Topic:
    """The content of a compacted topic, and a writer of one record there."""

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}
        self.layout = PartLayout()
        self.written = 0
        """Bytes of the last write."""
        self.largest = 0
        """Bytes of its largest record."""

    def write(self, progress: Progress, *, committed: bool = True) -> None:
        """Write a record; ``committed`` = the transaction is, and its writer knows."""
        records = progress_record.records(KEY, progress, self.layout.change(progress))
        sizes = [len(value or b"") for _, value in records]
        self.written, self.largest = sum(sizes), max(sizes)
        if not committed:
            self.layout.forget()
            return
        self.layout.written()
        for key, value in records:
            if value is None:
                self.values.pop(key, None)
            else:
                self.values[key] = value

    def read(self, *, partial: bool = False) -> Progress:
        def part(number: int) -> bytes | None:
            return self.values.get(record_parts.key_of(KEY, number))

        return progress_record.decode(self.values[KEY], part, partial=partial)


def _between(offsets: list[int]) -> list[tuple[int, int]]:
    return [(one + 1, other) for one, other in itertools.pairwise(offsets) if one + 1 < other]


def _failing(offsets: list[int], **others: object) -> Progress:
    """Return progress in which these messages failed, and all others up to the last one are finished."""
    progress = Progress(
        offsets[0],
        finished=_between(offsets),
        attempts={offset: 1 + offset % 7 for offset in offsets},
        reserved=offsets[-1] + 20_000,
        state="held",
        token=3,
        beat=7,
        failures={offset: Failures(1 + offset % 5, SINCE_MS + offset) for offset in offsets},
        topic_id="A",
    )
    return dataclasses.replace(progress, **others)  # type: ignore[arg-type]


def _scattered(count: int, seed: int = 1) -> list[int]:
    return sorted(random.Random(seed).sample(range(20 * count), count))


def test_small_record_is_whole() -> None:
    """Versions that know no parts read a record of up to a thousand entries."""
    topic, progress = _Topic(), _failing(list(range(WHOLE_MAX)))
    topic.write(progress)

    assert topic.values == {KEY: progress_record.encode(progress)}
    assert json.loads(topic.values[KEY])["format"] == 2
    assert topic.read() == progress


def test_worst_entries_fit_a_part() -> None:
    """A part of messages that all of its maps name, with the longest numbers, is small."""
    base = 2**62
    offsets = [base + 997 * index for index in range(2_000)]
    progress = _failing(
        offsets,
        attempts=dict.fromkeys(offsets, 10**9),
        failures={offset: Failures(10**9, SINCE_MS * (offset % 2)) for offset in offsets},
        again=tuple(offsets),
        blocked=tuple(offsets),
        redriven=dict.fromkeys(offsets, 10**9),
    )
    topic = _Topic()
    topic.write(progress)

    assert topic.read() == progress
    assert topic.largest < RECORD_BYTES_MAX / 10


def test_changes_alone_are_written() -> None:
    """An acknowledgement beside a hundred thousand failing messages writes the head and the part that it is in."""
    offsets = _scattered(WINDOW)
    topic, progress = _Topic(), _failing(offsets)
    topic.write(progress)
    assert topic.largest < RECORD_BYTES_MAX / 20 < len(progress_record.encode(progress))
    full = topic.written
    middle = offsets[WINDOW // 2]
    changed = _failing([offset for offset in offsets if offset != middle], beat=8)
    topic.write(changed)

    assert topic.read() == changed
    assert topic.written < 30_000 < full / 50


@pytest.mark.parametrize("seed", range(12))
def test_any_history(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader finds the last committed progress, whatever fails, waits, finishes or is redriven, and whichever writes fail."""
    monkeypatch.setattr(record_parts, "WHOLE_MAX", 12)
    monkeypatch.setattr(record_parts, "PART_MAX", 8)
    chance, topic = random.Random(seed), _Topic()
    unfinished: dict[int, None] = {}
    names = "attempts", "failures", "again", "blocked", "redriven"
    maps: dict[str, dict[int, object]] = {name: {} for name in names}
    end, committed = 100, Progress(100, finished=[])
    topic.write(committed)
    for step in range(150):
        grow = chance.random() < (0.7 if step < 80 else 0.3)
        if grow:
            for _ in range(chance.randrange(30)):
                unfinished[end] = None
                end += 1 + chance.choice([0, 0, 0, 50])
        for number in chance.sample(list(unfinished), len(unfinished) // (6 if grow else 2)):
            del unfinished[number]
            for known in maps.values():
                known.pop(number, None)
        for number in chance.sample(list(unfinished), len(unfinished) // 4):
            name = chance.choice(list(maps))
            failed = Failures(chance.randrange(1, 5), SINCE_MS + step)
            maps[name][number] = failed if name == "failures" else 1 + step
        if chance.random() < 0.1:
            maps["again"][chance.randrange(100)] = 0  # a finished message, below all others
            maps["redriven"][chance.randrange(100)] = step + 1
        offsets = [*unfinished, end]
        progress = Progress(
            offsets[0],
            finished=_between(offsets),
            attempts=dict(maps["attempts"]),  # type: ignore[arg-type]
            beat=step,
            failures=dict(maps["failures"]),  # type: ignore[arg-type]
            again=tuple(sorted(maps["again"])),
            blocked=tuple(sorted(maps["blocked"])),
            redriven=dict(sorted(maps["redriven"].items())),  # type: ignore[arg-type]
        )
        done = chance.random() < 0.8
        topic.write(progress, committed=done)
        committed = progress if done else committed
        if chance.random() < 0.1:  # another holder takes over
            topic.layout = PartLayout(topic.read().parts)

        assert topic.read() == committed
    topic.layout = PartLayout(topic.read().parts)
    topic.write(Progress(end))
    topic.write(Progress(end))

    assert set(topic.values) == {KEY}, "parts that nobody needs are deleted"


def test_missing_part_is_noticed() -> None:
    """A part that is missing, or another write's, is an error. Without it, its messages count as unfinished."""
    topic, progress = _Topic(), _failing(list(range(0, 10_000, 2)))
    topic.write(progress)
    number = 3
    key = record_parts.key_of(KEY, number)
    older = topic.values[key]
    attempts = {number: count + 1 for number, count in progress.attempts.items()}
    topic.write(dataclasses.replace(progress, attempts=attempts))

    for there in (True, False):
        topic.values.pop(key)
        topic.values |= {key: older} if there else {}
        with pytest.raises(MissingPartsError, match="not there as it names them: 3"):
            topic.read()
        found = topic.read(partial=True)
        assert 0 < len(progress.attempts) - len(found.attempts) <= PART_MAX
        assert set(found.attempts.items()) <= set(attempts.items())
        assert set(found.finished) < set(progress.finished)
        topic.values[key] = b""


def test_keys() -> None:
    """A part has the key of its record and a number; neither is taken for the other."""
    key = record_parts.key_of(KEY, 12)

    assert key == b'["group","orders.accepted",3,12]'
    assert record_parts.is_key(key)
    for other in (KEY, b"", b"7", b'["a","b","c",1]', b'["a","b",1,true]', b"{"):
        assert not record_parts.is_key(other)
    with pytest.raises(progress_record.ProgressFormatError):
        progress_record.decode_key(key)
