"""A partition that cannot be written, or whose dead letters cannot, keeps its own groups waiting and nobody else's."""

import asyncio
import logging
import struct
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.record.util import calc_crc32c

from ringfence_client import Message, Reject
from ringfence_client.partition.dead_letters import DeadLetters
from ringfence_kafka.process import failpoints
from tests.support import kafka
from tests.support.consumers.browser import pages_of
from tests.support.consumers.in_process import Bench, Recorder, Running, consuming, numbered
from tests.support.kafka import Sent
from tests.support.lanes import LIMIT_S, until

UNGROUPED = [Sent(None, None, b"%d" % index) for index in range(30)]


@asynccontextmanager
async def failing(bench: Bench, partition: int) -> AsyncIterator[None]:
    """While the progress of a partition cannot be written."""

    async def fail(point: str, lane: str) -> None:
        raise OSError("planted")

    remove = failpoints.install("before-send", bench.lease_name(partition), fail)
    try:
        yield
    finally:
        remove()


def covers(running: Running, partition: int) -> bool:
    """Whether messages of it may be begun."""
    return running.consumer.partitions[partition].writer.covers()


def done_of(handler: Recorder, partition: int) -> list[int]:
    """Offsets of it that returned."""
    return [offset for number, offset in handler.done if number == partition]


async def test_one_sick_partition(bootstrap: str) -> None:
    """While one partition cannot be written, all of another is handled, although the sick one has more to do than there are handlers."""
    handler = Recorder()
    async with consuming(bootstrap, 2) as bench:
        running = await bench.start(handler, concurrency=2)
        async with failing(bench, 0):
            bench.send(*UNGROUPED, partition=0)
            await until(lambda: not covers(running, 0), lambda: "it still covers")
            begun = len(done_of(handler, 0))
            bench.send(*UNGROUPED, partition=1)
            await until(lambda: len(done_of(handler, 1)) == 30, lambda: str(handler.done))
            async with pages_of(running) as pages:
                await until(lambda: bool(running.consumer.faults), lambda: "it says nothing")
                status, report = await pages.get("/health")

            assert (status, report["ready"]) == (503, False)
            assert f"{bench.accepted}/0: progress is not written: OSError: planted" in report["faults"][0]

        await bench.until_next(running, 30)
        await bench.until_next(running, 30, 1)

        # What its last lease covered may have been begun; beyond that it waits.
        assert len(done_of(handler, 0)) == 30
        assert begun <= 30
        assert sorted(done_of(handler, 1)) == list(range(30))
        # The last write may still be on its way.
        await until(lambda: running.consumer.faults == [], lambda: str(running.consumer.faults))
        assert handler.wrong == []


async def test_sick_from_the_start_on(bootstrap: str) -> None:
    """Also where nothing of it was ever begun: one of its messages waits for the write, without a handler."""
    handler = Recorder()
    async with consuming(bootstrap, 2) as bench:
        running = await bench.start(handler, concurrency=1)
        await until(lambda: not covers(running, 0), lambda: "it still covers")
        async with failing(bench, 0):
            bench.send(*UNGROUPED, partition=0)
            bench.send(*UNGROUPED, partition=1)
            await until(lambda: len(done_of(handler, 1)) == 30, lambda: str(handler.done))

            assert done_of(handler, 0) == []
            assert len(running.consumer.partitions[0].window.attempts) <= 1

        await bench.until_next(running, 30)
        await running.stop()

        assert {attempt for _, _, attempt in handler.begun} == {1}


async def test_sick_partition_and_a_stop(bootstrap: str) -> None:
    """A stop waits for no message that was never begun: a partition that cannot be written costs the time for its last word."""
    handler = Recorder()
    async with consuming(bootstrap) as bench:
        running = await bench.start(handler, drain_timeout=60)
        await until(lambda: not covers(running, 0), lambda: "it still covers")
        async with failing(bench, 0):
            bench.send(*UNGROUPED)
            await until(lambda: bool(running.consumer.partitions[0].window.undone), lambda: "nothing comes")
            begun = time.monotonic()
            await running.stop()

            assert time.monotonic() - begun < 30

        running = await bench.start(handler)
        await bench.until_next(running, 30)

        assert sorted(handler.offsets) == list(range(30))


# -- dead letters ---------------------------------------------------------------------------------------------------


async def _rejects_bad(message: Message) -> None:
    if message.group == b"bad":
        raise Reject("planted")


async def test_dead_letter_topic_deleted(bootstrap: str, caplog: pytest.LogCaptureFixture) -> None:
    """It is made again while the consumer runs; until then all other groups go on, of the same partition too."""
    caplog.set_level(logging.INFO)
    handler = Recorder(_rejects_bad)
    async with consuming(bootstrap, 2) as bench:
        running = await bench.start(handler, concurrency=2)
        await asyncio.to_thread(kafka.delete_topics, bootstrap, [bench.dead_letters])
        for partition in range(2):
            bench.send(
                *numbered(b"bad", 3),
                *(Sent(None, b"good-%d" % index, b"") for index in range(20)),
                partition=partition,
            )
        await until(lambda: len(handler.done) == 40, lambda: str(handler.done))
        await bench.until_next(running, 23)
        await bench.until_next(running, 23, 1)
        await running.stop()

        assert sorted((letter.partition, letter.value) for letter in await bench.letters()) == [
            (partition, b"%d" % number)
            for partition in (await _partition_of(bench, b"bad"),)
            for number in (0, 0, 1, 1, 2, 2)
        ]
        assert f"{bench.dead_letters} is missing: creating it" in caplog.text
        assert running.consumer.faults == []


async def _partition_of(bench: Bench, key: bytes) -> int:
    letters = await bench.letters()
    (partition,) = {letter.partition for letter in letters if letter.key == key}
    return partition


async def test_dead_letters_refused(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """For as long as it lasts: their groups wait, others go on, health says it; a restart brings them again and loses none."""
    handler = Recorder(_rejects_bad)
    original = DeadLetters.outgoing

    def refuse(self: DeadLetters, *args: Any) -> Any:
        raise OSError("no right to write")

    monkeypatch.setattr(DeadLetters, "outgoing", refuse)
    async with consuming(bootstrap) as bench:
        running = await bench.start(handler, concurrency=2)
        bench.send(*numbered(b"bad", 2), *(Sent(None, b"good-%d" % index, b"") for index in range(20)))
        await until(lambda: len(handler.done) == 20, lambda: str(handler.done))
        await until(lambda: bool(running.consumer.faults), lambda: "it says nothing")

        assert running.consumer.faults == [
            f"{bench.accepted}/0: 1 dead letters are not written: OSError: no right to write"
        ]
        assert not running.consumer.ready

        begun = time.monotonic()
        await running.stop()
        progress = await bench.agreed()

        assert time.monotonic() - begun < LIMIT_S / 2
        assert (progress.next, list(progress.finished), progress.released) == (0, [(2, 22)], True)

        monkeypatch.setattr(DeadLetters, "outgoing", original)
        running = await bench.start(handler)
        await bench.until_next(running, 22)

        assert [letter.value for letter in await bench.letters()] == [b"0", b"1"]
        assert len(handler.done) == 20


async def test_skipped_while_its_letter_waits(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator may drop what cannot become a dead letter; its group goes on, and no letter comes later."""
    handler = Recorder(_rejects_bad)
    original = DeadLetters.outgoing

    def refuse(self: DeadLetters, *args: Any) -> Any:
        raise OSError("planted")

    monkeypatch.setattr(DeadLetters, "outgoing", refuse)
    async with consuming(bootstrap) as bench:
        running = await bench.start(handler)
        bench.send(*numbered(b"bad", 1))
        await until(lambda: bool(running.consumer.faults), lambda: "it says nothing")
        async with pages_of(running) as pages:
            request = {"partition": 0, "group": b"bad".hex()}
            dropped = 0
            deadline = time.monotonic() + LIMIT_S
            while not dropped and time.monotonic() < deadline:  # not while one is on its way
                dropped = (await pages.post("/groups/skip", request))[1]["dropped"]
        monkeypatch.setattr(DeadLetters, "outgoing", original)
        bench.send(*numbered(b"good", 1))
        await bench.until_next(running, 2)
        await running.stop()

        assert dropped == 1
        assert await bench.letters() == []


async def test_skipped_once_however_often_it_is_asked(bootstrap: str) -> None:
    """While nothing can be written the answer waits, and who asks again for the same message drops no other one."""

    async def fails_first(message: Message) -> None:
        if message.value == b"0":
            raise OSError("no")

    async with consuming(bootstrap) as bench:
        running = await bench.start(fails_first, max_attempts=1_000)
        window = running.consumer.partitions[0].window
        async with pages_of(running) as pages:
            async with failing(bench, 0):
                bench.send(*numbered(b"g", 3))
                await until(lambda: window.undone == 3, lambda: "nothing is fetched")
                request = {"partition": 0, "group": b"g".hex(), "head": 0}
                asked = asyncio.create_task(pages.post("/groups/skip", request))
                await until(lambda: window.watermark.is_finished(0), lambda: "it is not dropped")
                again = asyncio.create_task(pages.post("/groups/skip", request))
                await asyncio.sleep(0.1)
            answers = [(await task)[1] for task in (asked, again)]
        await bench.until_next(running, 3)

    assert [answer["dropped"] for answer in answers] == [1, 0]
    assert answers[1]["gone"] is True


async def _send_unreadable(bench: Bench, partition: int) -> None:
    """A message with a header name that is not UTF-8, as other clients write it."""
    async with AIOKafkaProducer(bootstrap_servers=bench.bootstrap) as producer:
        batch = producer.create_batch()
        batch.append(timestamp=None, key=b"g", value=b"v", headers=[("ZZ", b"")])
        batch.close()
        batch._build()
        data = bytearray(bytes(batch._buffer).replace(b"ZZ", b"\xff\xfe"))
        struct.pack_into(">I", data, 17, calc_crc32c(bytes(data[21:])))
        batch._buffer = data
        await (await producer.send_batch(batch, bench.accepted, partition=partition))


async def test_record_that_cannot_be_read(bootstrap: str) -> None:
    """Its partition waits and says why; of the others, fetched together with it, nothing is passed over."""
    handler = Recorder()
    async with consuming(bootstrap, 2) as bench:
        bench.send(*numbered(b"a", 40), partition=0)
        await _send_unreadable(bench, 1)
        running = await bench.start(handler)
        await until(lambda: bool(running.consumer.faults), lambda: str(running.consumer.faults))
        await bench.until_next(running, 40)

        assert sorted(done_of(handler, 0)) == list(range(40))
        assert f"{bench.accepted}/1 cannot be read: UnicodeDecodeError" in running.consumer.faults[0]
        assert running.consumer.partitions[1].window.next == 0


async def test_more_dead_letters_than_fit_a_transaction(bootstrap: str) -> None:
    """A producer gone wrong: thousands are rejected as fast as they come. All become letters, once, and nothing stands still."""
    count = 6_000

    async def reject(_: Message) -> None:
        raise Reject("no")

    async with consuming(bootstrap) as bench:
        await asyncio.to_thread(bench.send, *(Sent(None, None, b"%d" % index) for index in range(count)))
        running = await bench.start(reject, concurrency=100)
        await bench.until_next(running, count)
        letters = await bench.letters()

        assert sorted(int(letter.value or b"") for letter in letters) == list(range(count))
        assert running.consumer.faults == []
