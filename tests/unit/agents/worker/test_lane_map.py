"""Which lanes the partitions of an assignment make up."""

from agents.worker.lane_map import LaneMap
from ringfence_kafka.config.load import validate


def _map(**keys: int) -> LaneMap:
    return LaneMap(validate({"app": {"id": "rf"}, "addresses": [{"name": "orders", **keys}]}))


def test_lanes_of_several_partitions() -> None:
    lanes = _map(lanes=2)
    given = {("orders", number) for number in range(5)} | {("rf-orders-forward", number) for number in (0, 1)}

    assert lanes.assign(given) == {("orders", 0), ("orders", 1)}
    assert lanes.inputs()["orders", 0] == [("orders", 0), ("orders", 2), ("orders", 4)]
    assert lanes.given["orders", 1] == [("orders", 1), ("orders", 3), ("rf-orders-forward", 1)]
    assert [lanes.find("orders", 4), lanes.find("rf-orders-forward", 1)] == [("orders", 0), ("orders", 1)]
    assert lanes.lanes_of(given) == [("orders", 0), ("orders", 1)]
    alone = _map(lanes=1)
    assert alone.assign({("orders", 0), ("orders", 3)}) == {("orders", 0)}  # it needs no forward topic
    alone.set_unassigned([("orders", 1), ("orders", 2), ("rf-orders-forward", 0)])
    assert alone.unassigned == ["orders-0"]


def test_half_a_lane() -> None:
    """A lane is not opened if its forward partition, or every input partition, is missing."""
    lanes = _map(lanes=2)

    assert lanes.assign({("orders", 2), ("rf-orders-forward", 1), ("other", 0)}) == set()
    assert lanes.halves == {("orders", 0): "rf-orders-forward/0", ("orders", 1): "orders/1"}
