"""Schedules fetches: each batch is worth its transaction, no lane waits for another, and memory is limited.

A transaction costs its lane some milliseconds of CPU, and some tens of milliseconds with the broker's
answers, whether it has one record or a hundred. Therefore a broker that was read to its end gets a pause, but
a partition that is behind never waits. A record for an idle partition does not wait either, because a fetch
already waits at the broker. The pause is here and not in the lane: records in the broker cost nothing, while
each fetched batch costs a turn of the consumer's thread and one of Faust.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from aiokafka import TopicPartition

from app.worker.fetch.buffers import Buffers
from app.worker.fetch.fetch_interval import FetchInterval
from ringfence_kafka.aiokafka_patches import fetch_buffer

FETCH_WAIT_MS: Final = 100
"""Time that a broker holds an empty fetch, in ms. No other fetch runs on that broker meanwhile."""
QUIET_WAIT_MS: Final = 500
"""The same time without records. Each fetch names all partitions: a thousand take milliseconds."""
QUIET_AFTER_S: Final = 5.0
SILENT_AFTER_S: Final = 20.0
SILENT_WAIT_MAX_MS: Final = 2_000
"""Limit of this time after a longer silence, for very many partitions: 1 ms each. A new partition or a seek
waits up to this time for the end of the fetch.
"""
PARTIAL_WAIT_MS: Final = 10
"""The same time for a fetch without partitions whose records will be read soon: they await its end."""
PARTIAL_AFTER_S: Final = 0.02
"""Time that other partitions wait for one with fetched records before a fetch leaves it out, in seconds."""


class BoundedFetches:
    """Restricts aiokafka's fetches to partitions with room."""

    def __init__(self, fetcher: Any, buffers: Buffers, wanted: Callable[[TopicPartition], bool]) -> None:
        """Patch the fetcher permanently. ``wanted``: a partition's fetched records will be read soon."""
        self._fetcher = fetcher
        self._buffers = buffers
        self._wanted = wanted
        self._actions = fetch_buffer.choose_fetches(fetcher, self._bounded)

    def _bounded(self, assignment: Any) -> tuple[Any, ...]:
        """Return aiokafka's requests without partitions that have no room."""
        buffers, memory = self._buffers, self._buffers.memory
        buffers.assign(assignment.tps)
        buffers.count_unread(self._fetcher)
        fetch_buffer.limit_fetches(self._fetcher, memory.partition_bytes_max, memory.response_bytes_max)
        fetches, *others = self._actions(assignment)
        allowed = [(node, request) for node, request in fetches if self._allow(request)]
        return allowed, *others

    def _allow(self, request: Any) -> bool:
        """Remove partitions without room from a request; return whether any remains."""
        topics: list[tuple[str, Sequence[Any]]] = []
        soon = False
        for topic, partitions in request.topics:
            kept = []
            for partition in partitions:
                tp = TopicPartition(topic, partition[0])
                wanted = self._wanted(tp)
                if self._buffers.may_fetch(tp, wanted=wanted):
                    kept.append(partition)
                else:
                    soon = soon or wanted
            if kept:
                topics.append((topic, kept))
        fetch_buffer.narrow(request, topics, PARTIAL_WAIT_MS if soon and self._buffers.moving else None)
        return bool(topics)


class FetchScheduler:
    """Pace of one aiokafka fetcher. Runs on its event loop."""

    def __init__(
        self,
        fetcher: Any,
        wanted: Callable[[TopicPartition], bool],
        interval: FetchInterval,
        clock: Callable[[], float] = time.monotonic,
        cpu: Callable[[], float] = time.process_time,
    ) -> None:
        """Patch the fetcher permanently. ``wanted``: a partition's fetched records will be read soon."""
        self._fetcher = fetcher
        self._wanted = wanted
        self._interval = interval
        self._clock = clock
        self._cpu = cpu
        self._due: dict[int, float] = {}
        """Node number → time at which the broker may be asked again."""
        self._asked: dict[int, float] = {}
        """Node number → time of the last request after a pause."""
        self._read_at = clock()
        self._actions = fetch_buffer.choose_fetches(fetcher, self._paced, PARTIAL_AFTER_S)

    def hurry(self) -> None:
        """Shorten the next fetches: partitions are read from other offsets, and must not wait long."""
        self._read_at = self._clock()

    def asked_at(self, tp: TopicPartition) -> float:
        """Return when the present records of a partition were requested, by the clock.

        It is the current time, unless the broker had a pause, so that records were waiting. If the fetch took
        longer than a typical batch, it waited at the broker for records, and the current time counts too.
        """
        now = self._clock()
        asked = self._asked.get(fetch_buffer.broker_of(self._fetcher, tp), now)
        return asked if now - asked < self._interval.took_s else now

    def record_reads(self, partitions: Mapping[TopicPartition, bool]) -> None:
        """Record which partitions were just read. True = the log has more records."""
        if partitions:
            self._read_at = self._clock()
        behind: dict[int, bool] = {}
        for tp, more in partitions.items():
            node = fetch_buffer.broker_of(self._fetcher, tp)
            behind[node] = behind.get(node, False) or more
        if behind and not any(behind.values()):
            self._interval.record_cpu(self._cpu(), self._clock())
        for node, more in behind.items():
            self._due[node] = 0.0 if more else self._clock() + self._interval.wait_s

    def _paced(self, assignment: Any) -> tuple[Any, ...]:
        """Return aiokafka's requests without brokers in a pause; aiokafka asks again when it ends."""
        now = self._clock()
        held = any(map(self._wanted, fetch_buffer.partitions(self._fetcher)))
        whole = _wait_ms(now - self._read_at, len(assignment.tps))
        fetch_buffer.set_fetch_wait(self._fetcher, PARTIAL_WAIT_MS if held else whole)
        fetches, resets, timeout, stale, resumed = self._actions(assignment)
        due = []
        for node, request in fetches:
            again = self._due.get(node, 0.0)
            if again > now:
                timeout = min(timeout, again - now)
                continue
            due.append((node, request))
            if again:
                self._asked[node] = now
            else:
                self._asked.pop(node, None)
        return due, resets, timeout, stale, resumed


def _wait_ms(quiet_s: float, partitions: int) -> int:
    if quiet_s < QUIET_AFTER_S:
        return FETCH_WAIT_MS
    if quiet_s < SILENT_AFTER_S:
        return QUIET_WAIT_MS
    return min(SILENT_WAIT_MAX_MS, max(QUIET_WAIT_MS, partitions))
