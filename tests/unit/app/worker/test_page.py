"""The worker's page: it says what the verb says, to people and to keyboards, on any screen; and forbids itself everything else."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from unittest.mock import AsyncMock

from aiohttp import web

from app.commands.status import page
from app.commands.status.findings import findings
from app.commands.status.model import Status
from app.worker.page import StatusPage
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.errors import BrokerUnavailableError
from ringfence_kafka.page import HEADERS
from tests.support.pages.chromium import Tab, tab
from tests.support.statuses import STATUS, with_lanes, with_share

BAD = with_share(
    lag=5, failing_group="<script>alert(1)</script>", failing_attempts=4, failing_seconds=99.0, hot_group="a", hot_depth=4
)  # fmt: skip


def _html(status: Status) -> str:
    return page.render(status, findings(status), "w1", {})


def test_says_what_the_verb_says() -> None:
    """The page shows the verdict, every finding with its command, and every address, lane, group, bridge and worker.

    Without an answer of the brokers it reports that, and shows this worker's own lanes.
    """
    html = _html(replace(BAD, addresses=with_lanes(state="refused", reason="it has 3 partitions").addresses))
    places = ("/address/orders", "/consumers/billing/orders", "billing at orders", "west", "http://w1:6066")

    assert "2 things to act on" in html
    assert "<title>(2) Ringfence shop</title>" in html
    for text in ("it has 3 partitions", "ringfence topics check</code>", "10.0 %", *places):
        assert text in html
    assert "ok: nothing to act on" in _html(STATUS)
    own = {"orders-0": {"state": "retrying", "reason": "no <leader>"}, "orders-1": {"state": "open"}}
    away = page.render(None, [], "w1", own, "nobody answers")
    assert all(text in away for text in ("nobody answers", "no &lt;leader&gt;", "orders-1"))
    assert re.findall(r"(?:src|href)=\"(?!#|/|http://w1:6066/)[^\"]*", _html(STATUS)) == []
    assert HEADERS["Content-Security-Policy"].startswith("default-src 'none'")


async def test_looks_are_shared() -> None:
    """Simultaneous viewers of the page cause one question to the cluster."""
    asked = []

    async def ask(_: Settings) -> Status:
        asked.append(1)
        await asyncio.sleep(0)
        return STATUS

    refuse = AsyncMock(side_effect=BrokerUnavailableError("no broker answers at kafka:9092"))
    seen, refused = StatusPage(Settings(), ask), StatusPage(Settings(), refuse)
    pages = await asyncio.gather(*(seen.html({}) for _ in range(5)))

    assert len(set(pages)) == len(asked) == 1
    assert (await seen.document())["ok"] is True
    assert await refused.document() == {"ok": False, "error": "no broker answers at kafka:9092"}
    assert "no broker answers" in await refused.html({})


@asynccontextmanager
async def served(shown: list[str]) -> AsyncIterator[str]:
    """Yield a server of the first of these documents; with none it refuses."""

    async def answer(_: web.Request) -> web.Response:
        if not shown:
            raise web.HTTPServiceUnavailable
        return web.Response(text=shown[0], content_type="text/html", headers=HEADERS)

    application = web.Application()
    application.add_routes([web.get("/", answer)])
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/"
    finally:
        await runner.cleanup()


async def overflow(shown: Tab) -> int:
    """By how many pixels it is wider than the screen."""
    return int(await shown.run("document.documentElement.scrollWidth - innerWidth"))


async def test_in_a_browser(tmp_path: Path) -> None:
    """The page has both colour schemes, is usable by keyboard, and keeps its position on refresh."""
    documents = [_html(BAD)]
    async with served(documents) as url, tab(tmp_path) as shown:
        backgrounds = set()
        for width, dark in ((320, False), (768, True), (1920, False)):
            await shown.show_as(width, 900, dark=dark)
            await shown.open(url)
            backgrounds.add(await shown.run("getComputedStyle(document.body).backgroundColor"))
            lines = "[...document.querySelectorAll('code span')].map((each) => each.getClientRects().length)"
            assert set(await shown.run(lines)) == {1}, "an option of a command is in two lines"
        assert len(backgrounds) == 2
        assert await shown.run("!document.getElementById('pause').hidden")  # its script may run

        focused = []
        for _ in range(5):
            await shown.press("Tab", 9)
            focused.append(await shown.run("document.activeElement.id || document.activeElement.className"))
        assert focused == ["skip", "pause", "do-1", "address-orders", "consumers-billing-orders"]
        await shown.run("document.getElementById('address-orders').focus()")

        documents[:] = [_html(STATUS)]
        await shown.run("refresh()")
        assert await shown.run("document.querySelector('.verdict').textContent") == "ok: nothing to act on"
        assert await shown.run("document.activeElement.id") == "address-orders"

        documents.clear()
        await shown.run("refresh()")
        assert "has not answered since" in await shown.run("document.getElementById('stale').textContent")
        assert not await shown.run("document.getElementById('stale').hidden")
