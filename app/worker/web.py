"""The page, ``GET /status``, ``/live``, ``/health`` and ``/metrics``, on Faust's web server."""

from typing import Any, ClassVar

import faust
from faust.web import Request, Response, View
from faust.web.drivers.aiohttp import Web as AiohttpWeb
from prometheus_client import CONTENT_TYPE_LATEST

from agents.worker.lanes import Lanes
from app.commands.status.page import HEADERS
from app.worker.fetch.buffers import Buffers
from app.worker.fetch.fetch_interval import FetchInterval
from app.worker.metrics import Metrics
from app.worker.page import Looks
from ringfence_kafka.aiokafka_patches.throttling import THROTTLED
from ringfence_kafka.concurrency.broker_watch import BrokerWatch


class StatusWeb(AiohttpWeb):  # type: ignore[misc]
    """Faust's web server without its own pages: they show and route more than an operator asked for."""

    default_blueprints: ClassVar[list[Any]] = []
    production_blueprints: ClassVar[list[Any]] = []
    debug_blueprints: ClassVar[list[Any]] = []
    optional_blueprints: ClassVar[list[Any]] = []


def register(
    app: faust.App,
    lanes: Lanes,
    watch: BrokerWatch,
    metrics: Metrics,
    looks: Looks,
    instance: str,
    buffers: Buffers,
    spacing: FetchInterval,
) -> None:
    """Add the pages to the app's web server; ``instance``: the worker's name."""

    async def live(view: View, request: Request) -> Response:
        """Answers while the event loop turns."""
        return view.json({"live": True})

    async def health(view: View, request: Request) -> Response:
        """503 until the first assignment is complete, every assigned lane is open and the broker answers."""
        ready = lanes.ready and not watch.away
        report: dict[str, Any] = {
            "ready": ready,
            "instance": instance,
            "broker": "away" if watch.away else "answers",
            "lanes": lanes.report(),
            "memory": {"buffered_bytes": buffers.used, "limit_bytes": buffers.bytes_max},
            "pace": spacing.report(),
        }
        where_any = {
            "unreadable": lanes.unreadable,
            "foreign_members": lanes.foreign,
            "state_folder": lanes.state_folder.fault,
            "lanes_in_memory": lanes.in_memory,
            "unassigned": lanes.unassigned,
            "throttled": THROTTLED.recent(),
            "faults": lanes.faults.by_address,
            "limits": lanes.agreement.by_address,
        }
        report |= {key: value for key, value in where_any.items() if value}
        return view.json(report, status=200 if ready else 503)

    async def exposition(view: View, request: Request) -> Response:
        """For Prometheus."""
        return view.bytes(metrics.text(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def page(view: View, request: Request) -> Response:
        """For people."""
        return view.html(await looks.html(lanes.report()), headers=dict(HEADERS))

    async def status(view: View, request: Request) -> Response:
        """The same for programs."""
        return view.json(await looks.document())

    app.page("/", name="page")(page)
    app.page("/status", name="status")(status)
    app.page("/live", name="live")(live)
    app.page("/metrics", name="metrics")(exposition)
    app.page("/health", name="health")(health)
