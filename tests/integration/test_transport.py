"""The changed parts of Faust's transport. An upgrade of Faust or aiokafka that breaks one fails here."""

import asyncio
import contextlib
import functools
import inspect
import itertools
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import faust
import pytest
from aiokafka.errors import KafkaError, TopicAuthorizationFailedError, UnknownError
from aiokafka.protocol.fetch import FetchRequest
from faust.assignor.partition_assignor import PartitionAssignor
from faust.transport.drivers import aiokafka as driver
from faust.types import TP

import native
from agents.batch.batch import FetchedBatch
from app.commands.topics import topics
from app.worker import faust_parts
from app.worker.faust_app import RingfenceApp
from app.worker.fetch import fetch_loop
from app.worker.fetch.buffers import Buffers
from app.worker.fetch.fetch_interval import FetchInterval
from app.worker.fetch.fetch_loop import FETCHED_WITHIN_S, REST_S, FetchLoop
from app.worker.fetch.transport import BatchConsumer, BatchConsumerThread
from app.worker.membership.group import GroupOwnership
from app.worker.parts import WorkerParts
from native.records import RawRecords
from ringfence_kafka.aiokafka_patches import internals, lenient_records
from ringfence_kafka.config.load import validate
from tests.support import kafka
from tests.support.kafka import Sent
from tests.support.lanes import until

PATIENCE_S = 600.0
"""Many times the wait of any of these tests."""


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test may depend on the end of a wait: Faust's second lasts longer here than any test."""
    getmany, sleep = BatchConsumerThread.getmany, BatchConsumer.sleep

    async def getmany_patiently(
        self: BatchConsumerThread,
        active_partitions: set[TP],
        timeout: float,  # noqa: ASYNC109 - Faust's signature
    ) -> dict[TP, FetchedBatch]:
        fetched: dict[TP, FetchedBatch] = await getmany(
            self, active_partitions, PATIENCE_S if timeout else timeout
        )
        return fetched

    async def sleep_patiently(self: BatchConsumer, n: float) -> None:
        await sleep(self, PATIENCE_S if n else n)

    monkeypatch.setattr(BatchConsumerThread, "getmany", getmany_patiently)
    monkeypatch.setattr(BatchConsumer, "sleep", sleep_patiently)


class Received:
    """A running Faust app whose batches end here and not in lanes."""

    def __init__(self, app: RingfenceApp, name: str) -> None:
        self.app = app
        self.name = name
        self.batches: list[FetchedBatch] = []
        self.done: list[int] = []
        """Offsets of the batches that were taken out of it."""
        self.room = asyncio.Event()
        """If it is not set, batches are not taken."""
        self.room.set()

    async def offer(self, batch: FetchedBatch) -> None:
        await self.room.wait()
        self.batches.append(batch)

    async def reaches(self, offset: int) -> None:
        """Wait until a batch up to this offset has come."""
        await until(lambda: any(batch.end >= offset for batch in self.batches), lambda: f"{self.batches}")

    @property
    def offsets(self) -> list[int]:
        return [record.offset for batch in self.batches for record in batch.records]

    @property
    def input(self) -> TP:
        return TP(self.name, 0)

    @property
    def taken(self) -> int:
        """Offset up to which the thread has given the input away."""
        return internals.position(self.thread._ensure_consumer(), self.input) or 0

    def has_given(self, offset: int) -> bool:
        """Whether the thread has given the input away up to there, or must keep it."""
        return self.taken >= offset or not self.app.consumer.is_active(self.input)

    @property
    def thread(self) -> BatchConsumerThread:
        thread: BatchConsumerThread = self.app.consumer.owned_thread
        return thread

    @property
    def fetches(self) -> FetchLoop:
        fetches = self.thread._fetches
        assert fetches is not None
        return fetches

    @property
    def ownership(self) -> GroupOwnership:
        return self.app.parts.group.ownership(self.app.consumer_generation_id)

    async def lies_with_the_fetcher(self) -> None:
        """Wait until records of the input were fetched that nobody takes, and the thread waits for others."""
        fetcher = self.thread._ensure_consumer()._fetcher
        await until(lambda: self.input in fetcher._records, lambda: f"{self.batches}")
        waiting: list[object] = []

        def waits_on() -> bool:
            """Whether the same waiter has waited for a number of looks: it is not about to end."""
            waiters = [waiter for waiter in list(fetcher._fetch_waiters) if not waiter.done()]
            if waiters != waiting[-1:]:
                waiting.clear()
            waiting.extend(waiters)
            return len(waiting) > 10

        await until(waits_on, lambda: "the thread does not wait")


@contextlib.asynccontextmanager
async def receiving(
    bootstrap: str, folder: Path, bytes_max: int = 0, partitions: int = 1
) -> AsyncIterator[Received]:
    """Yield an app over one topic with one lane; ``bytes_max``: bound of the bytes under way, if it is not the default."""
    name = kafka.unique("transport")
    settings = validate(
        {
            "kafka": {"bootstrap_servers": bootstrap},
            "app": {"id": f"{name}-app", "data_dir": str(folder), "web_port": 0},
            "addresses": [{"name": name, "partitions": partitions, "lanes": int(partitions > 1)}],
        }
    )
    await topics.ensure(settings)
    settings.state_dir.mkdir(parents=True)
    lenient_records.install()
    built = WorkerParts(settings)
    if bytes_max:
        built.buffers, built.interval = Buffers(bytes_max), FetchInterval(0.025)
    app = RingfenceApp(built)
    received = Received(app, name)
    built.lanes.offer = received.offer  # type: ignore[method-assign]
    await app.start()
    try:
        await until(lambda: built.lanes.health.ready, lambda: str(built.lanes.health.report()))
        yield received
    finally:
        await app.stop()


OURS = {
    "_batch_message", "_connect", "_hand_over", "_keep_member", "_next_messages", "_soon",
    "assign_members", "fetch", "fetch_batches", "is_active", "is_member", "join_again",
    "prepare", "rewind_all", "stated", "thread_class", "wake",
}  # fmt: skip
"""Methods that Faust does not have."""


def records(first: int, last: int) -> list[Sent]:
    return [Sent(b"%d" % index, b"g") for index in range(first, last)]


def test_what_is_overridden_exists() -> None:
    """Faust still has the methods that are overridden, with the parameters that are relied on."""
    for mine, theirs in (
        (BatchConsumer, driver.Consumer),
        (BatchConsumerThread, driver.AIOKafkaConsumerThread),
        (faust_parts.Consumer, driver.Consumer),
        (faust_parts.ConsumerThread, driver.AIOKafkaConsumerThread),
        (faust_parts.Assignor, PartitionAssignor),
        (faust_parts.Worker, faust.Worker),
    ):
        for name, method in vars(mine).items():
            if not callable(method):
                continue
            assert hasattr(theirs, name) is (name not in OURS), f"{name} of Faust's {theirs.__name__}"
            if name not in OURS and name != "__init__":
                expected = list(inspect.signature(getattr(theirs, name)).parameters)
                assert expected == list(inspect.signature(method).parameters)


async def test_a_fetch_is_one_batch(bootstrap: str, tmp_path: Path) -> None:
    """The records of a fetch come as one message with the offsets at which the fetch began and ended."""
    async with receiving(bootstrap, tmp_path) as received:
        kafka.send(bootstrap, received.name, records(0, 2_000))
        await received.reaches(2_000)
        batches = received.batches

    assert sum(len(batch.records) for batch in batches) == 2_000
    # As they lie in their bytes: nothing has made an object of each.
    assert native.core is None or all(isinstance(batch.records, RawRecords) for batch in batches)
    assert len(batches) < 100
    assert [batch.begin for batch in batches] == [0, *(batch.end for batch in batches[:-1])]
    assert all(
        batch.records[0].offset == batch.begin and batch.records[-1].offset == batch.end - 1
        for batch in batches
    )


async def test_fetching_pauses_at_the_bound(bootstrap: str, tmp_path: Path) -> None:
    """No more is fetched than there is room for while a lane keeps its batches; then all comes, each message once."""
    bound = 8 * 2**20
    async with receiving(bootstrap, tmp_path, bound) as received:
        used = received.app.parts.buffers
        kafka.send(
            bootstrap, received.name, [Sent(b"%d" % index, b"g", b"v" * 10_000) for index in range(600)]
        )
        await until(
            lambda: used._awaited and bool(received.batches),
            lambda: f"{used.used} bytes, {received.offsets}",
        )
        most = used.used
        while received.batches:  # what waits for room goes on without any other event
            assert used.used < bound
            first = received.batches[0]
            received.done += [record.offset for record in first.records]
            first.free()
            received.batches.pop(0)
            if not received.batches and len(received.done) < 600:
                await until(lambda: bool(received.batches), lambda: f"{used.used} bytes, {received.done[-1]}")

    assert most > bound // 4
    assert received.done == list(range(600))


async def test_a_lane_of_several_partitions(bootstrap: str, tmp_path: Path) -> None:
    """Batches of all its partitions come by the first one. While the lane takes nothing, none of them is fetched further."""
    count = 3
    async with receiving(bootstrap, tmp_path, partitions=count) as received:
        consumer = received.app.consumer
        inputs = [TP(received.name, partition) for partition in range(count)]
        messages: list[TP] = []
        hand_over = consumer.callback

        async def counting(message: Any) -> None:
            messages.append(message.tp)
            await hand_over(message)

        consumer.callback = counting
        received.room.clear()
        sent = 0
        while any(map(consumer.is_active, inputs)):
            for partition in range(count):
                kafka.send(bootstrap, received.name, records(sent, sent + 1), partition)
            sent += 1
            await until(functools.partial(received.has_given, sent), lambda: f"{received.taken}")
        received.room.set()
        await until(lambda: len(received.offsets) == count * sent, lambda: f"{received.batches}")
        got = {
            tp.partition: [
                record.offset
                for batch in received.batches
                if batch.partition == tp.partition
                for record in batch.records
            ]
            for tp in inputs
        }

    assert set(messages) == {inputs[0]}
    assert got == {partition: list(range(sent)) for partition in range(count)}


async def test_aborted_records_are_bridged(
    bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stretch of only aborted records makes no gap: the next batch begins at the start of the stretch."""
    monkeypatch.setattr(fetch_loop, "QUIET_S", PATIENCE_S)
    async with receiving(bootstrap, tmp_path) as received:
        kafka.send(bootstrap, received.name, records(0, 3))
        await received.reaches(3)
        kafka.send_in_transaction(bootstrap, received.name, records(3, 6), commit=False)
        await until(
            lambda: bool(received.fetches._empty) or received.batches[-1].end > 3,
            lambda: f"{received.batches}",
        )
        kafka.send(bootstrap, received.name, records(6, 8))
        await received.reaches(9)

    assert [record.offset for batch in received.batches for record in batch.records] == [0, 1, 2, 7, 8]
    assert received.batches[-1].begin == 3


async def test_markers_travel_alone_after_a_while(bootstrap: str, tmp_path: Path) -> None:
    """A stretch without records comes as a batch without any, once nothing has followed it: offsets must pass it."""
    async with receiving(bootstrap, tmp_path) as received:
        kafka.send_in_transaction(bootstrap, received.name, records(0, 3), commit=True)
        kafka.send_in_transaction(bootstrap, received.name, records(3, 5), commit=False)
        await received.reaches(7)
        kafka.send(bootstrap, received.name, records(7, 8))
        await received.reaches(8)

    assert received.offsets == [0, 1, 2, 7]
    ends = [(batch.begin, batch.end) for batch in received.batches]
    assert [begin for begin, _ in ends[1:]] == [end for _, end in ends[:-1]]
    assert ends[-1] == (7, 8)


async def test_rewind_fetches_again(bootstrap: str, tmp_path: Path) -> None:
    """The same records come again after a rewind, with a higher number, though Faust had read past them."""
    async with receiving(bootstrap, tmp_path) as received:
        kafka.send(bootstrap, received.name, records(0, 10))
        await received.reaches(10)
        received.batches.clear()
        seek = await received.ownership.rewind(received.name, 0, 4)
        await received.reaches(10)

    assert seek == 2  # the first was of the opening
    assert [record.offset for batch in received.batches for record in batch.records] == [4, 5, 6, 7, 8, 9]
    assert {batch.seek for batch in received.batches} == {2}


async def test_membership_is_asked_of_the_broker(bootstrap: str, tmp_path: Path) -> None:
    """A member of the present generation is confirmed; one of another generation, or unknown, is not."""
    async with receiving(bootstrap, tmp_path) as received:
        ownership = received.ownership
        present = await ownership.confirm()
        ownership._generation += 1
        other_generation = await ownership.confirm()
        ownership._generation -= 1
        coordinator = received.thread._ensure_consumer()._coordinator
        member, coordinator.member_id = coordinator.member_id, "somebody-else"
        unknown = await ownership.confirm()
        coordinator.member_id = member

    assert (present, other_generation, unknown) == (True, False, False)


async def test_membership_outlives_an_error_of_the_group(
    bootstrap: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A task that an error of the group holds up continues when somebody has read the error; in a rebalance nobody reads it."""
    async with receiving(bootstrap, tmp_path) as received:
        consumer, thread = received.app.consumer, received.thread
        coordinator = thread._ensure_consumer()._coordinator
        consumer.stop_flow()

        async def refuse() -> None:
            await coordinator._push_error_to_user(UnknownError("a refusal that nobody expected"))

        refused = asyncio.run_coroutine_threadsafe(refuse(), thread.thread_loop)
        await until(refused.done, lambda: "aiokafka still waits")
        consumer.resume_flow()
        kafka.send(bootstrap, received.name, records(0, 10))
        await received.reaches(10)

    assert received.offsets == list(range(10))
    assert "a refusal that nobody expected" in caplog.text


async def test_membership_that_ended_begins_anew(
    bootstrap: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker joins again, and continues, after an error ended aiokafka's task that keeps it a member."""
    async with receiving(bootstrap, tmp_path) as received:
        coordinator = received.thread._ensure_consumer()._coordinator
        generation = received.app.consumer_generation_id

        async def fail() -> None:
            raise KafkaError("a heartbeat that nobody understood")

        async def replace() -> None:
            coordinator._heartbeat_task.cancel()
            coordinator._heartbeat_task = asyncio.create_task(fail())

        asyncio.run_coroutine_threadsafe(replace(), received.thread.thread_loop).result(10)
        await until(lambda: received.app.consumer_generation_id > generation, lambda: str(generation))
        kafka.send(bootstrap, received.name, records(0, 10))
        await received.reaches(10)

    # Where it has to join once more, all comes again: lanes know what they have.
    assert list(dict.fromkeys(received.offsets)) == list(range(10))
    assert "heartbeats of group" in caplog.text


async def test_fetching_that_keeps_failing(
    bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An error that ends aiokafka's fetching task loses and repeats nothing; a lasting error is not all that a worker does."""
    async with receiving(bootstrap, tmp_path) as received:
        kafka.send(bootstrap, received.name, records(0, 10))
        await received.reaches(10)
        fetcher = received.thread._ensure_consumer()._fetcher
        begun: list[float] = []
        begin = internals.keep_fetching

        def note(consumer: Any) -> None:
            begun.append(time.monotonic())
            begin(consumer)

        async def fail(*_: object) -> bool:
            raise RuntimeError("a response that nobody expected")

        with monkeypatch.context() as patch:
            patch.setattr(internals, "keep_fetching", note)
            patch.setattr(fetcher, "_proc_fetch_request", fail)
            await until(lambda: len(begun) > 2, lambda: f"{begun}")
        kafka.send(bootstrap, received.name, records(10, 20))
        await received.reaches(20)

    assert received.offsets == list(range(20))
    assert min(later - earlier for earlier, later in itertools.pairwise(begun)) >= FETCHED_WITHIN_S
    assert "ended and starts again: RuntimeError('a response that nobody expected')" in caplog.text


# -- nothing waits for longer than it must ---------------------------------------------------------------------


async def test_room_in_a_buffer_ends_the_wait(bootstrap: str, tmp_path: Path) -> None:
    """Records that were fetched into a full buffer come as soon as there is room, and once, however often that happens."""
    async with receiving(bootstrap, tmp_path) as received:
        consumer = received.app.consumer
        for number in range(5):
            consumer.on_buffer_full(received.input)
            kafka.send(bootstrap, received.name, records(number, number + 1))
            await received.lies_with_the_fetcher()
            assert len(received.batches) == number
            consumer.on_buffer_drop(received.input)
            await received.reaches(number + 1)

    assert received.offsets == list(range(5))


async def test_a_refused_partition_rests(
    bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refused partition rests: otherwise the worker would ask the broker again at once as long as a right is missing."""
    async with receiving(bootstrap, tmp_path) as received:
        client = received.thread._ensure_consumer()._fetcher._client
        send = client.send
        refused: list[float] = []

        async def refuse(node: int, request: Any, **more: Any) -> Any:
            response = await send(node, request, **more)
            for topic, partitions in (
                getattr(response, "topics", ()) if isinstance(request, FetchRequest) else ()
            ):
                if topic == received.name:
                    partitions[:] = [
                        (number, TopicAuthorizationFailedError.errno, *rest)
                        for number, _, *rest in partitions
                    ]
            return response

        def note(*_: object) -> None:
            refused.append(time.monotonic())

        monkeypatch.setattr(received.fetches, "_unreadable", note)
        with monkeypatch.context() as patch:
            patch.setattr(client, "send", refuse)
            await until(lambda: len(refused) > 2, lambda: f"{refused}")
        kafka.send(bootstrap, received.name, records(0, 10))
        await received.reaches(10)

    assert received.offsets == list(range(10))
    assert min(later - earlier for earlier, later in itertools.pairwise(refused)) > 0.9 * REST_S


async def test_a_rewind_while_a_buffer_is_full(bootstrap: str, tmp_path: Path) -> None:
    """Records fetched at other offsets before a rewind do not come when there is room again."""
    async with receiving(bootstrap, tmp_path) as received:
        received.app.consumer.on_buffer_full(received.input)
        kafka.send(bootstrap, received.name, records(0, 10))
        await received.lies_with_the_fetcher()
        seek = await received.ownership.rewind(received.name, 0, 4)
        await received.lies_with_the_fetcher()
        received.app.consumer.on_buffer_drop(received.input)
        await received.reaches(10)

    assert received.offsets == [4, 5, 6, 7, 8, 9]
    assert {batch.seek for batch in received.batches} == {seek}
