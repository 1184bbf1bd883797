"""A consumer's pages: whether it is ready, which groups wait, and what an operator may drop."""

import asyncio
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


async def test_purged_before_it_is_fetched(bootstrap: str) -> None:
    """A purge drops a blocked message also where its holder has not come to it yet; a redrive after that has it done, and nothing else of it."""
    free = asyncio.Event()
    refuses = True

    async def work(message: Message) -> None:
        if message.group == b"long":
            await free.wait()
        elif refuses:
            message.reject("not yet")

    handler = Recorder(work)
    async with consuming(bootstrap) as bench:
        bench.send(*numbered(b"long", LONG), *numbered(b"a", 3), *numbered(b"b", 2))
        head, other = LONG, LONG + 3
        running = await bench.start(handler, on_dead_letter="park", drain_timeout=0.2)
        await until(
            lambda: running.consumer.partitions[0].window.blocked == {head, other}, lambda: str(handler.begun)
        )
        await running.stop()
        refuses = False
        begun = len(handler.begun)
        # All that it keeps is of the group that its handler has: it fetches no further.
        running = await bench.start(handler, concurrency=1, records_max=LONG // 5)
        window = running.consumer.partitions[0].window
        async with pages_of(running) as pages:
            await until(lambda: len(handler.begun) > begun, lambda: str(handler.begun))
            identity = running.consumer.partitions[0].lease.topic_id
            asked = {"partition": 0, "group": b"a".hex(), "below": head + 2}
            status, answer = await pages.post("/groups/purge", asked)

            assert (status, answer["dropped"], answer["offsets"]) == (200, 1, [head])
            assert window.end < head
            assert window.blocked == {other}

            letters = {"partition": 0, "topic_id": identity, "letters": [[head, 1]]}
            status, answer = await pages.post("/letters/redrive", letters)

            assert (status, answer["redriven"]) == (200, [head])
            assert (await bench.agreed()).again == (head,)

            free.set()
            await until(lambda: head + 2 in handler.offsets, lambda: str(handler.offsets))
            await pages.post("/letters/redrive", {**letters, "letters": [[other, 1]]})
            await bench.until_next(running, LONG + 5)
            await until(lambda: head in handler.offsets, lambda: str(handler.offsets))

        assert sorted(handler.offsets) == [*range(LONG), head, head + 2, other, other + 1]
        assert [message.redriven for message in handler.messages if message.offset == head] == [0, 1]


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
