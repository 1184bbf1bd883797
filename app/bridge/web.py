"""``GET /live``, ``GET /health`` and ``GET /metrics`` of a bridge process."""

import math
import socket
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from agents.bridge.bridge import Bridge
from app.bridge.quarantines import QuarantineMetrics
from ringfence_client.consumer.foreign_members import foreign_metric
from ringfence_kafka.aiokafka_patches.throttling import throttle_metric
from ringfence_kafka.http.auth import HttpAuth
from ringfence_kafka.http.server import ProcessMetrics, probe_routes, serving_routes

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


def serving(
    bridges: Sequence[Bridge], quarantines: QuarantineMetrics, listener: socket.socket, auth: HttpAuth
) -> AbstractAsyncContextManager[None]:
    """Serve on a listening socket. ``bridges`` may still be empty, while clusters are checked."""
    routes = probe_routes(lambda: _health(bridges), ProcessMetrics(BridgeMetrics(bridges), quarantines))
    return serving_routes(routes, listener, auth)


def _health(bridges: Sequence[Bridge]) -> dict[str, Any]:
    """Return the health: ready if every bridge forwards all of its partitions, else with reasons."""
    return {
        "ready": bool(bridges) and all(bridge.state.ready for bridge in bridges),
        "reason": None if bridges else "checking clusters, topics and rights",
        "bridges": {
            bridge.plan.name: {
                "ready": bridge.state.ready,
                "partitions": {
                    str(number): {"confirmed": place.confirmed, "lag": bridge.state.lags.get(number)}
                    for number, place in sorted(bridge.window.places.items())
                },
                "reasons": bridge.state.reasons,
            }
            for bridge in bridges
        },
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
        lag, unconfirmed, up = (
            GaugeMetricFamily(f"ringfence_bridge_{name}", text, labels=labels)
            for name, text, labels in (
                ("lag_records", "Offsets of the source that are not confirmed; NaN = unknown.", _LABELS),
                ("unconfirmed_records", "Messages that are read and not confirmed.", _LABELS),
                ("ready", "1 = all assigned partitions are forwarded.", ["bridge"]),
            )
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
