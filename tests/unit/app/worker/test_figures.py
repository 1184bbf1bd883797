from collections import Counter
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

from app.worker.parts import TURNS, WorkerFigures


def test_figures_of_a_worker() -> None:
    """An address has the counts of all its lanes, their lags, and the shortest reach; a ring is asked once in six samples."""
    covered = [Mock(return_value=100.0 - number) for number in range(3)]
    opening = SimpleNamespace(address=SimpleNamespace(name="orders"))
    counts = Counter(accepted=70, unchecked=5, duplicates=20, quarantined=1, forwarded=9)
    lags = {("orders", 0): 4, ("orders", 1): None, ("orders", 2): 3}
    lanes: Any = SimpleNamespace(
        lanes=[
            SimpleNamespace(key=("orders", number), opening=opening, seconds_covered=reach)
            for number, reach in enumerate(covered)
        ],
        counts=lambda: {"orders": counts, "empty": Counter()},
        lags=SimpleNamespace(lag=lags.get),
    )
    figures = WorkerFigures("w1", lanes, SimpleNamespace(used=7))  # type: ignore[arg-type]
    for _ in range(1 + TURNS):
        found = figures.sample()

    judged = {"in": 96, "accepted": 75, "duplicates": 20}
    assert found["address", "orders"] == {**judged, "lag": 7, "covered": 98.0}
    assert found["address", "empty"]["covered"] is None
    assert found["worker", "w1"]["buffered"] == 7
    assert {reach.call_count for reach in covered} == {2}
