"""``GET /metrics`` for Prometheus. Read from the lanes when asked: counting costs nothing meanwhile."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Self

from prometheus_client import CollectorRegistry, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from agents.lane.lane import LaneState
from agents.worker.lanes import Lanes
from app.worker.fetch.buffers import Buffers
from app.worker.fetch.fetch_interval import FetchInterval
from ringfence_client.consumer.foreign_members import foreign_metric
from ringfence_kafka.aiokafka_patches.throttling import throttle_metric
from ringfence_kafka.concurrency.broker_watch import BrokerWatch

_COUNTERS: Final = {
    "bridge_duplicates": "Of the duplicates, those that their bridge had sent before; their own IDs were not looked at.",
    "forwarded": "Records that were not at home where they arrived.",
    "quarantined": "Records refused for good.",
    "fenced": "Times a lane lost its transactional ID to another owner.",
    "retries": "Times a lane opened again after a failure.",
    "transactions_quarantined": "Envelopes refused for good, each with all its parts.",
    "gap_records": "Input records that retention deleted before they were processed.",
}
_VERDICTS: Final = ("accepted", "duplicates", "unchecked")
_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_PARTS: Final = (1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000)
"""An envelope has 10,000 at most."""


class Metrics:
    """The registry of one worker."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._batch_seconds = Histogram(
            "ringfence_batch_seconds",
            "From verdicts to the written state, a batch.",
            ["address"],
            registry=self._registry,
            buckets=_SECONDS,
        )
        self._sizes: dict[str, Counter[int]] = {}
        self._registry.register(_SizesCollector(self._sizes))

    def observe(self, address: str, seconds: float, parts: Sequence[int] = ()) -> None:
        """A batch of an address took so many seconds, and the envelopes accepted in it had so many parts each."""
        self._batch_seconds.labels(address).observe(seconds)
        if parts:
            self._sizes.setdefault(address, Counter()).update(parts)

    def show(self, lanes: Lanes, watch: BrokerWatch, buffers: Buffers, spacing: FetchInterval) -> Self:
        """What these lanes count, too, whether brokers answer, what is under way, and how often brokers are asked."""
        self._registry.register(_LaneCollector(lanes, watch, buffers, spacing))
        return self

    def text(self) -> bytes:
        """The exposition."""
        return generate_latest(self._registry)


class _SizesCollector(Collector):
    """A histogram whose samples come by the thousand: they are counted by their value, and go into buckets when asked."""

    def __init__(self, sizes: Mapping[str, Counter[int]]) -> None:
        """``sizes``: address → parts of a transaction → how many transactions had so many."""
        self._sizes = sizes

    def collect(self) -> Iterator[Metric]:
        family = HistogramMetricFamily(
            "ringfence_transaction_parts",
            "Parts of an accepted transaction, by the address of its envelope.",
            labels=["address"],
        )
        for address, counted in sorted(self._sizes.items()):
            sizes = dict(counted)
            buckets = [
                (str(bound), float(sum(n for size, n in sizes.items() if size <= bound)))
                for bound in (*map(float, _PARTS), math.inf)
            ]
            buckets[-1] = ("+Inf", buckets[-1][1])
            family.add_metric([address], buckets, sum(size * n for size, n in sizes.items()))
        yield family


class _LaneCollector(Collector):
    """Counters survive a lane's departure: they only ever grow, as Prometheus expects."""

    def __init__(self, lanes: Lanes, watch: BrokerWatch, buffers: Buffers, spacing: FetchInterval) -> None:
        self._spacing = spacing
        self._lanes = lanes
        self._watch = watch
        self._buffers = buffers

    def collect(self) -> Iterator[Metric]:
        up = not self._watch.away
        yield GaugeMetricFamily("ringfence_brokers_up", "1 = brokers answer.", value=float(up))
        yield GaugeMetricFamily(
            "ringfence_worker_ready",
            "1 = every lane is open, as /health says.",
            value=float(up and self._lanes.ready),
        )
        yield GaugeMetricFamily(
            "ringfence_worker_buffered_bytes",
            "Memory of messages that were fetched and whose transactions have not ended.",
            value=float(self._buffers.used),
        )
        yield GaugeMetricFamily(
            "ringfence_worker_buffer_limit_bytes",
            "Its bound, app.buffer_bytes_max: fetching pauses there.",
            value=float(self._buffers.bytes_max),
        )
        yield from _pace(self._spacing)
        yield from _counters(self._lanes)
        yield from _gauges(self._lanes)
        yield foreign_metric([self._lanes.group_watch])
        yield throttle_metric()


def _pace(spacing: FetchInterval) -> Iterable[Metric]:
    yield GaugeMetricFamily(
        "ringfence_worker_latency_target_seconds",
        "app.latency_target_ms: half of the messages are to be there for readers within so long.",
        value=spacing.target_s,
    )
    yield GaugeMetricFamily(
        "ringfence_worker_batch_seconds",
        "From asking for a batch until readers can have it: half of the last ones took longer.",
        value=spacing.took_s,
    )
    yield GaugeMetricFamily(
        "ringfence_worker_fetch_wait_seconds",
        "How long a broker that was read to its end is left alone now.",
        value=spacing.wait_s,
    )


def _counters(lanes: Lanes) -> Iterable[Metric]:
    messages = CounterMetricFamily(
        "ringfence_messages", "Messages by address and verdict.", labels=["address", "verdict"]
    )
    transactions = CounterMetricFamily(
        "ringfence_transactions",
        "Transactions by the address of their envelope and verdict; each is one of the messages, too.",
        labels=["address", "verdict"],
    )
    parts = CounterMetricFamily(
        "ringfence_parts",
        "Accepted parts of transactions by the address of their envelope and the address that they were accepted for.",
        labels=["address", "accepted_for"],
    )
    others = {
        name: CounterMetricFamily(f"ringfence_{name}", text, labels=["address"])
        for name, text in _COUNTERS.items()
    }
    counts: dict[str, Counter[str]] = lanes.totals()
    for address, value in sorted(counts.items()):
        for verdict in _VERDICTS:
            messages.add_metric([address, verdict], value[verdict])
            transactions.add_metric([address, verdict], value[f"transactions_{verdict}"])
        for name, family in others.items():
            family.add_metric([address], value[name])
    for address, accepted in sorted(lanes.parts().items()):
        for target, count in sorted(accepted.items()):
            parts.add_metric([address, target], count)
    return [messages, transactions, parts, *others.values()]


def _gauges(lanes: Lanes) -> Iterable[Metric]:
    """Of every lane that the group gave us, in whatever state."""
    labels = ["address", "lane"]
    is_open = GaugeMetricFamily("ringfence_lane_open", "1 = the lane is open.", labels=labels)
    states = GaugeMetricFamily(
        "ringfence_lane_state", "1 = the lane is in this state.", labels=[*labels, "state"]
    )
    size = GaugeMetricFamily("ringfence_ring_ids", "Live duplicate IDs of a lane.", labels=labels)
    capacity = GaugeMetricFamily("ringfence_ring_capacity_ids", "Capacity of a lane's ring.", labels=labels)
    covered = GaugeMetricFamily(
        "ringfence_ring_covered_seconds", "Between the oldest and the newest live ID.", labels=labels
    )
    other_rules = GaugeMetricFamily(
        "ringfence_lane_other_rules",
        "1 = the lane is not opened, because its rules are not those of this worker's file; /health names them.",
        labels=labels,
    )
    lag = GaugeMetricFamily(
        "ringfence_lag_records",
        "Input records that are not yet processed; NaN = the cluster does not tell.",
        labels=labels,
    )
    position = GaugeMetricFamily(
        "ringfence_lane_next_offset",
        "First offset of the lane's input that is not yet processed; 0 until the lane was open.",
        labels=labels,
    )
    for lane in lanes.lanes:
        place = (lane.opening.address.input_topic, lane.opening.partition)
        label = lanes.labels(place)
        ring = lane.opening.table.ring
        state, _ = lanes.state_of(lane)
        is_open.add_metric(label, float(state is LaneState.OPEN))
        states.add_metric([*label, state.value], 1)
        size.add_metric(label, len(ring))
        capacity.add_metric(label, ring.capacity)
        other_rules.add_metric(label, float(bool(lane.opening.rules_fault)))
        seconds = lane.seconds_covered()
        if seconds is not None:
            covered.add_metric(label, seconds)
        lag.add_metric(label, _or_nan(lanes.lags.of(place)))
        position.add_metric(label, lane.next)
    for place in lanes.halves:
        label = lanes.labels(place)
        is_open.add_metric(label, 0)
        states.add_metric([*label, LaneState.REFUSED.value], 1)
        lag.add_metric(label, _or_nan(lanes.lags.of(place)))
    faults = GaugeMetricFamily(
        "ringfence_address_faults",
        "Faults of the topics of an address, as /health names them.",
        labels=["address"],
    )
    unlike = GaugeMetricFamily(
        "ringfence_limits_disagreements",
        "Limits of an address (size, age, persistence) on which live workers do not agree, as /health names them.",
        labels=["address"],
    )
    for address in lanes.addresses:
        faults.add_metric([address], len(lanes.faults.by_address.get(address, ())))
        unlike.add_metric([address], len(lanes.agreement.by_address.get(address, ())))
    return [is_open, states, size, capacity, covered, other_rules, lag, position, faults, unlike]


def _or_nan(number: int | None) -> float:
    return math.nan if number is None else number
