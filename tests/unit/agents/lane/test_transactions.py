from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from agents.lane import transactions
from agents.lane.transactions import Transactions
from ringfence_kafka.config.load import validate


def test_many_in_quarantine(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records that go to quarantine are logged at once, with their number, and later at intervals with a count."""
    now = 100.0
    monkeypatch.setattr("agents.lane.transactions.time.monotonic", lambda: now)
    address = validate({"addresses": [{"name": "orders"}]}).addresses[0]
    opening: Any = SimpleNamespace(chained=False, name="orders-0", number=0, address=address, group_id="rf")
    lane = Transactions(opening, Counter())
    lane._say_refused("orders", {})
    lane._say_refused("orders", {(0, 3): "too large", (0, 4): "too large"})
    lane._say_refused("orders", {(0, 5): "too large", (0, 6): "too large", (0, 7): "too large"})
    now += transactions.SAY_REFUSED_S
    lane._say_refused("orders", {(0, 8): "odd"})
    now += transactions.SAY_REFUSED_S
    lane._say_refused("orders", {(0, 9): "odd"})

    assert caplog.messages == [
        "lane orders-0: orders/0/3 goes to quarantine: too large, and so did 1 more since the last such line",
        "lane orders-0: orders/0/8 goes to quarantine: odd, and so did 3 more since the last such line",
        "lane orders-0: orders/0/9 goes to quarantine: odd",
    ]
