"""Finished offsets as bytes, and what they cost. ``tests/property/test_watermark_model.py`` compares a watermark with sets."""

import random
import time
from collections.abc import Callable

import pytest

from ringfence_client.progress.watermark import Watermark
from ringfence_kafka.protocol.offset_ranges import OFFSET_MAX, Run, decode, encode


@pytest.mark.parametrize(
    ("runs", "data"),
    [
        ([], "01"),
        ([(1000, 1001)], "02 01"),
        ([(1000, 1020)], "01 00 14"),
        ([(1010, 1013), (1020, 1024)], "02 00 1c f0"),
        ([(1000, 1001), (1002, 1009)], "02 fd 01"),
        ([(1300, 1600)], "01 ac02 ac02"),
        ([(OFFSET_MAX - 1, OFFSET_MAX)], "01 96f8ffffffffffff7f 01"),
    ],
)
def test_bytes(runs: list[Run], data: str) -> None:
    """The byte layout follows the module's text, so later readers find the same runs."""
    assert encode(1000, runs).hex() == bytes.fromhex(data).hex()
    assert decode(1000, bytes.fromhex(data)) == runs


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        ("", "kind nothing"),
        ("03 01", "kind 03"),
        ("01 01 02 03", "end with how many are not finished"),
        ("01 01 82", "end within a varint"),
        ("01 01 8000", "byte 2 of the runs is longer than needed"),
        ("01 01 ffffffffffffffffffff", "byte 10 of the runs has more than 63 bits"),
        ("01 01 ffffffffffffffff7f", "exceeds"),
        ("01 01 00", "from 1001 to 1001 is empty"),
        ("01 01 01 00 01", "begins at or below"),
        ("02", "ends with nothing finished"),
    ],
)
def test_malformed(data: str, fault: str) -> None:
    """Bytes that nobody can have written are refused, with the fault's name."""
    with pytest.raises(ValueError, match=fault):
        decode(1000, bytes.fromhex(data))


@pytest.mark.parametrize("use", [encode, Watermark])
@pytest.mark.parametrize(
    ("next_offset", "runs", "fault"),
    [
        (5, [(4, 7)], "from 4 to 7 .* begins at or below 4"),
        (5, [(7, 7)], "is empty"),
        (5, [(6, 8), (8, 9)], "from 8 to 9 .* begins at or below 8"),
        (5, [(6, OFFSET_MAX + 1)], "exceeds"),
        (-1, [], "-1 is no offset"),
    ],
)
def test_wrong_runs(use: Callable[..., object], next_offset: int, runs: list[Run], fault: str) -> None:
    """Runs are in order, apart, not empty, and not below the floor: others are refused before they are written."""
    with pytest.raises(ValueError, match=fault):
        use(next_offset, runs)


def _cpu_s(count: int) -> float:
    """Return CPU seconds of so many offsets that are unfinished at the same time, asked for the floor each time, and of so many stored runs."""
    offsets = list(range(count))
    random.Random(count).shuffle(offsets)
    watermark, stored = Watermark(), Watermark(0, [(offset, offset + 1) for offset in range(1, 2 * count, 2)])
    began = time.process_time()
    for offset in range(count):
        watermark.delivered(offset)
    for offset in offsets:
        watermark.finish(offset)
        watermark.is_finished(offset)
        assert watermark.next <= count
    assert sum(stored.delivered(offset) for offset in range(2 * count)) == count
    return time.process_time() - began


def test_many() -> None:
    """A call costs about the same beside 100,000 offsets or runs as beside 1,000; a scan would cost a hundred times more."""
    assert (
        min(_cpu_s(100_000) for _ in range(3)) / 100_000 < 30 * min(_cpu_s(1_000) for _ in range(5)) / 1_000
    )
