"""A consumer's pages: whether it is ready, which groups wait, and what an operator may drop."""

import socket
from typing import Any

import aiohttp
import pytest

from ringfence_client import GroupConsumer, Message, Retry
from ringfence_client.web import web
from ringfence_kafka.config.load import validate
from ringfence_kafka.process import failpoints
from tests.support.consumers.browser import Pages, pages_of
from tests.support.consumers.in_process import Recorder, consuming, numbered
from tests.support.kafka import Sent
from tests.support.lanes import Gate, until

LONG = 50
"""Messages of a group that keeps a small window full."""


async def test_health(bootstrap: str) -> None:
    """A consumer lives before it is ready; it is ready when what it was assigned is open, and says how far it is."""
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


async def test_to_the_dead_letters_up_to_an_offset(bootstrap: str) -> None:
    """What stands from there on is handled as if nobody had asked; what was first when somebody looked is skipped, or nothing is."""

    async def fail(message: Message) -> None:
        if message.value == b"poison":
            raise Retry("poisoned", 3600)

    handler = Recorder(fail)
    async with consuming(bootstrap) as bench:
        bench.send(*[Sent(None, b"a", b"poison")] * 3, *numbered(b"a", 2))
        running = await bench.start(handler)
        async with pages_of(running) as pages:
            await until(lambda: running.consumer.dispatcher.counts["failed"] == 1, lambda: str(handler.begun))
            asked = {"partition": 0, "group": b"a".hex()}
            _, skipped = await pages.post("/groups/skip", {**asked, "head": 1})
            _, answer = await pages.post("/groups/purge", {**asked, "letters": True, "below": 3})

            assert (skipped["gone"], skipped["dropped"]) == (True, 0)
            assert answer["offsets"] == [0, 1, 2]
        await bench.until_next(running, 5)

        assert len(await bench.letters()) == 3
        assert [offset for _, offset in handler.done] == [3, 4]


@pytest.mark.parametrize(
    "body",
    [{}, [], 7, {"partition": 0}, {"partition": "x", "group": "61"}, {"partition": 0, "group": "no hex"},
     {"partition": 0, "group": None}],
    ids=str,
)  # fmt: skip
async def test_bad_request(body: Any) -> None:
    """What cannot be understood is answered with what is wanted; nothing is dropped."""
    listener = socket.create_server(("127.0.0.1", 0))
    settings = validate({"addresses": [{"name": "orders"}]})
    nobody = GroupConsumer(settings, settings.addresses[0], "group", Recorder())  # not even asked
    async with web.serving(nobody, listener), aiohttp.ClientSession() as session:
        pages = Pages(f"http://127.0.0.1:{listener.getsockname()[1]}", session)
        for path in ("/groups/purge", "/groups/skip"):
            status, answer = await pages.post(path, body)

            assert (status, "JSON object" in answer["error"]) == (400, True)


async def test_not_held(bootstrap: str) -> None:
    """A partition that is somewhere else cannot be changed here."""
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
