"""The web server of a worker: pages, ``/status`` and probe routes, on Faust's server."""

from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

from aiohttp import web
from faust.web.drivers.aiohttp import Web as AiohttpWeb

from app.worker import run_report
from app.worker.parts import WorkerParts
from ringfence_kafka.aiokafka_patches.throttling import THROTTLED
from ringfence_kafka.http.server import history_route, probe_routes
from ringfence_kafka.page import HEADERS


class StatusWeb(AiohttpWeb):  # type: ignore[misc]
    """Faust's web server without its own pages, which would expose more than the operator configured."""

    default_blueprints: ClassVar[list[Any]] = []
    production_blueprints: ClassVar[list[Any]] = []
    debug_blueprints: ClassVar[list[Any]] = []
    optional_blueprints: ClassVar[list[Any]] = []

    def register(self, parts: WorkerParts) -> None:
        """Add the worker's pages, behind its authentication."""

        async def answer_page(_: web.Request) -> web.Response:
            return _page(await parts.page.html(parts.lanes.health.report()))

        async def answer_report(request: web.Request) -> web.StreamResponse:
            found = run_report.place(parts.settings, int(request.match_info["run"]))
            return _page(None) if found is None else web.FileResponse(found, headers=run_report.HEADERS)

        async def answer_status(_: web.Request) -> web.Response:
            return web.json_response(await parts.page.document())

        self.web_app.middlewares.append(parts.auth.middleware())
        self.web_app.add_routes(
            [
                web.get("/", answer_page),
                _page_route("/address/{address}", parts.page.address),
                _page_route("/consumers/{group}/{address}", parts.page.consumers),
                _page_route("/dead-letters/{group}/{address}", parts.page.letters),
                _page_route(
                    r"/dead-letters/{group}/{address}/{partition:\d{1,9}}/{offset:\d{1,18}}",
                    parts.page.letter,
                ),
                web.get(r"/report/{run:\d{1,9}}", answer_report),
                web.get("/status", answer_status),
                history_route(parts.history),
                *probe_routes(lambda: _health(parts), parts.metrics),
            ]
        )


def _page(text: str | None) -> web.Response:
    """Return a response with a page, or a redirect to the overview if there is none."""
    if text is None:
        return web.Response(status=303, headers={"Location": "/"})
    return web.Response(text=text, content_type="text/html", headers=HEADERS)


def _page_route(path: str, page: Callable[..., Awaitable[str | None]]) -> web.RouteDef:
    """Return a route to a page, which takes the variable parts of the path by name."""

    async def answer(request: web.Request) -> web.Response:
        return _page(await page(**request.match_info))

    return web.get(path, answer)


def _health(parts: WorkerParts) -> dict[str, Any]:
    """Return the health: ready if the broker answers and all lanes of a first assignment are open."""
    lanes, away, buffers = parts.lanes, parts.broker_watch.away, parts.buffers
    report: dict[str, Any] = {
        "ready": lanes.health.ready and not away,
        "instance": parts.settings.app.instance_name,
        "broker": "away" if away else "answers",
        "lanes": lanes.health.report(),
        "memory": {"buffered_bytes": buffers.used, "limit_bytes": buffers.bytes_max},
        "pace": parts.interval.report(),
    }
    only_if_any = {
        "unreadable": lanes.health.unreadable,
        "foreign_members": lanes.health.foreign,
        "state_folder": lanes.state_folder.fault,
        "lanes_in_memory": lanes.health.in_memory,
        "unassigned": lanes.health.unassigned,
        "throttled": THROTTLED.recent(),
        "faults": lanes.faults.by_address,
        "limits": lanes.agreement.by_address,
    }
    return report | {key: value for key, value in only_if_any.items() if value}
