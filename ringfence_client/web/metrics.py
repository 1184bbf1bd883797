"""Prometheus metrics and chart figures of a consumer, computed on request."""

import math
import time
from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from ringfence_client.consumer.consumer import GroupConsumer
from ringfence_client.consumer.foreign_members import foreign_metric
from ringfence_client.handlers.handler import BOUNDS_S
from ringfence_client.partition.partition import HeldPartition
from ringfence_client.web.lag_monitor import LagMonitor
from ringfence_kafka.aiokafka_patches.throttling import throttle_metric
from ringfence_kafka.http.server import ProcessMetrics
from ringfence_kafka.page.history import Subject, rss

_LABELS: Final = ("consumer_group", "address")
_OUTCOMES: Final = ("finished", "failed", "released")
HELD: Final = "held"
DRAINING: Final = "draining"
WAITING: Final = "waiting"


class ConsumerMetrics(ProcessMetrics):
    """Metrics registry of one consumer."""

    def __init__(self, consumer: GroupConsumer, measuring: LagMonitor) -> None:
        super().__init__(_Collector(consumer, measuring))


class _Collector(Collector):
    def __init__(self, consumer: GroupConsumer, measuring: LagMonitor) -> None:
        self._consumer = consumer
        self._measuring = measuring
        self._own = [consumer.group, consumer.address.name]

    def collect(self) -> Iterator[Metric]:
        yield from self._counters()
        yield self._handler_seconds()
        yield from self._process()
        yield from self._partitions()
        yield from self._letters()
        yield foreign_metric([self._consumer.group_watch])
        yield throttle_metric()

    def _counters(self) -> Iterator[Metric]:
        counts = self._consumer.dispatcher.counts
        text = "Runs of the handler by how they ended."
        attempts = CounterMetricFamily("ringfence_consumer_attempts", text, labels=[*_LABELS, "outcome"])
        for outcome in _OUTCOMES:
            attempts.add_metric([*self._own, outcome], counts[outcome])
        yield attempts
        for name, text in (
            ("dead_letters", "Messages that became dead letters."),
            (
                "gap_records",
                "Offsets that retention or compaction deleted before their messages were handled.",
            ),
        ):
            family = CounterMetricFamily(f"ringfence_consumer_{name}", text, labels=_LABELS)
            family.add_metric(self._own, counts[name])
            yield family

    def _handler_seconds(self) -> Metric:
        times = self._consumer.dispatcher.runs.times
        text = "Duration of a run of the handler, however it ended."
        found = HistogramMetricFamily("ringfence_consumer_handler_seconds", text, labels=_LABELS)
        names = [*map(floatToGoString, BOUNDS_S), "+Inf"]
        found.add_metric(
            self._own, list(zip(names, map(float, accumulate(times.counts)), strict=True)), times.sum_s
        )
        return found

    def _process(self) -> Iterator[Metric]:
        consumer, dispatcher = self._consumer, self._consumer.dispatcher
        up = not self._measuring.watch.away
        for name, text, value in (
            ("consumer_ready", "1 = every partition is held, and no fault blocks it.", consumer.ready and up),
            ("consumer_handlers", "Handlers that may run at once.", dispatcher.concurrency),
            ("consumer_handlers_running", "Handlers that have a message.", dispatcher.running),
            ("consumer_handlers_left_behind", "Runs that ignored their cancellation; their groups wait for them.", dispatcher.runs.left_behind),
            ("consumer_longest_run_seconds", "Age of the oldest run of the handler; 0 = none runs.", dispatcher.runs.longest_s),
            ("consumer_breaker_open", "1 = nearly every attempt fails; the consumer slows down and discards nothing.", dispatcher.breaker.open),
            ("consumer_buffered_bytes", "Memory of messages that were fetched and are not finished.", consumer.memory.buffered),
            ("consumer_buffer_limit_bytes", "Limit of that memory, --memory; fetching pauses there.", consumer.memory.bytes_max),
            ("brokers_up", "1 = brokers answer.", up),
        ):  # fmt: skip
            family = GaugeMetricFamily(f"ringfence_{name}", text, labels=_LABELS)
            family.add_metric(self._own, float(value))
            yield family

    def _letters(self) -> Iterator[Metric]:
        monitor, letters = self._measuring, self._measuring.open_letters
        count = letters.count if letters else 0 if monitor.knows_letters else math.nan
        for name, text, value in (
            ("open_dead_letters", "Open dead letters, from the consumer that has partition 0; NaN = unknown.", count),
            ("oldest_dead_letter_seconds", "Age of the oldest open record; 0 = none is open.", letters.oldest_seconds if letters else 0),
        ):  # fmt: skip
            family = GaugeMetricFamily(f"ringfence_consumer_{name}", text, labels=_LABELS)
            if monitor.counts_letters:
                family.add_metric(self._own, value)
            yield family

    def _partitions(self) -> Iterator[Metric]:
        labels = [*_LABELS, "partition"]
        families = [
            GaugeMetricFamily(f"ringfence_consumer_{name}", text, labels=labels)
            for name, text in (
                ("lag_records", "Offsets from the first unfinished message to the end, of assigned partitions; NaN = unknown."),
                ("head_age_seconds", "Age of the oldest message that was read and is not finished."),
                ("failing_messages", "Unfinished messages with failed attempts."),
                ("unfinished_messages", "Messages that were read and are not finished."),
                ("blocked_groups", "Groups that wait behind a dead letter."),
            )
        ]  # fmt: skip
        lag, oldest, failing, unfinished, blocked = families
        text = "1 = the lease of the partition is in this state here."
        states = GaugeMetricFamily("ringfence_consumer_lease_state", text, labels=[*labels, "state"])
        held = dict(sorted(self._consumer.partitions.items()))
        for number, held_partition in held.items():
            place = [*self._own, str(number)]
            oldest.add_metric(place, head_age(held_partition))
            failing.add_metric(place, len(held_partition.window.attempts.failures))
            unfinished.add_metric(place, held_partition.window.unfinished)
            blocked.add_metric(place, len(held_partition.window.redrives.blocked))
            states.add_metric([*place, DRAINING if held_partition.draining else HELD], 1)
        for number in sorted((self._consumer.held_partitions.assigned or set()) - held.keys()):
            states.add_metric([*self._own, str(number), WAITING], 1)
        for number, records in self._measuring.lags.items():
            lag.add_metric([*self._own, str(number)], math.nan if records is None else records)
        yield from (*families, states)


def figures(consumer: GroupConsumer) -> Mapping[Subject, Mapping[str, float | None]]:
    """Return the figures of the page's charts."""
    counts = consumer.dispatcher.counts
    return {
        ("consumers", consumer.group, consumer.address.name): {
            "handled": counts["finished"],
            "failed": counts["failed"],
            "running": consumer.dispatcher.running,
            "oldest": max(map(head_age, consumer.partitions.values()), default=0.0),
            "rss": rss(),
            "buffered": consumer.memory.buffered,
        }
    }


def head_age(held: HeldPartition) -> float:
    """Return the age of the first unfinished message, in seconds; 0 = no message waits."""
    head = held.window.ledger.find(held.window.next)
    return 0.0 if head is None else max(0.0, time.time() - head[1] / 1000)
