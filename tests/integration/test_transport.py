"""The points in which Faust's transport is changed. An upgrade of Faust or aiokafka that breaks one fails here."""

import contextlib
import inspect
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from faust.transport.drivers import aiokafka as driver

from agents.batch import FetchedBatch
from app import topics, transport, worker
from app.transport import BatchConsumer, BatchConsumerThread, GroupOwnership
from conf.load import validate
from tests.support import kafka
from tests.support.kafka import Sent
from tests.support.lanes import until


class Received:
    """A running Faust app whose batches end here and not in lanes."""

    def __init__(self, app: worker.RingfenceApp, name: str) -> None:
        self.app = app
        self.name = name
        self.batches: list[FetchedBatch] = []

    async def offer(self, batch: FetchedBatch) -> None:
        self.batches.append(batch)

    async def reaches(self, offset: int) -> None:
        """Wait until a batch up to this offset has come."""
        await until(lambda: any(each.end >= offset for each in self.batches), lambda: f"{self.batches}")


@contextlib.asynccontextmanager
async def receiving(bootstrap: str, folder: Path) -> AsyncIterator[Received]:
    """An app over one topic with one partition."""
    name = kafka.unique("transport")
    settings = validate(
        {
            "kafka": {"bootstrap_servers": bootstrap},
            "app": {"id": f"{name}-app", "data_dir": str(folder), "web_port": 0},
            "addresses": [{"name": name, "partitions": 1}],
        }
    )
    await topics.ensure(settings)
    settings.state_dir.mkdir(parents=True)
    app = worker.create_app(settings)
    received = Received(app, name)
    app.lanes.offer = received.offer  # type: ignore[method-assign]
    await app.start()
    try:
        await until(lambda: app.lanes.ready, lambda: str(app.lanes.report()))
        yield received
    finally:
        await app.stop()


def records(first: int, last: int) -> list[Sent]:
    return [Sent(b"%d" % each, b"g") for each in range(first, last)]


def test_what_is_overridden_exists() -> None:
    """Faust still has the methods that are overridden, with the parameters that are relied on."""
    for mine, theirs in (
        (BatchConsumer, driver.Consumer),
        (BatchConsumerThread, driver.AIOKafkaConsumerThread),
    ):
        for name, method in vars(mine).items():
            if not callable(method) or name in {"rewind", "is_member", "_drain", "_batch", "_batch_message"}:
                continue
            assert hasattr(theirs, name), f"Faust's {theirs.__name__} has no {name} any more"
            if name != "__init__":
                expected = list(inspect.signature(getattr(theirs, name)).parameters)
                assert expected == list(inspect.signature(method).parameters)


async def test_a_fetch_is_one_batch(bootstrap: str, tmp_path: Path) -> None:
    """The records of a fetch come as one message that says where the fetch began and ended."""
    async with receiving(bootstrap, tmp_path) as received:
        kafka.send(bootstrap, received.name, records(0, 2_000))
        await received.reaches(2_000)
        batches = received.batches

    assert sum(len(each.records) for each in batches) == 2_000
    assert len(batches) < 100
    assert [each.begin for each in batches] == [0, *(each.end for each in batches[:-1])]
    assert all(
        each.records[0].offset == each.begin and each.records[-1].offset == each.end - 1 for each in batches
    )


async def test_batches_are_bounded(bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No batch, and so no transaction, is larger than its limit."""
    monkeypatch.setattr(transport, "BATCH_RECORDS_MAX", 100)
    async with receiving(bootstrap, tmp_path) as received:
        kafka.send(bootstrap, received.name, records(0, 1_050))
        await received.reaches(1_050)

    assert max(len(each.records) for each in received.batches) == 100
    assert sum(len(each.records) for each in received.batches) == 1_050


async def test_aborted_records_are_bridged(bootstrap: str, tmp_path: Path) -> None:
    """A stretch that holds only aborted records is no gap: the next batch begins where that stretch began."""
    async with receiving(bootstrap, tmp_path) as received:
        kafka.send(bootstrap, received.name, records(0, 3))
        await received.reaches(3)
        kafka.send_in_transaction(bootstrap, received.name, records(3, 6), commit=False)
        thread = received.app.consumer.thread
        await until(
            lambda: bool(thread._empty) or received.batches[-1].end > 3, lambda: f"{received.batches}"
        )
        kafka.send(bootstrap, received.name, records(6, 8))
        await received.reaches(9)

    assert [each.offset for batch in received.batches for each in batch.records] == [0, 1, 2, 7, 8]
    assert received.batches[-1].begin == 3


async def test_rewind_fetches_again(bootstrap: str, tmp_path: Path) -> None:
    """After a rewind the same records come again, with a higher number, though Faust had read past them."""
    async with receiving(bootstrap, tmp_path) as received:
        kafka.send(bootstrap, received.name, records(0, 10))
        await received.reaches(10)
        received.batches.clear()
        seek = await GroupOwnership(received.app).rewind(received.name, 0, 4)
        await received.reaches(10)

    assert seek == 2  # the first was of the opening
    assert [each.offset for batch in received.batches for each in batch.records] == [4, 5, 6, 7, 8, 9]
    assert {each.seek for each in received.batches} == {2}


async def test_membership_is_asked_of_the_broker(bootstrap: str, tmp_path: Path) -> None:
    """A member of the present generation is confirmed; one of another generation, or unknown, is not."""
    async with receiving(bootstrap, tmp_path) as received:
        ownership = GroupOwnership(received.app)
        present = await ownership.confirm()
        ownership._generation += 1
        other_generation = await ownership.confirm()
        ownership._generation -= 1
        coordinator = received.app.consumer.thread._consumer._coordinator
        member, coordinator.member_id = coordinator.member_id, "somebody-else"
        unknown = await ownership.confirm()
        coordinator.member_id = member

    assert (present, other_generation, unknown) == (True, False, False)


async def test_fetching_begins_anew(
    bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An error that ends aiokafka's task that fetches does not end the fetching: nothing is lost or comes twice."""
    async with receiving(bootstrap, tmp_path) as received:
        kafka.send(bootstrap, received.name, records(0, 10))
        await received.reaches(10)
        fetcher = received.app.consumer.thread._ensure_consumer()._fetcher
        proceed = fetcher._proc_fetch_request
        failed = threading.Event()

        async def fail(*args: object) -> bool:
            await proceed(*args)
            failed.set()
            raise RuntimeError("a response that nobody expected")

        with monkeypatch.context() as patch:
            patch.setattr(fetcher, "_proc_fetch_request", fail)
            kafka.send(bootstrap, received.name, records(10, 20))
            await until(failed.is_set, lambda: "no fetch failed")
        await received.reaches(20)
        kafka.send(bootstrap, received.name, records(20, 30))
        await received.reaches(30)
        offsets = [record.offset for batch in received.batches for record in batch.records]
        assert offsets == list(range(30))
        assert "begins anew: RuntimeError('a response that nobody expected')" in caplog.text
