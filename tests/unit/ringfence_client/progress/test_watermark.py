import random
import time
from collections.abc import Callable

import pytest

from ringfence_client.progress.watermark import Watermark
from ringfence_kafka.protocol.offset_ranges import OFFSET_MAX, Run, decode, encode, of_offsets


def _read(*offsets: int, start: int = 0) -> Watermark:
    """Return a watermark to which these offsets were delivered."""
    watermark = Watermark(start)
    for offset in offsets:
        assert watermark.delivered(offset)
    return watermark


def _finish(watermark: Watermark, *offsets: int) -> tuple[int, list[Run]]:
    """Finish these; what would be written down then."""
    for offset in offsets:
        watermark.finish(offset)
    return watermark.next, watermark.runs()


# -- what is finished -------------------------------------------------------------------------------------------


def test_in_order() -> None:
    """The floor is the lowest offset that is not finished."""
    watermark = _read(0, 1, 2)

    assert (watermark.next, watermark.runs(), watermark.unfinished) == (0, [], 3)
    assert _finish(watermark, 0) == (1, [])
    assert _finish(watermark, 1, 2) == (3, [])
    assert watermark.unfinished == 0


# -- what is refused --------------------------------------------------------------------------------------------


def test_finished_twice() -> None:
    """An offset is finished once; the error distinguishes a finished offset from one never delivered."""
    watermark = _read(0, 1)
    watermark.finish(1)

    with pytest.raises(KeyError, match="offset 1 cannot be finished: it is finished"):
        watermark.finish(1)
    with pytest.raises(KeyError, match="offset 2 cannot be finished: it was never delivered"):
        watermark.finish(2)
    assert (watermark.next, watermark.runs()) == (0, [(1, 2)])


@pytest.mark.parametrize("offset", [3, 6, 7])
def test_delivered_again(offset: int) -> None:
    """An offset below what was read cannot be new: it was delivered, or did not exist."""
    watermark = _read(5, 7)

    with pytest.raises(ValueError, match=f"offset {offset} was delivered, but the log was read up to 8"):
        watermark.delivered(offset)


# -- restarts -----------------------------------------------------------------------------------------------------


def test_restart() -> None:
    """Offsets finished before a restart are distinguished from unfinished ones when they are read again."""
    before = _read(0, 1, 2, 3, 4)
    stored = _finish(before, 1, 3)
    after = Watermark(*stored)

    assert [after.delivered(index) for index in range(6)] == [True, False, True, False, True, True]
    assert _finish(after, 0) == (2, [(3, 4)])


def test_finished_before_it_is_read() -> None:
    """An offset finished ahead joins the runs beside it, moves the floor if it is next, and is never delivered."""
    watermark = Watermark(2, [(5, 7), (9, 10)])
    for offset in (12, 8, 7, 4, 9):
        watermark.finish_unread(offset)

    assert (watermark.next, watermark.runs()) == (2, [(4, 10), (12, 13)])

    watermark.finish_unread(2)

    assert (watermark.next, watermark.runs()) == (3, [(4, 10), (12, 13)])
    assert [watermark.delivered(index) for index in range(2, 14)] == [
        index in {3, 10, 11, 13} for index in range(2, 14)
    ]
    with pytest.raises(ValueError, match="offset 3 was delivered"):
        watermark.finish_unread(3)


def test_anything_finished_before_it_is_read() -> None:
    """Random offsets ahead of any floor and runs: these are finished then, and no others."""
    for seed in range(300):
        chance = random.Random(seed)
        start = chance.randrange(5)
        known = {index for index in range(start, 30) if chance.random() < chance.choice((0.2, 0.8))}
        watermark = Watermark(start, of_offsets(sorted(known)))
        read = chance.randrange(start, 15)
        unfinished = {index for index in range(start, read) if watermark.delivered(index)}
        for number in chance.sample(range(read, 30), 8):
            watermark.finish_unread(number)
            known.add(number)
        after = Watermark(watermark.next, watermark.runs())
        due = unfinished | (set(range(read, 40)) - known)

        assert (seed, {index for index in range(40) if not after.is_finished(index)}) == (seed, due)


# -- bytes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("runs", "data"),
    [
        ([], "01"),
        ([(1000, 1001)], "02 01"),
        ([(1000, 1020)], "01 00 14"),
        ([(1010, 1013), (1020, 1024)], "02 00 1c f0"),
        ([(1010, 1016)], "01 0a 06"),
        ([(1001, 1002), (1003, 1004), (1005, 1006)], "02 2a"),
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
        ("00", "kind 00"),
        ("03 01", "kind 03"),
        ("01 01", "end with how many are not finished"),
        ("01 01 02 03", "end with how many are not finished"),
        ("01 01 82", "end within a varint"),
        ("01 01 8000", "byte 2 of the runs is longer than needed"),
        ("01 01 ffffffffffffffffff01", "byte 10 of the runs has more than 63 bits"),
        ("01 01 ffffffffffffffffffff", "byte 10 of the runs has more than 63 bits"),
        ("01 01 ffffffffffffffff7f", "ends where there are no offsets"),
        ("01 01 00", "from 1001 to 1001 is empty"),
        ("01 01 01 00 01", "does not lie apart"),
        ("02", "ends with nothing finished"),
        ("02 01 00", "ends with nothing finished"),
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
        (5, [(4, 7)], "begins below the next offset, 5"),
        (5, [(7, 7)], "is empty"),
        (5, [(8, 7)], "is empty"),
        (5, [(6, 8), (8, 9)], "from 8 to 9 does not lie apart from the one that ends at 8"),
        (5, [(6, 8), (7, 9)], "does not lie apart"),
        (5, [(9, 10), (6, 7)], "does not lie apart"),
        (5, [(6, OFFSET_MAX + 1)], "ends where there are no offsets"),
        (-1, [], "-1 is no offset"),
    ],
)
def test_runs_that_are_none(
    use: Callable[[int, list[Run]], object], next_offset: int, runs: list[Run], fault: str
) -> None:
    """Runs are in order, apart, not empty, and not below the floor: others are refused before they are written."""
    with pytest.raises(ValueError, match=fault):
        use(next_offset, runs)


# -- what it costs ------------------------------------------------------------------------------------------------


def _cpu_s(count: int) -> float:
    """All of the life of so many offsets that are unfinished at the same time, asked for the floor each time."""
    watermark, offsets = Watermark(), list(range(count))
    random.Random(count).shuffle(offsets)
    began = time.process_time()
    for offset in range(count):
        watermark.delivered(offset)
    for offset in offsets:
        watermark.finish(offset)
        watermark.is_finished(offset)
        assert watermark.next <= count
    return time.process_time() - began


def test_many_unfinished() -> None:
    """A call costs about the same with 100,000 unfinished messages as with 1,000; a scan would cost a hundred times more."""
    assert (
        min(_cpu_s(100_000) for _ in range(3)) / 100_000 < 30 * min(_cpu_s(1_000) for _ in range(5)) / 1_000
    )


def test_many_stored_runs() -> None:
    """Reading along 100,000 stored runs costs no more for each offset than along 1,000."""

    def cpu_s(count: int) -> float:
        watermark = Watermark(0, [(offset, offset + 1) for offset in range(1, 2 * count, 2)])
        began = time.process_time()
        due = sum(watermark.delivered(offset) for offset in range(2 * count))
        assert due == count
        return time.process_time() - began

    assert min(cpu_s(100_000) for _ in range(3)) / 100_000 < 30 * min(cpu_s(1_000) for _ in range(5)) / 1_000
