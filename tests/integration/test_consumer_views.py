"""Views of consumers: the pages of one consumer, and ``consumers show``."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from ringfence_client import GroupConsumer, Message, Reject, Retry
from ringfence_client.web import web
from ringfence_kafka.config.load import validate
from ringfence_kafka.process import failpoints
from tests.support import kafka
from tests.support.consumers.browser import Pages, pages_of
from tests.support.consumers.in_process import Recorder, Running, consuming, numbered
from tests.support.consumers.processes import ConsumerProcess
from tests.support.kafka import Sent
from tests.support.lanes import Gate, until
from tests.support.pages import chromium
from tests.support.worker import configure, run_verb, wait_for


async def test_health(bootstrap: str) -> None:
    """A consumer lives before it is ready; it is ready when its assigned partitions are open, and reports its progress."""
    gate = Gate()
    handler = Recorder()
    async with consuming(bootstrap) as bench:
        bench.send(*numbered(b"group", 3))
        remove = failpoints.install("before-send", bench.lease_name(), gate)
        running = bench.launch(handler)
        async with pages_of(running) as pages:
            try:
                await gate.wait()

                assert await pages.get("/live") == (200, {"live": True})
                assert (await pages.get("/health"))[0] == 503
            finally:
                gate.open()
                remove()
            await running.ready()
            await bench.until_next(running, 3)
            status, report = await pages.get("/health")

            assert status == 200
            assert report["partitions"] == {"0": {"next": 3, "fence": 1, "undone": 0, "kept": 0, "parked": 0}}
            assert (report["consumer_group"], report["address"]) == (bench.group, bench.name)
            assert (report["counts"], report["waiting"]) == ({"finished": 3, "gap_records": 0}, {})
            assert report["broker"] == "answers"


@pytest.mark.parametrize(
    "body",
    [[], {"partition": 0}, {"partition": "x", "group": "61"}, {"partition": 0, "group": "no hex"}],
    ids=str,
)
async def test_bad_request(body: Any) -> None:
    """A request that cannot be parsed is answered with the expected form; nothing is dropped."""
    listener = socket.create_server(("127.0.0.1", 0))
    settings = validate({"addresses": [{"name": "orders"}]})
    nobody = GroupConsumer(settings, settings.addresses[0], "group", Recorder())  # not even asked
    async with web.serving(nobody, listener), aiohttp.ClientSession() as session:
        pages = Pages(f"http://127.0.0.1:{listener.getsockname()[1]}", session)
        for path in ("/groups/purge", "/groups/skip"):
            status, answer = await pages.post(path, body)

            assert (status, "JSON object" in answer["error"]) == (400, True)


async def test_not_held(bootstrap: str) -> None:
    """A partition that is held elsewhere cannot be changed here."""
    async with consuming(bootstrap) as bench:
        running = await bench.start(Recorder())
        async with pages_of(running) as pages:
            status, answer = await pages.post("/groups/purge", {"partition": 7, "group": ""})

            assert (status, answer) == (409, {"error": "partition 7 is not held here"})

            meant = {"consumer_group": "other", "topic": bench.accepted, "partition": 0, "group": ""}
            status, answer = await pages.post("/groups/skip", meant)

            assert (status, answer) == (
                409,
                {"error": f"this is a consumer of {bench.group} at {bench.accepted}"},
            )


PARTITIONS = 2


class Scene:
    """An address of two partitions, and in each a message that no handler ever finishes."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self.bootstrap = bootstrap
        self.name = kafka.unique("leases")
        self.group = f"{self.name}-group"
        self.config = configure(folder, bootstrap, self.name, [{"name": self.name, "partitions": PARTITIONS}])
        for partition in range(PARTITIONS):
            kafka.send(
                bootstrap, f"{self.name}.accepted", [Sent(None, b"fine", b"x"), Sent(None, b"held", b"x")], partition
            )  # fmt: skip

    def verb(self, *arguments: str, code: int = 0) -> str:
        done = run_verb("consumers", "show", *arguments, "--config", str(self.config), check=False)
        assert done.returncode == code, f"{done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout + (done.stderr if code else "")

    def rows(self, *arguments: str, code: int = 0) -> list[dict[str, Any]]:
        done = run_verb("consumers", "show", *arguments, "--json", "--config", str(self.config), check=False)
        assert done.returncode == code, f"{done.returncode}\n{done.stdout}{done.stderr}"
        return list(json.loads(done.stdout)["partitions"])


def _all(scene: Scene, **wanted: object) -> bool:
    return all(wanted.items() <= row.items() for row in scene.rows())


def test_released_and_unknown(bootstrap: str, tmp_path: Path) -> None:
    """A partition is released and has no holder after a stop in order; an unknown group is exit code 1, with the remedy."""
    scene = Scene(bootstrap, tmp_path)
    nothing = scene.verb()
    unknown = scene.verb(scene.name, "--consumer-group", "nobody", code=1)
    elsewhere = scene.verb("no-such-address", code=2)
    with ConsumerProcess(scene.config, "c", scene.name, scene.group) as process:
        process.wait_ready()
        wait_for(lambda: _all(scene, acknowledged=2), process.log)
        assert process.stop() == 0
    rows = scene.rows(scene.name, "--consumer-group", scene.group)

    assert "no consumer has had a partition yet" in nothing
    assert "without --consumer-group all groups are shown" in unknown
    assert f"the configuration has {scene.name}" in elsewhere
    assert [(row["state"], row["holder_is_member"], row["waits"], row["lag"]) for row in rows] == [
        ("released", None, None, 0)
    ] * PARTITIONS


def test_unreadable_record(bootstrap: str, tmp_path: Path) -> None:
    """A record of another version is a row that reports it, beside the others; exit code 1."""
    scene = Scene(bootstrap, tmp_path)
    key = json.dumps([scene.group, f"{scene.name}.accepted", 1], separators=(",", ":")).encode()
    kafka.create_topics(bootstrap, {f"{scene.name}-progress": (1, {"cleanup.policy": "compact"})})
    kafka.send(bootstrap, f"{scene.name}-progress", [Sent(None, key, b'{"format": 1, "next": 5}')], 0)
    rows = scene.rows(code=1)
    text = scene.verb(code=1)

    assert [row["state"] for row in rows] == ["none", "unreadable"]
    assert "run the version that wrote it" in rows[1]["fault"]
    assert f"{scene.name}.accepted/1" in text


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
