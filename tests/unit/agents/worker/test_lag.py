"""How far lanes are behind: asked for all at once, and of whom there is a doubt by itself."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from aiokafka.errors import KafkaConnectionError

from agents.lane.assignment import Partition
from agents.lane.cursor import Cursor
from agents.lane.lane import Lane, LaneState
from agents.worker.lag import Growth, LaneLags
from tests.support.cluster_double import ClusterDouble

INPUT, FORWARD = "orders", "app-orders-forward"


@dataclass
class Answers(ClusterDouble):
    """The answers of the cluster, and the number of questions to it."""

    ends: dict[Partition, int] = field(default_factory=dict)
    starts: dict[Partition, int] = field(default_factory=dict)
    committed: dict[Partition, int | None] = field(default_factory=dict)
    questions: int = 0
    away: bool = False
    coordinator_away: bool = False

    def _ask(self, known: dict[Partition, Any], places: Collection[Partition]) -> dict[Partition, Any]:
        self.questions += 1
        if self.away:
            raise KafkaConnectionError
        return {place: known[place] for place in places if place in known}

    async def known_ends(self, places: Collection[Partition], _limit_s: float) -> dict[Partition, int]:
        return self._ask(self.ends, places)

    async def known_starts(self, places: Collection[Partition], _limit_s: float) -> dict[Partition, int]:
        return self._ask(self.starts, places)

    async def known_commits(self, places: Collection[Partition]) -> dict[Partition, int | None]:
        if self.coordinator_away:
            raise KafkaConnectionError
        return self._ask(self.committed, places)


@dataclass
class Standing:
    """A lane, as far as its lag goes."""

    number: int
    next: int = 10
    state: LaneState = LaneState.OPEN
    idle: bool = True
    opened: bool = True
    compared: int = 0

    def __post_init__(self) -> None:
        places = [(INPUT, self.number, self.next), (FORWARD, self.number, 5)] if self.opened else []
        self.cursors = {(topic, at): Cursor("o", topic, at, end, "id", end) for topic, at, end in places}

    def fits(self, ends: Any, committed: Any) -> bool:
        return Lane.fits(cast("Lane", self), ends, committed)

    async def compare(self) -> None:
        self.compared += 1


def _answers(count: int = 1) -> Answers:
    answers = Answers()
    for number in range(count):
        answers.ends |= {(INPUT, number): 10, (FORWARD, number): 5}
        answers.starts |= {(INPUT, number): 0, (FORWARD, number): 0}
        answers.committed |= {(INPUT, number): 10, (FORWARD, number): 5}
    return answers


async def _measure(answers: Answers, *lanes: Standing, halves: Collection[Partition] = ()) -> LaneLags:
    lags = LaneLags(cast("Any", answers))
    await _measure_by(lags, lanes, halves)
    return lags


async def _measure_by(lags: LaneLags, lanes: Iterable[Standing], halves: Iterable[Partition] = ()) -> None:
    keys = {(INPUT, lane.number): cast("Lane", lane) for lane in lanes}
    await lags.measure(keys, {key: [key] for key in (*keys, *halves)})


async def test_a_thousand_lanes_are_three_questions() -> None:
    """The lag of a thousand lanes needs three questions, and no lane asks by itself if nothing has gone back."""
    answers, lanes = _answers(1_000), [Standing(number) for number in range(1_000)]
    lags = await _measure(answers, *lanes)

    assert answers.questions == 3
    assert [lags.lag((INPUT, number)) for number in range(1_000)] == [0] * 1_000
    assert not any(lane.compared for lane in lanes)


GONE = object()


@pytest.mark.parametrize(
    ("kind", "place", "now"),
    [
        ("ends", (INPUT, 0), 9),
        ("ends", (FORWARD, 0), 4),
        ("ends", (FORWARD, 0), GONE),
        ("committed", (INPUT, 0), 9),
        ("committed", (FORWARD, 0), None),
        ("committed", (FORWARD, 0), GONE),
    ],
)
async def test_lane_that_went_back_compares_its_offsets(kind: str, place: Partition, now: Any) -> None:
    """A lane compares its offsets if its log or group went back, or if nothing is known of it. Other lanes do not."""
    answers, lanes = _answers(2), [Standing(0), Standing(1)]
    known = getattr(answers, kind)
    known[place] = now
    if now is GONE:
        del known[place]
    await _measure(answers, *lanes)

    assert [lane.compared for lane in lanes] == [1, 0]


async def test_who_works_is_left_alone() -> None:
    """A busy lane is not compared: answers are old for it. Open lanes have a lag even without a coordinator."""
    answers, lanes = _answers(2), [Standing(0, next=8, idle=False), Standing(1)]
    answers.committed[INPUT, 0] = 3
    lags = await _measure(answers, *lanes)
    found = [lags.lag((INPUT, number)) for number in range(2)], [lane.compared for lane in lanes]
    answers.coordinator_away = True
    await _measure_by(lags, lanes)

    assert found == ([2, 0], [0, 0])
    assert [lags.lag((INPUT, number)) for number in range(2)] == [2, 0]
    assert [lane.compared for lane in lanes] == [0, 1]


async def test_lanes_that_are_not_open() -> None:
    """The lag of a lane that was never open follows the group's offset. A lane of a recreated topic has the whole topic before it."""
    answers = _answers(4)
    answers.committed |= {(INPUT, 0): 4, (INPUT, 1): None, (INPUT, 3): 7}
    answers.starts[INPUT, 1] = 2
    lanes = [
        Standing(0, state=LaneState.OPENING, idle=False, opened=False),
        Standing(1, state=LaneState.RETRYING, idle=False, opened=False),
        Standing(2, state=LaneState.REFUSED, idle=False, next=50),
    ]
    lags = await _measure(answers, *lanes, halves=[(INPUT, 3)])

    assert [lags.lag((INPUT, number)) for number in range(4)] == [6, 8, 10, 3]


async def test_what_is_not_told_has_no_lag() -> None:
    """A partition without an answer has no lag: no value is invented, and none is kept from before."""
    answers = _answers(3)
    lanes = [Standing(0), Standing(1), Standing(2, state=LaneState.OPENING, opened=False)]
    del answers.ends[INPUT, 1]
    del answers.committed[INPUT, 2]
    lags = await _measure(answers, *lanes)
    first = [lags.lag((INPUT, number)) for number in range(3)]
    answers.away = True
    await _measure_by(lags, lanes)

    assert first == [0, None, None]
    assert [lags.lag((INPUT, number)) for number in range(3)] == [None] * 3


def test_rate_of_the_last_minute() -> None:
    """Two measurements make a rate; what is older than a minute does not count, nor what another topic of the name had."""
    growth = Growth()
    assert growth.per_second is None
    growth.record(0.0, 1_000)
    assert growth.per_second is None
    growth.record(5.0, 1_050)
    assert growth.per_second == 10.0
    for second in range(10, 70, 5):
        growth.record(float(second), 1_050)
    assert growth.per_second == 0.0
    growth.record(70.0, 3)
    growth.record(75.0, 8)
    assert growth.per_second == 1.0
