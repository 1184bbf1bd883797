"""The watermark against plain sets of offsets, and its bytes there and back."""

from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from ringfence_client.progress.watermark import Watermark
from ringfence_kafka.protocol.offset_ranges import OFFSET_MAX, Run, decode, encode, encode_offsets
from tests.property import examples

HORIZON = 120
"""Model and watermark are compared on the offsets below."""

fixed = settings(max_examples=examples(500))


def _runs(finished: set[int]) -> list[Run]:
    starts = sorted(number for number in finished if number - 1 not in finished)
    stops = sorted(number + 1 for number in finished if number + 1 not in finished)
    return list(zip(starts, stops, strict=True))


@st.composite
def stored(draw: st.DrawFn, largest: int = 40) -> tuple[int, list[Run]]:
    next_offset = draw(st.one_of(st.integers(0, 20), st.integers(0, OFFSET_MAX // 2)))
    lengths = st.one_of(st.integers(1, 3), st.integers(1, largest))
    runs: list[Run] = []
    stop = next_offset + draw(st.integers(0, 1)) - 1
    for gap, length in draw(st.lists(st.tuples(lengths, lengths), max_size=60)):
        runs.append((stop + gap, stop + gap + length))
        stop += gap + length
    return next_offset, runs


class Partition(RuleBasedStateMachine):
    """A watermark, and the sets it stands for."""

    @initialize()
    def begin(self) -> None:
        self.watermark = Watermark()
        self.finished: set[int] = set()
        """Offsets below the end, existing or not."""
        self.end = 0
        """The log was read up to here."""
        self.due: set[int] = set()

    def floor(self) -> int:
        return next(index for index in range(HORIZON + 1) if index not in self.finished)

    # -- what happens ------------------------------------------------------------------------------------------

    @rule(gaps=st.lists(st.sampled_from([0, 0, 0, 1, 2, 5]), max_size=10))
    def deliver(self, gaps: list[int]) -> None:
        for gap in gaps:
            offset = self.end + gap
            if offset >= HORIZON:
                return
            due = offset not in self.finished

            assert self.watermark.delivered(offset) is due
            self.finished |= set(range(self.end, offset))
            self.end = offset + 1
            if due:
                self.due.add(offset)

    @rule(behind=st.integers(1, 10))
    def deliver_again(self, behind: int) -> None:
        with pytest.raises(ValueError, match="offsets rise"):
            self.watermark.delivered(self.end - behind)

    @rule(ahead=st.integers(-3, 3))
    def reach(self, ahead: int) -> None:
        offset = min(self.end + ahead, HORIZON)
        self.watermark.reached(offset)
        self.finished |= set(range(self.end, offset))
        self.end = max(self.end, offset)

    @rule(data=st.data(), count=st.integers(1, 8))
    def finish(self, data: st.DataObject, count: int) -> None:
        for _ in range(min(count, len(self.due))):
            offset = data.draw(st.sampled_from(sorted(self.due)))
            self.watermark.finish(offset)
            self.due.remove(offset)
            self.finished.add(offset)

    @rule(offset=st.integers(0, HORIZON))
    def finish_what_is_not_due(self, offset: int) -> None:
        if offset not in self.due:
            why = "it is finished" if offset in self.finished else "it was never delivered"
            with pytest.raises(KeyError, match=why):
                self.watermark.finish(offset)

    @rule(offset=st.integers(0, HORIZON - 1))
    def finish_unread(self, offset: int) -> None:
        if offset in self.due:
            with pytest.raises(ValueError, match=f"offset {offset} was delivered"):
                self.watermark.finish_unread(offset)
            return
        self.watermark.finish_unread(offset)
        self.finished.add(offset)

    @rule()
    def restart(self) -> None:
        """Restart from the bytes: only what was written down is known then."""
        next_offset, runs = self.watermark.next, self.watermark.runs()
        self.watermark = Watermark(next_offset, decode(next_offset, encode(next_offset, runs)))
        self.end = next_offset
        self.due = set()

    # -- what holds at any time --------------------------------------------------------------------------------

    @invariant()
    def says_what_the_sets_say(self) -> None:
        floor = self.floor()
        above = {number for number in self.finished if number > floor}

        assert (self.watermark.next, self.watermark.runs()) == (floor, _runs(above))
        assert len(self.watermark._unfinished) == len(self.due)
        assert [self.watermark.is_finished(index) for index in range(HORIZON)] == [
            index in self.finished for index in range(HORIZON)
        ]


def test_watermark_is_the_sets() -> None:
    """The watermark knows exactly the finished offsets, whatever is delivered, finished and written down."""
    run_state_machine_as_test(
        Partition,
        settings=settings(max_examples=examples(200), stateful_step_count=50, report_multiple_bugs=False),
    )


@fixed
@given(progress=st.one_of(stored(), stored(largest=2), stored(largest=2**40)))
def test_round_trip(progress: tuple[int, list[Run]]) -> None:
    """Runs are read as they were written; the bytes are never longer than a bit an offset, nor than varints."""
    next_offset, runs = progress
    data = encode(next_offset, runs)
    varints = sum(
        (number.bit_length() + 6) // 7 or 1
        for before, run in zip([(0, next_offset), *runs], runs, strict=False)
        for number in (run[0] - before[1], run[1] - run[0])
    )
    bits = (runs[-1][1] - next_offset) if runs else 0

    assert decode(next_offset, data) == runs
    assert len(data) == 1 + min(varints, (bits + 7) // 8)
    assert data[0] == (1 if varints <= (bits + 7) // 8 else 2)


@fixed
@given(
    next_offset=st.integers(0, 2**40),
    data=st.one_of(
        st.binary(max_size=30),
        st.binary(max_size=30).map(lambda item: b"\x01" + item),
        st.lists(st.integers(0, 3), max_size=20).map(lambda item: b"\x01" + bytes(item)),
        st.binary(min_size=1, max_size=30).map(lambda item: b"\x02" + item),
    ),
)
def test_any_bytes(next_offset: int, data: bytes) -> None:
    """Bytes are runs or refused with ValueError, nothing else; and runs that are read can be written and read again."""
    try:
        runs = decode(next_offset, data)
    except ValueError:
        return

    assert len(encode(next_offset, runs)) <= len(data)
    assert decode(next_offset, encode(next_offset, runs)) == runs
    assert Watermark(next_offset, runs).runs() == [run for run in runs if run[0] != next_offset]


@fixed
@given(
    next_offset=st.integers(0, 50),
    gaps=st.lists(st.one_of(st.just(0), st.integers(0, 3), st.integers(0, 60)), max_size=80),
)
def test_single_offsets(next_offset: int, gaps: list[int]) -> None:
    """Single offsets are written as the runs that they form, byte for byte."""
    offsets = [next_offset + number for number in accumulate(gap + 1 for gap in gaps)]

    assert encode_offsets(next_offset, offsets) == encode(next_offset, _runs(set(offsets)))
