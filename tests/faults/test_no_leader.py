"""Partitions whose leader is away: all others continue."""

import asyncio
import base64
import contextlib
import json
import uuid
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from agents.bridge import source
from agents.bridge.bridge import Bridge
from app.embedded.broker import EmbeddedBroker
from ringfence_client.consumer import consumer
from tests.support import kafka
from tests.support.bridges import processes
from tests.support.bridges.processes import Two
from tests.support.consumers.in_process import Recorder, consuming
from tests.support.kafka import Sent
from tests.support.worker import configure, wait_for, worker

THERE = range(2)
GONE = range(2, 4)
COUNT = 60
DOUBTS_MAX = 20
"""A few doubts when the disk fails. One for each time that aiokafka asks for metadata would be hundreds."""
SECOND = {
    "log.dirs": "data,data2",
    "metadata.log.dir": "data",
    # By this it finds soon that it cannot write there.
    "replica.high.watermark.checkpoint.interval.ms": "200",
}


class Disks:
    """A broker whose second disk can fail. Partitions that were made before the second disk existed lie on the first."""

    def __init__(self, folder: Path, stack: contextlib.ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self._broker = stack.enter_context(EmbeddedBroker(folder))
        self.bootstrap = self._broker.bootstrap_servers

    def second(self) -> None:
        self._broker.stop()
        lines = (self._folder / "data" / "meta.properties").read_text().splitlines()
        name = base64.urlsafe_b64encode(uuid.uuid5(uuid.NAMESPACE_OID, "data2").bytes).decode().rstrip("=")
        own = [f"directory.id={name}" if line.startswith("directory.id=") else line for line in lines]
        (self._folder / "data2").mkdir()
        (self._folder / "data2" / "meta.properties").write_text("\n".join(own))
        again = EmbeddedBroker(self._folder, self._broker.port, properties=SECOND)
        self._broker = self._stack.enter_context(again)

    def fail(self, topic: str, gone: Collection[int] = GONE) -> None:
        disk = self._folder / "data2"
        assert {path.name for path in disk.glob(f"{topic}-*")} == {f"{topic}-{number}" for number in gone}
        # In one step: the broker goes on writing there until it sees that nothing is left.
        disk.rename(self._folder / "broken")
        disk.write_text("")
        wait_for(lambda: self._leaderless(topic) == set(gone), lambda: str(self._leaderless(topic)))

    def repair(self, topic: str) -> None:
        self._broker.stop()
        disk = self._folder / "data2"
        disk.unlink()
        (self._folder / "broken").rename(disk)
        self._broker.start()
        wait_for(lambda: not self._leaderless(topic), lambda: str(self._leaderless(topic)))

    def _leaderless(self, topic: str) -> set[int]:
        partitions = (
            AdminClient({"bootstrap.servers": self.bootstrap})
            .list_topics(topic, timeout=10)
            .topics[topic]
            .partitions
        )
        return {number for number, partition in partitions.items() if partition.leader == -1}


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[Disks]:
    with contextlib.ExitStack() as stack:
        yield Disks(tmp_path / "broker", stack)


class Doubts:
    """Counter of the doubts that objects of one kind have."""

    def __init__(self, kind: Any, module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        """``kind`` is a class of ``module``, which updates its metadata after 300 ms."""
        monkeypatch.setattr(module, "METADATA_AGE_MS", 300)
        self.count = 0
        doubt = kind._doubt

        def counted(doubting: Any) -> None:
            self.count += 1
            doubt(doubting)

        monkeypatch.setattr(kind, "_doubt", counted)


@pytest.mark.long
async def test_consumer_goes_on_with_the_others(disks: Disks, monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer handles all messages of the partitions that have a leader."""
    handler, doubts = Recorder(), Doubts(consumer.GroupConsumer, consumer, monkeypatch)
    async with consuming(disks.bootstrap, len(THERE)) as bench:
        first = await bench.start(handler)
        await first.stop()
        await asyncio.to_thread(disks.second)
        kafka.grow_topic(disks.bootstrap, bench.accepted, len(THERE) + len(GONE))
        running = bench.launch(handler)
        await running.ready(len(THERE) + len(GONE))
        for partition in GONE:
            bench.send(Sent(None, b"g", b"before"), partition=partition)
            await bench.until_next(running, 1, partition)

        before = doubts.count
        await asyncio.to_thread(disks.fail, bench.accepted)
        for partition in THERE:
            for number in range(COUNT // 10):
                records = [Sent(None, b"g%d" % partition, b"%d" % index) for index in range(10)]
                await asyncio.to_thread(bench.send, *records, partition=partition)
                await bench.until_next(running, 10 * (number + 1), partition)

        assert doubts.count - before < DOUBTS_MAX
        assert handler.wrong == []
        for partition in THERE:
            assert [offset for where, offset in handler.done if where == partition] == list(range(COUNT))


@pytest.mark.long
def test_bridge_goes_on_with_the_others(
    disks: Disks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bridge forwards all messages of partitions with a leader and reports their lag; for the others it reports an error."""
    doubts = Doubts(Bridge, source, monkeypatch)
    given = processes.prepare(Two(disks.bootstrap, disks.bootstrap), tmp_path, source_partitions=len(THERE))
    with processes.quick(given.config):
        pass
    disks.second()
    kafka.grow_topic(disks.bootstrap, given.topic, len(THERE) + len(GONE))
    with processes.quick(given.config) as running:
        (found,) = running
        wait_for(lambda: len(found.window.places) == len(THERE) + len(GONE), lambda: str(found.window.places))
        before = doubts.count
        disks.fail(given.topic)
        for number in range(3):
            for partition in THERE:
                given.send(processes.messages(10, first=(2 * number + partition) * 10), partition)
            processes.confirmed_at(
                disks.bootstrap, given.group, given.topic, [10 * (number + 1)] * len(THERE)
            )
        wait_for(
            lambda: {number for number, lag in found.state.lags.items() if lag == 0} == set(THERE),
            lambda: str(found.state.lags),
        )
        assert doubts.count - before < DOUBTS_MAX
        shown = processes.status(given.config, 1)

    rows = shown["bridges"][given.name]["partitions"]
    assert sorted(processes.numbers(given.got())) == list(range(60))
    assert [row["lag"] for row in rows] == [0, 0, None, None]
    assert ["look for its leader" in (row["error"] or "") for row in rows] == [False, False, True, True], (
        json.dumps(rows)
    )


@pytest.mark.long
def test_a_lane_goes_on_with_its_other_partitions(disks: Disks, tmp_path: Path) -> None:
    """A lane of four partitions, one of them without a leader, judges records of the others against its whole ring."""
    name = kafka.unique("quarter")
    config = configure(tmp_path, disks.bootstrap, name, [{"name": name, "partitions": 3, "lanes": 1}])
    kafka.settle(disks.bootstrap)
    disks.second()
    kafka.grow_topic(disks.bootstrap, name, 4)

    def send(first: int, partitions: Collection[int]) -> None:
        for partition in partitions:
            records = [Sent(b"id-%d" % number, b"g%d" % partition) for number in range(first, first + 10)]
            kafka.send(disks.bootstrap, name, records, partition)

    def reach(offset: int, partitions: Collection[int]) -> None:
        def offsets() -> list[int]:
            done = kafka.committed(disks.bootstrap, name, name, 4)
            return [done[partition] for partition in partitions]

        wait_for(lambda: offsets() == [offset] * len(partitions), lambda: f"{offsets()}\n{process.log()}", 60)

    with worker(config, "w") as process:
        send(0, range(4))
        reach(10, range(4))
        disks.fail(name, {3})
        for number in range(1, 4):
            send(10 * (number - 1), range(3))  # those of the last round again, so none is accepted
            send(10 * number, range(3))
            reach(10 + 20 * number, range(3))
        assert process.stop() == 0
        process.start()
        send(30, range(3))
        send(40, range(3))
        reach(90, range(3))
        _, health = process.health()
        disks.repair(name)
        send(40, range(4))
        send(50, range(4))
        reach(110, range(3))
        reach(30, [3])
        accepted = kafka.read_all(disks.bootstrap, f"{name}.accepted", 3)

    assert health["lanes"][f"{name}-0"]["next"] == {"0": 90, "1": 90, "2": 90, "3": 10}
    assert sorted(int((item.id or b"")[3:]) for item in accepted) == list(range(60))
