"""``GET /live``, ``GET /health`` and ``GET /metrics`` of a process of bridges."""

import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from agents.bridge.bridge import Bridge
from app.bridge.metrics import BridgeMetrics
from ringfence_kafka.http.auth import OPEN, HttpAuth


@asynccontextmanager
async def serving(
    bridges: Sequence[Bridge], listener: socket.socket, guard: HttpAuth = OPEN
) -> AsyncIterator[None]:
    """Answer on a socket that listens; ``bridges`` may still be empty, until it was looked around."""
    application = guard.application()
    pages = _Pages(bridges)
    application.add_routes(
        [
            web.get("/live", pages.live),
            web.get("/health", pages.health),
            web.get("/metrics", pages.metrics),
        ]
    )
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        await web.SockSite(runner, listener, ssl_context=guard.context).start()
        yield
    finally:
        await runner.cleanup()


class _Pages:
    def __init__(self, bridges: Sequence[Bridge]) -> None:
        self._bridges = bridges
        self._metrics = BridgeMetrics(bridges)

    async def live(self, _request: web.Request) -> web.Response:
        """Answers while the event loop turns."""
        return web.json_response({"live": True})

    async def health(self, _request: web.Request) -> web.Response:
        """503 until every bridge forwards all partitions that it has; names bridge, partition and reason."""
        ready = bool(self._bridges) and all(bridge.state.ready for bridge in self._bridges)
        report = {
            "ready": ready,
            "reason": None if self._bridges else "looking around: clusters, topics and rights",
            "bridges": {
                bridge.plan.name: {
                    "ready": bridge.state.ready,
                    "partitions": {
                        str(number): {"confirmed": place.confirmed, "lag": bridge.state.lags.get(number)}
                        for number, place in sorted(bridge.window.places.items())
                    },
                    "reasons": bridge.state.reasons,
                }
                for bridge in self._bridges
            },
        }
        return web.json_response(report, status=200 if ready else 503)

    async def metrics(self, _request: web.Request) -> web.Response:
        """For Prometheus."""
        return web.Response(body=self._metrics.text(), headers={"Content-Type": CONTENT_TYPE_LATEST})
