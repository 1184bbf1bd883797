"""The log of a promise in time that a ring cannot keep, and a sample of messages without an ID."""

import itertools
import logging
from collections import Counter
from typing import Any

import pytest

from agents.lane.outcome_counts import AGAIN_S, NAMES_MAX, CoverageLog, MissingIds
from tables.promise import Promise, coverage
from tables.ring import Ring

BEFORE = Promise(2, 3_600_000)


class _Table:
    """A table whose ring has room for 40 IDs, reaches back 36 s, and let go of some."""

    def __init__(self, broken: int, floor: int = 0) -> None:
        self.ring = Ring(40, 100, floor, promise=BEFORE._replace(newest_ms=40_000, broken=broken))

    def coverage(self) -> Any:
        ring = self.ring
        assert ring.promise is not None
        return coverage(ring.promise, ring.capacity, ring.head, ring.floor, 4_000)


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO)
    return caplog


def test_the_line_names_the_size(lines: pytest.LogCaptureFixture) -> None:
    """It says how many IDs left, how far the ring reaches, and which size would be enough; the metric counts them."""
    counts = Counter[str]()
    table: Any = _Table(7)
    CoverageLog("orders-0", counts).count(BEFORE, table)

    assert counts == {"coverage_broken": 7}
    assert [record.getMessage() for record in lines.records] == [
        (
            "lane orders-0: coverage broken: 7 IDs younger than id_min_age = 1h left its ring, which has room for id_cache_size_max = 40 and reaches back 36s: a "
            "duplicate that arrives later is accepted. At this rate id_cache_size_max = 4100 would be enough: set it for all workers"
        )
    ]


def test_a_line_a_minute(lines: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each batch may break the promise; the log says it once a minute, with all IDs since the last line."""
    now = 1_000.0
    monkeypatch.setattr("agents.lane.outcome_counts.time.monotonic", lambda: now)
    counts = Counter[str]()
    log, tables = CoverageLog("orders-0", counts), [_Table(number, 100) for number in range(5)]
    for before, after in itertools.pairwise(tables):
        table: Any = after
        log.count(before.ring.promise, table)
    now += AGAIN_S
    log.count(tables[-1].ring.promise, table)

    assert counts["coverage_broken"] == 4
    first, second = (record.getMessage() for record in lines.records)
    assert first.startswith("lane orders-0: coverage broken: 1 ID younger")
    assert second.startswith("lane orders-0: coverage broken: 3 IDs younger")
    assert second.endswith("The ring covers id_min_age again")


def test_names_of_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """One message a second is looked at. The most frequent name comes first, and Ringfence's own headers are left out."""
    now, looked = 0.0, []
    monkeypatch.setattr("time.monotonic", lambda: now)
    found = MissingIds()

    def names(*texts: str) -> None:
        def look() -> tuple[str, ...]:
            looked.append(texts)
            return texts

        found.count(look)

    for second, texts in enumerate([("trace", "_RF_HOPS"), ("trace", "_amq_dupl_id", "_amq_dupl_id")]):
        now = float(second + 1)
        names(*texts)
        names("too soon")

    assert found.names == ["trace", "_amq_dupl_id"]
    assert len(looked) == 2
    for second in range(2 * NAMES_MAX):
        now = 10.0 + second
        names(f"name-{second}", "trace")
    assert len(found.names) == NAMES_MAX
    assert found.names[0] == "trace"
