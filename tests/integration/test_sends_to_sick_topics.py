"""A target topic that goes away while messages flow: other groups continue, and sick ones report why or recover."""

import asyncio
import logging

import pytest

from ringfence_client import Message
from ringfence_client.partition import progress_writer
from ringfence_client.sends import target_topics
from ringfence_kafka.protocol import wire_names
from tests.support import kafka
from tests.support.consumers.in_process import Bench, Recorder, Running, consuming
from tests.support.kafka import Sent
from tests.support.lanes import until


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a write that waits for a topic end soon."""
    monkeypatch.setattr(progress_writer, "TRANSACTION_LIMIT_S", 2.0)


class Flow:
    """Messages of a healthy group, whose sends go to ``healthy``, and of a sick one, whose sends go to ``sick``."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.healthy, self.sick = kafka.unique("healthy"), kafka.unique("sick")
        self.sent = 0
        self.make(self.healthy)
        self.make(self.sick)

    def make(self, name: str) -> None:
        kafka.create_topics(self.bench.bootstrap, {name: (1, {})})

    async def work(self, message: Message) -> None:
        name = self.sick if message.group == b"sick" else self.healthy
        await message.send(name, message.value)

    def send(self, group: bytes, count: int) -> None:
        self.bench.send(*(Sent(None, group, b"%d" % (self.sent + index)) for index in range(count)))
        self.sent += count

    async def values(self, name: str) -> list[bytes]:
        return [record.value or b"" for record in await self.bench.read(name)]

    async def until_sent(self, name: str, count: int, running: Running) -> None:
        """Wait until readers of committed data see this many records."""
        async with asyncio.timeout(90):
            while len(await self.values(name)) < count:
                running.check()
                await asyncio.sleep(0.05)


async def test_a_deleted_topic_gives_dead_letters(bootstrap: str, caplog: pytest.LogCaptureFixture) -> None:
    """Dead letters have the reason; all records of the healthy group are there once, even those of the failed write."""
    caplog.set_level(logging.ERROR, "ringfence.consumer")
    async with consuming(bootstrap) as bench:
        flow = Flow(bench)
        running = await bench.start(Recorder(flow.work), max_attempts=2, retry_delay=0.01)
        flow.send(b"sick", 1)
        flow.send(b"healthy", 10)
        await flow.until_sent(flow.healthy, 10, running)
        await flow.until_sent(flow.sick, 1, running)
        kafka.delete_topics(bootstrap, [flow.sick])
        flow.send(b"sick", 2)
        flow.send(b"healthy", 50)
        await flow.until_sent(flow.healthy, 60, running)
        await bench.until_committed(flow.sent)
        await running.stop()

        letters = await bench.letters()
        healthy = await flow.values(flow.healthy)
    assert [letter.value for letter in letters] == [b"11", b"12"]
    for letter in letters:
        reason = (dict(letter.headers)[wire_names.HEADER_REASON] or b"").decode()
        assert f"{flow.sick} does not exist" in reason or f"{flow.sick} refused the last write" in reason
    assert healthy == [b"%d" % number for number in (*range(1, 11), *range(13, 63))]
    assert any(f"{flow.sick} no longer exists" in record.getMessage() for record in caplog.records)


async def test_a_topic_that_comes_back_gets_everything(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attempts continue until the topic returns: nothing becomes a dead letter, and the group's records are there in order."""
    monkeypatch.setattr(target_topics, "REFUSED_S", 1.0)
    async with consuming(bootstrap) as bench:
        flow = Flow(bench)
        handler = Recorder(flow.work)
        running = await bench.start(
            handler, max_attempts=100, retry_delay=0.2, retry_multiplier=1.0, breaker=False
        )
        flow.send(b"sick", 1)
        await flow.until_sent(flow.sick, 1, running)
        kafka.delete_topics(bootstrap, [flow.sick])
        flow.send(b"sick", 3)
        flow.send(b"healthy", 3)
        await flow.until_sent(flow.healthy, 3, running)
        await until(lambda: max(handler.attempts(1), default=0) >= 3, lambda: str(handler.begun))
        flow.make(flow.sick)
        await bench.until_committed(flow.sent)
        await running.stop()

        assert await flow.values(flow.sick) == [b"1", b"2", b"3"]
        assert await flow.values(flow.healthy) == [b"4", b"5", b"6"]
        assert await bench.letters() == []
