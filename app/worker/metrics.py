"""``GET /metrics`` of a worker: values are read from its lanes at each request."""

import contextlib
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from aiokafka.errors import GroupAuthorizationFailedError, KafkaError
from prometheus_client import Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from agents.lane.assignment import LaneKey
from agents.lane.lane import Lane, LaneState
from agents.worker.lanes import Lanes
from app.worker.fetch.buffers import Buffers
from app.worker.fetch.fetch_interval import FetchInterval
from ringfence_client.consumer.foreign_members import foreign_metric
from ringfence_client.progress.open_records import OpenRecordWatch
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.admin.last_run import last_run
from ringfence_kafka.aiokafka_patches.throttling import throttle_metric
from ringfence_kafka.concurrency.broker_watch import BrokerWatch
from ringfence_kafka.config.settings import AddressSettings, Settings
from ringfence_kafka.protocol.run_result import RunResult

_COUNTERS: Final = {
    "bridge_duplicates": "Duplicates that their bridge had sent before; their own IDs were not checked.",
    "observed_duplicates": "Duplicates that passed because their address only observes.",
    "conflicts": "Messages whose ID was known with another value.",
    "forwarded": "Records that arrived outside their home partition.",
    "quarantined": "Records that were quarantined.",
    "fenced": "Times a lane lost its transactional ID to another owner.",
    "retries": "Times a lane opened again after a failure.",
    "transactions_quarantined": "Envelopes that were quarantined, each with all its parts.",
    "coverage_broken": "IDs that left a full ring while they were younger than id_min_age.",
    "gap_records": "Input records that retention deleted before they were processed.",
}
_VERDICTS: Final = ("accepted", "duplicates", "unchecked")
_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_PARTS: Final = (1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000)
"""Bucket bounds; an envelope has at most 10,000 parts."""


class BatchMetrics(Collector):
    """Durations of batches, and numbers of parts in transactions."""

    def __init__(self) -> None:
        self._seconds = Histogram(
            "ringfence_batch_seconds",
            "Time from the verdicts of a batch to its written state.",
            ["address"],
            registry=None,
            buckets=_SECONDS,
        )
        self._sizes: dict[str, Counter[int]] = {}
        """Address → parts of a transaction → number of transactions. Buckets are computed at each request."""

    def observe(self, address: str, seconds: float, parts: Sequence[int] = ()) -> None:
        """Count a batch of an address: its duration, and the ``parts`` of each accepted envelope."""
        self._seconds.labels(address).observe(seconds)
        if parts:
            self._sizes.setdefault(address, Counter()).update(parts)

    def collect(self) -> Iterator[Metric]:
        """Read the counts."""
        yield from self._seconds.collect()
        family = HistogramMetricFamily(
            "ringfence_transaction_parts",
            "Parts of an accepted transaction, by the address of its envelope.",
            labels=["address"],
        )
        for address, counted in sorted(self._sizes.items()):
            sizes = dict(counted)
            buckets = [
                (bound, float(sum(n for size, n in sizes.items() if size <= float(bound))))
                for bound in (*map(str, map(float, _PARTS)), "+Inf")
            ]
            family.add_metric([address], buckets, sum(size * n for size, n in sizes.items()))
        yield family


class LaneMetrics(Collector):
    """Counts of a worker's lanes, kept over assignments because Prometheus counters must not fall."""

    def __init__(self, lanes: Lanes, watch: BrokerWatch, buffers: Buffers, interval: FetchInterval) -> None:
        self._lanes = lanes
        self._watch = watch
        self._buffers = buffers
        self._interval = interval

    def collect(self) -> Iterator[Metric]:
        """Read the counts."""
        up = not self._watch.away
        for name, text, value in (
            ("brokers_up", "1 = brokers answer.", up),
            ("worker_ready", "1 = every lane is open, as /health says.", up and self._lanes.health.ready),
            ("worker_buffered_bytes", "Memory of messages that were fetched and whose transactions have not ended.", self._buffers.used),
            ("worker_buffer_limit_bytes", "Limit of that memory, app.buffer_bytes_max; fetching pauses there.", self._buffers.bytes_max),
            ("worker_latency_target_seconds", "Time within which half of the messages should reach readers (app.latency_target_ms).", self._interval.target_s),
            ("worker_batch_seconds", "Median time of the last batches, from their fetch until readers can read them.", self._interval.took_s),
            ("worker_fetch_wait_seconds", "Pause before a broker that was read to its end is asked again.", self._interval.wait_s),
        ):  # fmt: skip
            yield GaugeMetricFamily(f"ringfence_{name}", text, value=float(value))
        yield from _counters(self._lanes)
        yield from _lane_gauges(self._lanes)
        yield from _address_gauges(self._lanes)
        yield foreign_metric([self._lanes.group_watch])
        yield throttle_metric()


def _counters(lanes: Lanes) -> Iterable[Metric]:
    messages, transactions, parts = (
        CounterMetricFamily(f"ringfence_{name}", text, labels=["address", label])
        for name, label, text in (
            ("messages", "verdict", "Messages by address and verdict."),
            ("transactions", "verdict", "Transactions by the address of their envelope and verdict; each also counts as a message."),
            ("parts", "accepted_for", "Accepted parts of transactions by the address of their envelope and the address that they were accepted for."),
        )
    )  # fmt: skip
    others = {
        name: CounterMetricFamily(f"ringfence_{name}", text, labels=["address"])
        for name, text in _COUNTERS.items()
    }
    counts = lanes.counts()
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


_LANE_GAUGES: Final = {
    "lane_open": "1 = the lane is open.",
    "lane_state": "1 = the lane is in this state.",
    "ring_ids": "Live duplicate IDs of a lane.",
    "ring_capacity_ids": "Capacity of a lane's ring.",
    "lane_other_rules": "1 = the lane is not opened, because its rules differ from this worker's file; /health names "
    "them.",
    "ring_covered_seconds": "Time between the oldest and the newest live ID.",
    "forwarded_share": "Share of the last 1,000 records or more that arrived outside their home partition.",
    "frequent_id_share": "Share of the duplicates of the last hour that have one ID; 0 = no ID has more than a tenth.",
    "lag_records": "Input records that are not yet processed; NaN = unknown.",
    "lane_next_offset": "First offset of the lane's input that is not yet processed; 0 before the lane first opened.",
}


def _lane_gauges(lanes: Lanes) -> Iterable[Metric]:
    """Gauges of every lane that the group assigned to this worker, in any state."""
    families = {
        name: GaugeMetricFamily(
            f"ringfence_{name}",
            text,
            labels=["address", "lane", *(["state"] if name == "lane_state" else [])],
        )
        for name, text in _LANE_GAUGES.items()
    }

    def add(key: LaneKey, **values: float | None) -> None:
        for name, value in values.items():
            if value is not None:
                families[name].add_metric(lanes.health.labels(key), value)

    def add_state(key: LaneKey, state: LaneState) -> None:
        lag = lanes.lags.lag(key)
        add(key, lane_open=float(state is LaneState.OPEN), lag_records=math.nan if lag is None else lag)
        families["lane_state"].add_metric([*lanes.health.labels(key), state.value], 1)

    for lane in lanes.lanes:
        key = lane.key
        ring = lane.opening.table.ring
        add_state(key, lanes.health.state_of(lane)[0])
        add(
            key,
            ring_ids=len(ring),
            ring_capacity_ids=ring.capacity,
            lane_other_rules=float(bool(lane.opening.rules_fault)),
            ring_covered_seconds=lane.seconds_covered(),
            forwarded_share=lane.transactions.outcomes.forwarding.share,
            frequent_id_share=frequent.share
            if (frequent := lane.transactions.outcomes.frequent_ids.most)
            else 0.0,
            lane_next_offset=lane.next,
        )
    for key in lanes.health.halves:
        add_state(key, LaneState.REFUSED)
    return families.values()


def _address_gauges(lanes: Lanes) -> Iterable[Metric]:
    for name, text, by_address in (
        ("address_faults", "Problems with the topics of an address; /health names them.", lanes.faults.by_address),
        ("limits_disagreements", "Limits of an address (size, age, persistence) on which live workers do not agree; /health names them.", lanes.agreement.by_address),
    ):  # fmt: skip
        family = GaugeMetricFamily(f"ringfence_{name}", text, labels=["address"])
        for address in lanes.health.addresses:
            family.add_metric([address], len(by_address.get(address, ())))
        yield family


_FAMILIES: Final = {
    "quarantine_open_records": "Open quarantined records, from the worker with the address's first lane; NaN = unknown.",
    "quarantine_oldest_seconds": "Age of the oldest open record; 0 = none is open.",
}


class RepairWatch(Collector):
    """Metrics of quarantines and runs. Only the worker with an address's first lane counts its quarantine."""

    def __init__(self, settings: Settings, cluster: Cluster, lanes: Callable[[], Iterable[Lane]]) -> None:
        """Take ``lanes``, a function that returns the lanes of this worker."""
        self._app_id = settings.app.id
        self._cluster = cluster
        self._lanes = lanes
        self._records = OpenRecordWatch(settings.app.id, cluster)
        self._run: RunResult | None = None
        self._asked = False
        """Whether the cluster has answered the question for the last run."""

    async def refresh(self) -> None:
        """Ask the cluster."""
        await self._records.refresh(sorted({address.quarantine_topic for address in self._addresses()}))
        with contextlib.suppress(KafkaError, OSError, TimeoutError):
            # keep the last answer: brokers delete the group's offsets after a week without a run
            self._run = await self._last_run() or self._run
            self._asked = True

    async def _last_run(self) -> RunResult | None:
        with contextlib.suppress(GroupAuthorizationFailedError):
            return await last_run(self._cluster.connection, self._app_id)
        return None

    def _addresses(self) -> list[AddressSettings]:
        return [lane.opening.address for lane in self._lanes() if not lane.opening.number]

    def collect(self) -> Iterator[Metric]:
        """Return the result of the last look."""
        families = {
            name: GaugeMetricFamily(f"ringfence_{name}", text, labels=["address"])
            for name, text in _FAMILIES.items()
        }
        count, oldest = families.values()
        for address in self._addresses():
            records = self._records.open_records(address.quarantine_topic)
            known = self._records.knows(address.quarantine_topic)
            count.add_metric([address.name], records.count if records else 0 if known else math.nan)
            oldest.add_metric([address.name], records.oldest_seconds if records else 0)
        yield from families.values()
        ok = GaugeMetricFamily(
            "ringfence_run_ok", "1 = the last reconciliation run was clean or is acknowledged."
        )
        age = GaugeMetricFamily(
            "ringfence_run_age_seconds",
            "Time since the last reconciliation run ended; +Inf = no run is known, or this worker may not see it.",
        )
        if (run := self._run) is not None:
            ok.add_metric([], float(run.ok))
            age.add_metric([], max(0.0, time.time() - run.ended_ms / 1000))
        elif self._asked:
            age.add_metric([], math.inf)
        yield from (ok, age)
