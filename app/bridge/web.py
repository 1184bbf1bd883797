"""``GET /live``, ``GET /health`` and ``GET /metrics`` of a process of bridges."""

import socket
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from agents.bridge.bridge import Bridge
from app.bridge.metrics import BridgeMetrics
from app.bridge.quarantines import QuarantineMetrics
from ringfence_kafka.http.auth import HttpAuth
from ringfence_kafka.http.server import ProcessMetrics, probe_routes, serving_routes


def serving(
    bridges: Sequence[Bridge], quarantines: QuarantineMetrics, listener: socket.socket, auth: HttpAuth
) -> AbstractAsyncContextManager[None]:
    """Answer on a socket that listens; ``bridges`` may still be empty, while clusters are inspected."""
    routes = probe_routes(lambda: _health(bridges), ProcessMetrics(BridgeMetrics(bridges), quarantines))
    return serving_routes(routes, listener, auth)


def _health(bridges: Sequence[Bridge]) -> dict[str, Any]:
    """Ready when every bridge forwards all partitions that it has; else with bridge, partition and reason."""
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
