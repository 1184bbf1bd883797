"""Views of consumers: the pages of one consumer, and ``consumers show``."""

import json
import socket
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from ringfence_client import GroupConsumer, Message, Retry
from ringfence_client.web import web
from ringfence_kafka.config.load import validate
from ringfence_kafka.process import failpoints
from tests.support import kafka
from tests.support.consumers.browser import Pages, pages_of
from tests.support.consumers.in_process import Recorder, consuming, numbered
from tests.support.consumers.processes import ConsumerProcess
from tests.support.kafka import Sent
from tests.support.lanes import Gate, until
from tests.support.worker import configure, run_verb, wait_for

LONG = 50
"""Messages of a group that keeps a small window full."""


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


async def test_to_the_dead_letters_up_to_an_offset(bootstrap: str) -> None:
    """Messages from the given offset on are handled as usual; a skip takes the head that somebody saw, or nothing."""

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
SESSION_S = "6"


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

    def consumer(self, name: str) -> ConsumerProcess:
        """Start a consumer that drains, and whose lease lasts, as long as the test."""
        return ConsumerProcess(
            self.config, name, self.name, self.group, "--drain-timeout", "90", "--lease-timeout", "90",
            "--session-timeout", SESSION_S, handler="refuse_or_hold",
        )  # fmt: skip

    def verb(self, *arguments: str, code: int = 0) -> str:
        done = run_verb("consumers", "show", *arguments, "--config", str(self.config), check=False)
        assert done.returncode == code, f"{done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout + (done.stderr if code else "")

    def rows(self, *arguments: str, code: int = 0) -> list[dict[str, Any]]:
        done = run_verb("consumers", "show", *arguments, "--json", "--config", str(self.config), check=False)
        assert done.returncode == code, f"{done.returncode}\n{done.stdout}{done.stderr}"
        return list(json.loads(done.stdout)["partitions"])


@pytest.mark.long
def test_held_draining_waiting_gone(bootstrap: str, tmp_path: Path) -> None:
    """The row of each partition shows its holder, its progress, who waits for it, and whether its holder is still a member."""
    scene = Scene(bootstrap, tmp_path)
    first, second = scene.consumer("first"), scene.consumer("second")
    try:
        first.start()
        wait_for(lambda: len(scene.rows(scene.name)) == PARTITIONS and _all(scene, running=1), first.log)
        held = scene.rows(scene.name)
        second.start()
        wait_for(lambda: any(row["waits"] for row in scene.rows()), second.log)
        wait_for(lambda: "draining" in {row["state"] for row in scene.rows()}, first.log)
        contested = scene.rows("--consumer-group", scene.group)
        table = scene.verb(scene.name)
        first.kill()
        wait_for(lambda: _all(scene, holder_is_member=False), second.log)
        orphaned = scene.verb()
    finally:
        first.destroy()
        second.destroy()
    waited = next(item for item in contested if item["waits"])

    assert {(item["state"], item["holder_is_member"], item["waits"]) for item in held} == {
        ("held", True, None)
    }
    assert {(item["delivered"], item["acknowledged"], item["running"], item["lag"]) for item in held} == {
        (2, 1, 1, 1)
    }
    assert {item["token"] for item in held} == {1}
    assert {item["address"] for item in held} == {scene.name}
    assert waited["state"] == "draining"
    assert waited["holder_is_member"] is True
    assert f"-{first.pid}-" in waited["holder"]
    assert f"-{second.pid}-" in waited["waits"]
    assert [item["waits"] for item in contested].count(None) == 1
    assert "draining" in table
    assert "2 members" in table
    assert f"{waited['waits']} waits" in table
    assert f"{waited['holder']} (gone)" in orphaned


def _all(scene: Scene, **wanted: object) -> bool:
    return all(wanted.items() <= row.items() for row in scene.rows())


def test_released_and_unknown(bootstrap: str, tmp_path: Path) -> None:
    """A partition is released and has no holder after a stop in order; an unknown group is exit code 1, with the remedy."""
    scene = Scene(bootstrap, tmp_path)
    nothing = scene.verb()
    unknown = scene.verb(scene.name, "--consumer-group", "nobody", code=1)
    elsewhere = scene.verb("no-such-address", code=2)
    process = ConsumerProcess(scene.config, "c", scene.name, scene.group)
    try:
        process.start()
        process.wait_ready()
        wait_for(lambda: _all(scene, acknowledged=2), process.log)
        assert process.stop() == 0
    finally:
        process.destroy()
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
