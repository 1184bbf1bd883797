"""Messages and partitions that always fail: their own groups wait, and no others."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ringfence_client import Message, Reject
from ringfence_client.partition.dead_letters import DeadLetters
from tests.support import kafka
from tests.support.consumers.browser import pages_of
from tests.support.consumers.in_process import Bench, Recorder, Running, consuming, numbered
from tests.support.kafka import Sent
from tests.support.lanes import LIMIT_S, planted, until
from tests.support.records import unusual

UNGROUPED = [Sent(None, None, b"%d" % index) for index in range(30)]


@asynccontextmanager
async def failing(bench: Bench, partition: int) -> AsyncIterator[None]:
    """Context in which the progress of a partition cannot be written."""

    async def fail(point: str, lane: str) -> None:
        raise OSError("planted")

    with planted("before-send", bench.lease_name(partition), fail):
        yield


def covers(running: Running, partition: int) -> bool:
    """Whether its messages may begin."""
    return running.consumer.partitions[partition].writer.covers()


def done_of(handler: Recorder, partition: int) -> list[int]:
    return [offset for number, offset in handler.done if number == partition]


async def test_one_sick_partition(bootstrap: str) -> None:
    """All of one partition is handled while another cannot be written, although that one has more messages than there are handlers."""
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


# -- dead letters ---------------------------------------------------------------------------------------------------


async def _rejects_bad(message: Message) -> None:
    if message.group == b"bad":
        raise Reject("planted")


async def test_dead_letter_topic_deleted(bootstrap: str, caplog: pytest.LogCaptureFixture) -> None:
    """The consumer makes a deleted dead-letter topic again; until then all other groups continue, of the same partition too."""
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

        letters = await bench.letters()
        assert sorted(letter.value or b"" for letter in letters) == [b"0", b"0", b"1", b"1", b"2", b"2"]
        assert len({letter.partition for letter in letters}) == 1
        assert f"{bench.dead_letters} is missing: creating it" in caplog.text
        assert running.consumer.faults == []


async def test_dead_letters_refused(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups whose dead letters are refused wait, others continue, and health reports it; a restart repeats them and loses none."""
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


async def test_record_that_cannot_be_read(bootstrap: str) -> None:
    """The partition of an unreadable record waits and reports why; other partitions of the same fetch miss nothing."""
    handler = Recorder()
    async with consuming(bootstrap, 2) as bench:
        bench.send(*numbered(b"a", 40), partition=1)
        await unusual.send(bootstrap, bench.accepted, [unusual.MALFORMED])
        running = await bench.start(handler)
        await until(lambda: bool(running.consumer.faults), lambda: str(running.consumer.faults))
        await bench.until_next(running, 40, 1)

        assert sorted(done_of(handler, 1)) == list(range(40))
        assert f"{bench.accepted}/0 cannot be read: UnicodeDecodeError" in running.consumer.faults[0]
        assert running.consumer.partitions[0].window.next == 0


async def test_parked_groups_make_room(bootstrap: str) -> None:
    """Healthy groups pass many more parked groups than records are kept, and a redrive finds its message."""
    parked = 150

    async def work(message: Message) -> Any:
        if message.value == b"sick" and not message.redriven:
            raise Reject("sick")

    handler = Recorder(work)
    async with consuming(bootstrap) as bench:
        bench.send(*(Sent(None, b"sick %d" % index, b"sick") for index in range(parked)))
        running = await bench.start(handler, concurrency=4, on_dead_letter="park", records_max=20)
        held = running.consumer.partitions[0]
        await until(
            lambda: len(held.window.redrives.blocked) == parked,
            lambda: str(len(held.window.redrives.blocked)),
        )
        bench.send(*(Sent(None, b"well %d" % index, b"well") for index in range(100)))
        counts = running.consumer.dispatcher.counts
        await until(lambda: counts["finished"] == 100, lambda: str(handler.done))

        assert len(held.window.cache) <= 20
        for number in (0, parked - 1):
            assert held.redrive(number, 1)
            held.writer.count_changes()
        await until(lambda: {0, parked - 1} <= set(handler.offsets), lambda: str(handler.done))
        assert handler.wrong == []
