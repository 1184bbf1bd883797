import pytest

from ringfence_kafka.protocol.lane_layout import LaneLayout


@pytest.mark.parametrize(
    ("lanes", "partitions", "owned"),
    [(0, 3, [[0], [1], [2]]), (1, 4, [[0, 1, 2, 3]]), (2, 5, [[0, 2, 4], [1, 3]]), (3, 3, [[0], [1], [2]])],
)
def test_each_partition_has_one_lane(lanes: int, partitions: int, owned: list[list[int]]) -> None:
    layout = LaneLayout.from_setting(lanes, partitions)

    assert [list(layout.partitions_of(lane)) for lane in range(layout.lanes)] == owned
    for lane, numbers in enumerate(owned):
        assert {layout.lane_of(number) for number in numbers} == {lane}


@pytest.mark.parametrize(
    ("lanes", "before", "now", "kept"),
    [
        (1, 4, 7, True),
        (2, 4, 8, True),
        (2, 4, 5, False),
        (2, 5, 10, False),
        (2, 5, 5, True),
        (0, 4, 8, False),
    ],
)
def test_homes_stay_among_multiples_of_the_lanes(lanes: int, before: int, now: int, *, kept: bool) -> None:
    former, later = LaneLayout.from_setting(lanes, before), LaneLayout.from_setting(lanes, now)

    assert later.keeps_homes(former) is kept
    same = all(former.lane_of(key % before) == later.lane_of(key % now) for key in range(1_000))
    assert same is kept
