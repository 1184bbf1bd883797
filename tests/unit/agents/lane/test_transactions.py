from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agents.batch.batch import DueRecords, FetchedBatch
from agents.lane import transactions
from agents.lane.open import Opened, Opening
from agents.lane.transactions import Transactions
from ringfence_kafka.config.load import validate
from ringfence_kafka.protocol.lane_layout import LaneLayout


def _opening() -> Opening:
    address = validate({"addresses": [{"name": "orders"}]}).addresses[0]
    opening: Any = SimpleNamespace(
        chained=False, name="orders-0", number=0, address=address, group_id="ringfence"
    )
    return cast("Opening", opening)


def _made() -> Transactions:
    return Transactions(_opening(), Counter())


def test_many_that_go_to_quarantine(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records that go to quarantine are logged at once, with their number, and later at intervals with a count."""
    now = 100.0
    monkeypatch.setattr("agents.lane.transactions.time.monotonic", lambda: now)
    lane = _made()
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


async def test_how_long_a_batch_took(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of a batch runs from the question to its broker until readers can have it.

    Readers need as long after the commit as the commit took.
    """
    asked_at, written_at, committed_at = 50.0, 50.5, 50.75
    now = written_at
    monkeypatch.setattr("agents.lane.transactions.time.monotonic", lambda: now)

    async def transact(_batches: Any, _offsets: Any, _group: str, approve: Any) -> list[int]:
        nonlocal now
        await approve([7])
        now = committed_at
        return [7]

    ring = SimpleNamespace(promise=None)
    table: Any = SimpleNamespace(position=0, meta=None, ring=ring, apply=lambda *_: None)
    opened: Any = SimpleNamespace(
        table=table,
        producer=SimpleNamespace(transact=transact),
        epoch=1,
        layout=LaneLayout(1, 1),
        cursors={("orders", 0): SimpleNamespace(done=lambda _: None)},
    )
    change: Any = SimpleNamespace(meta=SimpleNamespace(capacity=9))
    state: Any = SimpleNamespace(builder=SimpleNamespace(record_count=lambda: 1))
    outcome: Any = SimpleNamespace(ends=[9])
    took: list[float] = []
    lane = Transactions(_opening(), Counter(), took=took.append)
    monkeypatch.setattr("agents.lane.transactions._points", lambda *_: [])

    async def plan(*_: Any) -> Any:
        return outcome, [], change, [state]

    monkeypatch.setattr(lane, "_plan", plan)
    monkeypatch.setattr(lane, "outcomes", SimpleNamespace(add=lambda *_: None))
    monkeypatch.setattr(lane, "_prime", _nothing)
    record: Any = object()

    batch = FetchedBatch("orders", 0, 0, 9, [record], 0, asked_at=asked_at)
    assert await lane._transact([DueRecords(batch, [record])], cast("Opened", opened)) == {0: 9}

    assert took == [1.0]


async def _nothing(*_: Any) -> None:
    pass
