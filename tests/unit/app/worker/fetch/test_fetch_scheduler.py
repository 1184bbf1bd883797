from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition

from app.worker.fetch import fetch_scheduler
from app.worker.fetch.fetch_interval import FetchInterval
from app.worker.fetch.fetch_scheduler import FETCH_WAIT_MS, PARTIAL_WAIT_MS, QUIET_WAIT_MS, FetchScheduler

NEAR, FAR = 1, 2
"""Two brokers."""
PARTITIONS = {TopicPartition("orders", number): NEAR if number < 2 else FAR for number in range(4)}
IDLE_S = 0.2
"""For so long aiokafka waits where nothing happens."""


class Asked:
    """aiokafka's fetcher as far as its pace goes: it always wants to ask both brokers."""

    def __init__(self) -> None:
        self.now = 1000.0
        requests = [(NEAR, "request"), (FAR, "request")]
        self.fetcher: Any = SimpleNamespace(
            _get_actions_per_node=lambda _: (list(requests), {"reset": []}, IDLE_S, False, []),
            _select_read_replica=PARTITIONS.__getitem__,
            _records={},
        )
        self.wanted: set[TopicPartition] = set()
        self.assigned: list[TopicPartition] = list(PARTITIONS)
        self.spacing = FetchInterval(0.035)
        self.pace = FetchScheduler(self.fetcher, self.wanted.__contains__, self.spacing, lambda: self.now)

    def read(self, **behind: bool) -> None:
        """By number of the partition."""
        self.pace.record_reads(
            {TopicPartition("orders", int(number[1:])): more for number, more in behind.items()}
        )

    def brokers(self) -> tuple[list[int], float]:
        """Return the brokers that are asked now, and the time until the next decision."""
        fetches, resets, timeout, stale, resumed = self.fetcher._get_actions_per_node(
            SimpleNamespace(tps=self.assigned)
        )
        assert (resets, stale, resumed) == ({"reset": []}, False, [])
        return [node for node, _ in fetches], timeout

    def wait_ms(self) -> int:
        self.brokers()
        return int(self.fetcher._fetch_max_wait_ms)


def test_who_was_read_to_the_end_is_left_alone_for_a_moment() -> None:
    """A broker that was read to its end is left alone for a moment; other brokers do not wait for it.

    It does not wait if one of its partitions is behind, in any order of reads, or if nothing was read from it.
    """
    asked = Asked()
    asked.read(p0=False)
    wait_s = asked.spacing.wait_s

    for share in (1.0, 0.25):
        brokers, again_s = asked.brokers()
        assert brokers == [FAR]
        assert again_s == pytest.approx(wait_s * share)
        asked.now += wait_s * 0.75
    assert asked.brokers() == ([NEAR, FAR], IDLE_S)
    for behind in ({}, {"p0": True}, {"p0": True, "p1": False}, {"p0": False, "p1": True}):
        asked = Asked()
        asked.read(**behind)
        assert asked.brokers() == ([NEAR, FAR], IDLE_S)


def test_when_a_batch_begins() -> None:
    """A batch begins when its broker is asked, if that broker had been left alone before."""
    for fetched_s, counted in ((0.002, True), (0.04, False)):
        asked = Asked()
        asked.read(p0=False)
        asked.now += asked.spacing.wait_s
        asked.brokers()
        began = asked.now
        asked.now += fetched_s

        assert asked.pace.asked_at(TopicPartition("orders", 1)) == (began if counted else asked.now)
        assert asked.pace.asked_at(TopicPartition("orders", 2)) == asked.now


def test_a_fetch_without_some_is_short() -> None:
    """A fetch without partitions that will soon be wanted is short, so they need not wait for its end."""
    asked = Asked()
    lies = TopicPartition("orders", 0)
    for fetched, wanted, wait_ms in (
        (False, False, FETCH_WAIT_MS),
        (True, True, PARTIAL_WAIT_MS),
        (True, False, FETCH_WAIT_MS),
        (False, True, FETCH_WAIT_MS),
    ):
        asked.fetcher._records = {lies: "fetched"} if fetched else {}
        asked.wanted.clear()
        asked.wanted.update({lies} if wanted else ())
        assert asked.wait_ms() == wait_ms, (fetched, wanted)


def test_where_nothing_comes_fetches_are_long() -> None:
    """A quiet broker gets long fetches, a silent topic as long as its partitions cost; any record makes the next ones short."""
    asked = Asked()
    asked.read(p0=False)
    assert asked.wait_ms() == FETCH_WAIT_MS
    asked.now += fetch_scheduler.QUIET_AFTER_S
    assert asked.wait_ms() == QUIET_WAIT_MS
    asked.fetcher._records = {TopicPartition("orders", 0): "something"}
    asked.wanted.add(TopicPartition("orders", 0))
    assert asked.wait_ms() == PARTIAL_WAIT_MS
    asked.fetcher._records = {}
    asked.read(p0=False)
    assert asked.wait_ms() == FETCH_WAIT_MS

    asked.now += fetch_scheduler.SILENT_AFTER_S
    for partitions, wait_ms in (
        (4, QUIET_WAIT_MS),
        (1_000, 1_000),
        (100_000, fetch_scheduler.SILENT_WAIT_MAX_MS),
    ):
        asked.assigned = [TopicPartition("orders", number) for number in range(partitions)]
        assert asked.wait_ms() == wait_ms
    asked.pace.hurry()
    assert asked.wait_ms() == FETCH_WAIT_MS
