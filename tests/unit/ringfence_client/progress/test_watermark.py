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


def test_out_of_order() -> None:
    """Offsets finished above the floor form runs, and join it once all offsets between are finished."""
    watermark = _read(0, 1, 2, 3, 4)

    assert _finish(watermark, 1) == (0, [(1, 2)])
    assert _finish(watermark, 3) == (0, [(1, 2), (3, 4)])
    assert _finish(watermark, 2) == (0, [(1, 4)])
    assert _finish(watermark, 0) == (4, [])


def test_gaps() -> None:
    """An offset that was not delivered between two others does not exist, and is finished with its neighbours."""
    watermark = _read(5, 9, 20, 21)

    assert watermark.next == 5
    assert watermark.runs() == [(6, 9), (10, 20)]
    assert _finish(watermark, 9) == (5, [(6, 20)])
    assert _finish(watermark, 5) == (20, [])


def test_nothing_delivered_up_to_the_end() -> None:
    """Control records at the end of the log are not delivered; the floor passes them once the reader says so."""
    watermark = _read(0, 1)
    watermark.reached(4)

    assert _finish(watermark, 1) == (0, [(1, 4)])
    assert _finish(watermark, 0) == (4, [])
    watermark.reached(6)
    assert watermark.next == 6
    watermark.reached(3)
    assert watermark.next == 6


def test_start_beyond_the_floor() -> None:
    """The floor is the first delivered offset if retention deleted the first records."""
    assert _read(100, start=5).next == 100


def test_nothing_yet() -> None:
    """A new watermark reports the offset that was recorded."""
    watermark = Watermark(7)

    assert (watermark.next, watermark.runs(), watermark.unfinished) == (7, [], 0)


@pytest.mark.parametrize(
    ("offset", "finished"),
    [(3, True), (4, False), (5, True), (6, False), (7, True), (8, False), (9, True), (10, True), (11, False)],
)
def test_is_finished(offset: int, finished: bool) -> None:
    """Finished is what lies below the floor, was finished, does not exist or was finished before the restart."""
    watermark = Watermark(4, [(9, 11)])
    for number in (4, 5, 6):
        watermark.delivered(number)
    watermark.reached(8)
    watermark.finish(5)

    assert watermark.is_finished(offset) is finished


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


def test_written_down_before_all_is_read_again() -> None:
    """Progress written early after a restart keeps the runs that lie further than anything was read."""
    watermark = Watermark(2, [(3, 5), (8, 9)])
    assert (watermark.next, watermark.runs()) == (2, [(3, 5), (8, 9)])

    watermark.delivered(2)
    assert (watermark.next, watermark.runs()) == (2, [(3, 5), (8, 9)])
    assert _finish(watermark, 2) == (5, [(8, 9)])
    watermark.delivered(3)
    watermark.delivered(6)
    assert (watermark.next, watermark.runs()) == (6, [(8, 9)])
    assert _finish(watermark, 6) == (7, [(8, 9)])


def test_unfinished_that_is_gone() -> None:
    """An unfinished offset that was deleted from the log before the restart is not waited for."""
    watermark = Watermark(2, [(3, 5), (6, 9)])
    watermark.delivered(4)

    assert (watermark.next, watermark.runs()) == (5, [(6, 9)])
    watermark.delivered(7)
    assert (watermark.next, watermark.runs()) == (9, [])


def test_run_at_the_floor() -> None:
    """A run that begins at the stored floor moves it."""
    assert Watermark(2, [(2, 5), (7, 8)]).next == 5
    assert Watermark(2, [(2, 5), (7, 8)]).runs() == [(7, 8)]


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


def test_size_of_alternating_runs() -> None:
    """Ten thousand offsets of which each second is finished take a bit each."""
    runs = [(offset, offset + 1) for offset in range(1, 10_000, 2)]

    assert len(encode(0, runs)) == 1 + 1_250


def test_size_of_long_runs() -> None:
    """A few long runs take a few bytes each, however far apart they lie."""
    runs = [(number * 10**9, number * 10**9 + 10**6) for number in range(1, 101)]

    assert len(encode(0, runs)) < 100 * (5 + 3) + 2


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
        min(_cpu_s(100_000) for _ in range(3)) / 100_000 < 10 * min(_cpu_s(1_000) for _ in range(5)) / 1_000
    )


def test_many_stored_runs() -> None:
    """Reading along 100,000 stored runs costs no more for each offset than along 1,000."""

    def cpu_s(count: int) -> float:
        watermark = Watermark(0, [(offset, offset + 1) for offset in range(1, 2 * count, 2)])
        began = time.process_time()
        due = sum(watermark.delivered(offset) for offset in range(2 * count))
        assert due == count
        return time.process_time() - began

    assert min(cpu_s(100_000) for _ in range(3)) / 100_000 < 10 * min(cpu_s(1_000) for _ in range(5)) / 1_000
