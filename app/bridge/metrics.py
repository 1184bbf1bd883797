"""``GET /metrics`` of a bridge process: values are read at each request."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from agents.bridge.bridge import Bridge
from ringfence_client.consumer.foreign_members import foreign_metric
from ringfence_kafka.aiokafka_patches.throttling import throttle_metric

_LABELS: Final = ("bridge", "partition")
_COUNTERS: Final = {
    "forwarded": "Messages that the target acknowledged, first sends and retries.",
    "retried": "Messages that were sent again after a failure; the target's lane discards those that had "
    "arrived.",
    "filtered": "Messages that the filter of the bridge excludes.",
    "returned": "Messages that were already at the target or here, because bridges form a cycle; `returns` "
    "decides what happens to them.",
    "quarantined": "Messages that the target refuses permanently.",
    "gap_records": "Offsets that retention deleted at the source before they were forwarded.",
}


class BridgeMetrics(Collector):
    """Counts of a process's bridges, kept over assignments because Prometheus counters must not fall."""

    def __init__(self, bridges: Sequence[Bridge]) -> None:
        self._bridges = bridges

    def collect(self) -> Iterator[Metric]:
        """Read the counts."""
        for name, text in _COUNTERS.items():
            family = CounterMetricFamily(f"ringfence_bridge_{name}", text, labels=_LABELS)
            for bridge in self._bridges:
                shown = set(bridge.state.totals) | set(bridge.state.partitions)
                for number in sorted(shown):
                    counted = bridge.state.totals.get(number, Counter())
                    family.add_metric([bridge.plan.name, str(number)], counted.get(name, 0))
            yield family
        lag = GaugeMetricFamily(
            "ringfence_bridge_lag_records",
            "Offsets of the source that are not confirmed; NaN = unknown.",
            labels=_LABELS,
        )
        unconfirmed = GaugeMetricFamily(
            "ringfence_bridge_unconfirmed_records",
            "Messages that are read and not confirmed.",
            labels=_LABELS,
        )
        up = GaugeMetricFamily(
            "ringfence_bridge_ready", "1 = all assigned partitions are forwarded.", labels=["bridge"]
        )
        for bridge in self._bridges:
            up.add_metric([bridge.plan.name], float(bridge.state.ready))
            for number in sorted({*bridge.state.lags, *bridge.window.places}):
                # NaN if the cluster does not report the lag
                lag.add_metric([bridge.plan.name, str(number)], bridge.state.lags.get(number, math.nan))
            for number, place in sorted(bridge.window.places.items()):
                unconfirmed.add_metric([bridge.plan.name, str(number)], place.next - place.confirmed)
        yield from (lag, unconfirmed, up)
        yield foreign_metric([bridge.group_watch for bridge in self._bridges])
        yield throttle_metric()
