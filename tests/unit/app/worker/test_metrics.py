"""Lane metrics that a worker exposes to Prometheus."""

from types import SimpleNamespace
from typing import Any

from agents.decision.frequent_ids import FrequentId
from agents.lane.lane import LaneState
from app.worker.metrics import _address_gauges, _lane_gauges


class _Ring:
    capacity = 5

    def __len__(self) -> int:
        return 3


def test_how_far_a_lane_is() -> None:
    """Metrics cover lanes that were never open; half a lane has no processed offset."""
    table = SimpleNamespace(ring=_Ring())

    def lane(number: int, following: int) -> Any:
        opening = SimpleNamespace(table=table, rules_fault="" if number else "why")
        frequent = FrequentId(b"", 3, 4) if number else None
        return SimpleNamespace(
            key=("orders", number), opening=opening, next=following, seconds_covered=lambda: None,
            transactions=SimpleNamespace(
                outcomes=SimpleNamespace(
                    forwarding=SimpleNamespace(share=number / 4), frequent_ids=SimpleNamespace(most=frequent)
                )
            ),
        )  # fmt: skip

    lanes: Any = SimpleNamespace(
        lanes=[lane(0, 17), lane(1, 0)],
        health=SimpleNamespace(
            halves={("orders", 2): "why"},
            addresses=["orders"],
            labels=lambda place: ["orders", f"orders-{place[1]}"],
            state_of=lambda _: (LaneState.OPEN, ""),
        ),
        lags=SimpleNamespace(of=lambda _: 4),
        faults=SimpleNamespace(by_address={}),
        agreement=SimpleNamespace(by_address={"orders": ["id_cache_size: a says 1, b says 2"]}),
    )
    (unlike,) = [gauge for gauge in _address_gauges(lanes) if gauge.name == "ringfence_limits_disagreements"]
    found = {
        (sample.name, sample.labels["lane"]): sample.value
        for family in _lane_gauges(lanes)
        for sample in family.samples
    }

    assert [(sample.labels, sample.value) for sample in unlike.samples] == [({"address": "orders"}, 1)]
    assert found["ringfence_lane_other_rules", "orders-0"] == 1
    assert found["ringfence_lane_other_rules", "orders-1"] == 0
    assert found["ringfence_frequent_id_share", "orders-0"] == 0
    assert found["ringfence_forwarded_share", "orders-1"] == 0.25
    assert found["ringfence_frequent_id_share", "orders-1"] == 0.75
    assert found["ringfence_lane_next_offset", "orders-0"] == 17
    assert found["ringfence_lane_next_offset", "orders-1"] == 0
    assert ("ringfence_lane_next_offset", "orders-2") not in found
    assert found["ringfence_lag_records", "orders-2"] == 4
