"""Answers of a consumer about its groups while handlers run, fail and refuse, on a real broker."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from ringfence_client import Message, Reject, Retry
from tests.support.consumers.browser import Pages, pages_of
from tests.support.consumers.in_process import Recorder, Running, consuming
from tests.support.kafka import Sent
from tests.support.lanes import until
from tests.support.pages import chromium

RETRY_S = 3600
GROUPS = [b"fails", b"<b>parks</b>", b"hangs", b"waits"]
"""Groups of one message each, in the order of their messages."""


@asynccontextmanager
async def in_each_state(bootstrap: str) -> AsyncIterator[tuple[Running, Pages, asyncio.Event]]:
    """Yield a consumer with one handler and a group for each reason to wait, its pages, and what ends the run."""
    free = asyncio.Event()

    async def work(message: Message) -> None:
        match message.group:
            case b"fails":
                raise Retry("<i>no stock</i>", RETRY_S)
            case b"<b>parks</b>":
                raise Reject("unknown article")
            case b"hangs":
                await free.wait()

    async with consuming(bootstrap) as bench:
        bench.send(*[Sent(None, group, b"x") for group in GROUPS], Sent(None, b"fails", b"y"))
        running = await bench.start(Recorder(work), concurrency=1, on_dead_letter="park")
        dispatcher = running.consumer.dispatcher
        await until(
            lambda: dispatcher.running == 1 and dispatcher.counts["dead_letters"] == 1,
            lambda: str(running.handler.begun),
        )
        async with pages_of(running) as pages:
            yield running, pages, free
        free.set()


async def test_reasons(bootstrap: str) -> None:
    """Each group says why its first message waits: it runs, is tried again later, is parked, or waits for a handler."""
    async with in_each_state(bootstrap) as (running, pages, _):
        rows = await pages.groups()
        fails, parks, hangs, waits = (rows[group.decode()] for group in GROUPS)

        assert [row["reason"] for row in (fails, parks, hangs, waits)] == [
            "retry", "parked", "running", "waiting",
        ]  # fmt: skip
        assert [row["head_offset"] for row in rows.values()] == [0, 1, 2, 3]
        assert [row["attempts"] for row in rows.values()] == [1, 1, 1, 0]
        assert fails["depth"] == 2
        left = datetime.fromisoformat(fails["retry_at"]) - datetime.now(UTC)
        assert timedelta(seconds=RETRY_S - 120) < left <= timedelta(seconds=RETRY_S)
        assert 0 <= hangs["running_seconds"] < 120
        assert {row["retry_at"] for row in (parks, hangs, waits)} == {None}
        assert {row["running_seconds"] for row in (fails, parks, waits)} == {None}

        [held] = running.consumer.partitions.values()
        running.consumer.dispatcher.suspend(held)
        rows = await pages.groups()
        running.consumer.dispatcher.resume(held)

        assert [rows[group.decode()]["reason"] for group in GROUPS] == ["lease", "parked", "running", "lease"]


async def test_page(bootstrap: str, tmp_path: Path) -> None:
    """The page shows runs, partitions and failed attempts in a browser, at any width and in both colour schemes, and renews itself."""
    async with in_each_state(bootstrap) as (_, pages, free), chromium.tab(tmp_path) as tab:
        backgrounds = set()
        for width, dark in ((360, False), (360, True), (1280, False), (1280, True)):
            await tab.show_as(width, 900, dark=dark)
            await tab.open(f"{pages.base}/")
            assert await tab.run("document.documentElement.scrollWidth - innerWidth") <= 0, width
            backgrounds.add(await tab.run("getComputedStyle(document.body).backgroundColor"))
        text = await tab.run("document.getElementById('all').innerText")
        free.set()
        await tab.until("document.getElementById('all').innerText.includes('2 finished messages')")

        assert len(backgrounds) == 2
        assert "1 group waits behind a dead letter" in text
        assert "1 of 1 handlers run" in text
        assert "0/2\thangs\t" in text
        assert "<i>no stock</i>" in text
        assert "0 finished messages, 1 failed attempt, 0 releases, 1 dead letter." in text
        assert await tab.run("document.querySelectorAll('#all i').length") == 0
        assert not await tab.run("document.getElementById('pause').hidden")
        assert [complaint for complaint in tab.complaints if "favicon" not in complaint] == []
