from collections import defaultdict
from types import SimpleNamespace
from typing import Any

from agents.decision.frequent_ids import FrequentId
from agents.lane.lane import LaneState
from app.worker.metrics import _address_gauges, _lane_gauges


class _Ring(list[int]):
    capacity = 5


def _lane(number: int, following: int) -> Any:
    opening = SimpleNamespace(
        table=SimpleNamespace(ring=_Ring(range(3))), rules_fault="" if number else "why"
    )
    frequent = FrequentId(b"", 3, 4) if number else None
    outcomes = SimpleNamespace(
        forwarding=SimpleNamespace(share=number / 4), frequent_ids=SimpleNamespace(most=frequent)
    )
    return SimpleNamespace(
        key=("orders", number), opening=opening, next=following, seconds_covered=lambda: None,
        transactions=SimpleNamespace(outcomes=outcomes),
    )  # fmt: skip


def test_how_far_a_lane_is() -> None:
    """Metrics cover lanes that were never open; half a lane has no processed offset."""
    lanes: Any = SimpleNamespace(
        lanes=[_lane(0, 17), _lane(1, 0)],
        health=SimpleNamespace(
            halves={("orders", 2): "why"},
            addresses=["orders"],
            labels=lambda place: ["orders", f"orders-{place[1]}"],
            state_of=lambda _: (LaneState.OPEN, ""),
        ),
        lags=SimpleNamespace(lag=lambda _: 4),
        faults=SimpleNamespace(by_address={}),
        agreement=SimpleNamespace(by_address={"orders": ["id_cache_size: a says 1, b says 2"]}),
    )
    (unlike,) = [gauge for gauge in _address_gauges(lanes) if gauge.name == "ringfence_limits_disagreements"]
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for family in _lane_gauges(lanes):
        for sample in family.samples:
            found[sample.name.removeprefix("ringfence_")][sample.labels["lane"]] = sample.value

    assert [(sample.labels, sample.value) for sample in unlike.samples] == [({"address": "orders"}, 1)]
    assert found["lane_other_rules"] == {"orders-0": 1, "orders-1": 0}
    assert found["frequent_id_share"] == {"orders-0": 0, "orders-1": 0.75}
    assert found["forwarded_share"] == {"orders-0": 0, "orders-1": 0.25}
    assert found["lane_next_offset"] == {"orders-0": 17, "orders-1": 0}
    assert found["lag_records"]["orders-2"] == 4
