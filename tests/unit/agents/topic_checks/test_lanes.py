"""Checks of addresses that set ``lanes``."""

import pytest

from agents.topic_checks.changelog import meta_faults
from agents.topic_checks.lanes import is_marked, lanes_before, live, mark
from agents.topic_checks.topics import count_faults, topic_faults
from ringfence_kafka.config.load import validate
from ringfence_kafka.config.settings import AddressSettings
from tests.unit.agents.topic_checks.test_topics import APP, described, recorded


def _address(lanes: int) -> AddressSettings:
    return validate({"addresses": [{"name": "orders", "lanes": lanes}]}).addresses[0]


@pytest.mark.parametrize(
    ("lanes", "counts"),
    [
        (1, {"changelog": 1, "forward": 0}),
        (1, {"changelog": 4, "forward": 4}),  # left from before
        (2, {"changelog": 2, "forward": 2}),
        (2, {"changelog": 4, "forward": 4}),
        (2, {"changelog": 2, "forward": 2, "input": 5}),
    ],
)
def test_counts_that_fit(lanes: int, counts: dict[str, int]) -> None:
    """A topic needs a partition for each lane, and more of them do no harm."""
    assert topic_faults(APP, _address(lanes), described(**counts)) == []


def test_more_lanes_than_partitions() -> None:
    """Too many lanes are one problem with both ways out, whatever the other topics have."""
    (fault,) = topic_faults(APP, _address(6), described(changelog=1, forward=1))

    assert fault == (
        "orders has 4 partitions, orders has lanes = 6: a lane would have no partition. Set lanes = 4 or lower, or give the topic more: "
        "'ringfence topics grow orders --partitions 6'"
    )


@pytest.mark.parametrize("role", ["changelog", "forward"])
def test_too_few_partitions_after_a_change(role: str) -> None:
    (fault,) = topic_faults(APP, _address(4), described(**{"changelog": 4, "forward": 4, role: 2}))

    assert fault.startswith(f"rf-orders-{role} (")
    said = "2 partitions, orders has lanes = 4: stop the workers and run 'ringfence rings regroup orders --lanes 4'"
    assert said in fault


@pytest.mark.parametrize(
    ("lanes", "before", "now", "grow"),
    [
        (1, 4, 5, None),
        (4, 4, 8, None),
        (4, 4, 6, 8),
        (2, 4, 5, 6),
        (2, 8, 4, 8),  # it shrank: another topic of that name
        (2, 5, 6, 0),  # no growth keeps the homes
    ],
)
def test_growth_of_the_input(lanes: int, before: int, now: int, grow: int | None) -> None:
    """A growth of the input is accepted if homes stay. Otherwise the error names a count that keeps them, if there is one."""
    faults = count_faults(_address(lanes), {"orders": now}, [recorded(lanes, orders=before)])

    assert len(faults) == (grow is not None)
    for fault in faults:
        assert (f"topics grow orders --partitions {grow}'" in fault) is bool(grow)
        assert f"delete it and create it again with {before} partitions" in fault


@pytest.mark.parametrize(("before", "lanes"), [(0, 1), (4, 1), (1, 4), (2, 0)])
def test_another_number_of_lanes(before: int, lanes: int) -> None:
    """Another number of lanes is one problem with the way out, and counts of partitions are left out."""
    (fault,) = count_faults(_address(lanes), {"orders": 9}, [recorded(before, orders=4)] * 2)

    assert f"'ringfence rings regroup orders --lanes {lanes}', or set lanes = {before}" in fault


@pytest.mark.parametrize("lanes", [0, 1, 4])
def test_a_regrouping_that_did_not_end(lanes: int) -> None:
    """Every configuration is refused during an unfinished regrouping, even one with the former number."""
    meta = recorded(mark(4), orders=4)
    (fault,) = count_faults(_address(lanes), {"orders": 4}, [meta])

    assert fault.startswith("a regrouping of the lanes of orders is unfinished")
    assert f"--lanes {lanes}' again" in fault
    assert (is_marked(meta), lanes_before(meta)) == (True, 4)


def test_partitions_that_no_lane_has_any_more() -> None:
    """A changelog partition left by a former grouping belongs to no lane."""
    metas = {0: recorded(1), 1: recorded(1), 2: recorded(2), 3: recorded(mark(2))}

    assert live(metas) == {0: metas[0]}
    assert [*live({3: recorded(0), 4: recorded(0)})] == [3, 4]  # of a growth that is under way
    places = {("rf-orders-changelog", number): meta for number, meta in metas.items()}
    assert meta_faults(APP, _address(1), places, described(changelog=4, forward=0)) == []
