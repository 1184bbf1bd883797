"""``GET /live``, ``GET /health`` and ``GET /metrics`` of a bridge process."""

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
