from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agents import transactions
from agents.batch import FetchedBatch
from agents.opening import Opening
from agents.transactions import Transactions
from ringfence_kafka.config.load import validate


def _made() -> Transactions:
    address = validate({"addresses": [{"name": "orders"}]}).addresses[0]
    opening: Any = SimpleNamespace(name="orders-0", address=address)
    return Transactions(cast("Opening", opening), Counter())


def _batch() -> FetchedBatch:
    return FetchedBatch("orders", 0, 0, 9, [], 0)


def test_many_that_go_to_quarantine(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line at once, with how many there were; then one at intervals that counts what went without."""
    now = 100.0
    monkeypatch.setattr("agents.transactions.time.monotonic", lambda: now)
    lane = _made()
    lane._say_refused(_batch(), {})
    lane._say_refused(_batch(), {3: "too large", 4: "too large"})
    lane._say_refused(_batch(), {5: "too large", 6: "too large", 7: "too large"})
    now += transactions.SAY_REFUSED_S
    lane._say_refused(_batch(), {8: "odd"})
    now += transactions.SAY_REFUSED_S
    lane._say_refused(_batch(), {9: "odd"})

    assert caplog.messages == [
        "lane orders-0: orders/0/3 goes to quarantine: too large, and so did 1 more since the last such line",
        "lane orders-0: orders/0/8 goes to quarantine: odd, and so did 3 more since the last such line",
        "lane orders-0: orders/0/9 goes to quarantine: odd",
    ]
