"""Web server of workers, consumers and bridges: probe routes, metrics, and the URL for others."""

import json
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.registry import Collector

from ringfence_kafka.http.auth import OPEN, HttpAuth
from ringfence_kafka.page.history import SPANS, History

Health = Callable[[], Mapping[str, Any]]
"""Returns the report of ``/health``; its key ``ready`` decides the HTTP status."""


class ProcessMetrics(CollectorRegistry):
    """Metrics of a process: CPU, memory, files, and the values of the collectors at each query."""

    def __init__(self, *collectors: Collector) -> None:
        super().__init__()
        ProcessCollector(registry=self)
        for collector in collectors:
            self.register(collector)

    def text(self) -> bytes:
        """Return the metrics in Prometheus's text format."""
        return generate_latest(self)


def probe_routes(health: Health, metrics: ProcessMetrics) -> list[web.RouteDef]:
    """Return routes: ``/live`` while the event loop runs, ``/health`` with 503 until ready, ``/metrics`` for Prometheus."""

    async def answer_live(_: web.Request) -> web.Response:
        return web.json_response({"live": True})

    async def answer_health(_: web.Request) -> web.Response:
        report = health()
        return web.json_response(report, status=200 if report["ready"] else 503)

    async def answer_metrics(_: web.Request) -> web.Response:
        return web.Response(body=metrics.text(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    return [
        web.get("/live", answer_live),
        web.get("/health", answer_health),
        web.get("/metrics", answer_metrics),
    ]


def history_route(history: History) -> web.RouteDef:
    """Return the route ``/history?span=hour&of=address&of=orders``: figures of one subject or, without ``of``, of all."""

    async def answer(request: web.Request) -> web.Response:
        span = request.query.get("span", next(iter(SPANS)))
        if span not in SPANS:
            return web.json_response({"error": f"span: one of {', '.join(SPANS)}"}, status=400)
        document = history.document(span, request.query.getall("of", ()))
        return web.Response(text=json.dumps(document, separators=(",", ":")), content_type="application/json")

    return web.get("/history", answer)


@asynccontextmanager
async def serving_routes(
    routes: Iterable[web.AbstractRouteDef], listener: socket.socket, auth: HttpAuth
) -> AsyncIterator[None]:
    """Serve routes on a listening socket."""
    application = web.Application(middlewares=[auth.middleware()])
    application.add_routes(routes)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        await web.SockSite(runner, listener, ssl_context=auth.context).start()
        yield
    finally:
        await runner.cleanup()


def advertised(host: str, port: int, *, name: str = "", auth: HttpAuth = OPEN) -> str:
    """Return the URL of a server that listens here. ``name``: name of this machine for others, if it differs."""
    own = name or (socket.gethostname() if host in {"", "0.0.0.0", "::"} else host)
    scheme = "http" if auth.context is None else "https"
    return f"{scheme}://{f'[{own}]' if ':' in own else own}:{port}"
