"""Retention on outputs and forward topics: it counts from the acceptance or the forwarding."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from app.embedded.broker import EmbeddedBroker
from tests.support import kafka
from tests.support.kafka import Got, Sent
from tests.support.lanes import Bench, bench, planted
from tests.support.worker import wait_for

DAY_MS = 24 * 3600 * 1000
OFTEN = {"log.retention.check.interval.ms": "100", "log.initial.task.delay.ms": "100"}
SMALL = {"segment.bytes": str(2**20)}


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """Yield a broker with Kafka's own retention of seven days, which it checks ten times a second."""
    with EmbeddedBroker(tmp_path_factory.mktemp("hasty"), properties=OFTEN) as broker:
        kafka.settle(broker.bootstrap_servers)
        yield broker


def _old(count: int, bytes_each: int = 10) -> list[Sent]:
    then = int(time.time() * 1000) - 8 * DAY_MS
    return [
        Sent(b"%d" % index, b"group", b"x" * bytes_each, timestamp=then + index) for index in range(count)
    ]


def _log_start(bootstrap: str, topic: str, partition: int = 0) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(topic, partition), kafka.WAIT_S)[0])
    finally:
        consumer.close()


def _let_retention_look(bootstrap: str) -> None:
    """Wait for two rounds of retention: the second record is deleted in a later round than the first, whichever log is first."""
    witness = kafka.unique("witness")
    kafka.create_topics(bootstrap, {witness: (1, {})})
    for deleted in (1, 2):
        kafka.send(bootstrap, witness, _old(1))
        wait_for(lambda deleted=deleted: _log_start(bootstrap, witness) == deleted, str)  # type: ignore[misc]


def _keep_input(lanes: Bench) -> None:
    kafka.alter_topic(lanes.bootstrap, lanes.name, "retention.ms", "-1")


def _brief(records: Sequence[Sent | Got]) -> list[tuple[bytes | None, int]]:
    return [(record.id, record.timestamp) for record in records]


async def test_old_backlog_outlives_its_acceptance(hasty: EmbeddedBroker, tmp_path: Path) -> None:
    """Accepted records older than retention stay, with their timestamps, until it has passed once more.

    They do so in a topic of Kafka's own settings, over segments, and over a restart of the broker.
    """
    bootstrap = hasty.bootstrap_servers
    records = _old(1200, bytes_each=1000)
    async with bench(bootstrap, tmp_path, SMALL) as lanes:
        _keep_input(lanes)
        lanes.send(*records)
        lane = await lanes.opened()
        for begin in range(0, 1200, 300):
            await lanes.feed(lane, begin, begin + 300)
        accepted = lanes.accepted
    segments = list((hasty.directory / "data" / f"{accepted}-0").glob("*.log"))
    _let_retention_look(bootstrap)
    before = _brief(kafka.read_all(bootstrap, accepted, 1))
    hasty.stop()
    hasty.start()
    _let_retention_look(bootstrap)

    assert len(segments) > 1
    assert before == _brief(records)
    assert _brief(kafka.read_all(bootstrap, accepted, 1)) == _brief(records)
    kafka.alter_topic(bootstrap, accepted, "retention.ms", "1000")
    wait_for(lambda: _log_start(bootstrap, accepted) >= 1200, str)


@pytest.mark.parametrize("output", ["accepted", "duplicates", "quarantine", "forward"])
async def test_retention_within_a_transaction(hasty: EmbeddedBroker, tmp_path: Path, output: str) -> None:
    """Old records stay even while their transaction is open, before its marker, and with nothing before them."""
    bootstrap = hasty.bootstrap_servers
    old = _old(1)[0]
    sent = {
        "accepted": [old],
        "duplicates": [Sent(old.id, old.key), old],
        "quarantine": [old._replace(value=b"x" * 900_000)],
        "forward": [old._replace(key=kafka.at_home(1, 2))],
    }[output]

    async def look(point: str, lane: str) -> None:
        await asyncio.to_thread(_let_retention_look, bootstrap)

    small = {"max.message.bytes": "500000"}
    partitions = 1 + (output == "forward")
    async with bench(bootstrap, tmp_path, small, partitions, duplicates="divert") as lanes:
        _keep_input(lanes)
        lanes.send(*sent)
        with planted("before-commit", f"{lanes.name}-0", look):
            await lanes.feed(await lanes.opened(), 0, len(sent))
        topic = lanes.forward if output == "forward" else f"{lanes.name}.{output}"
        got = kafka.read_all(bootstrap, topic, partitions)

    if output == "forward":  # its time is that of the forwarding
        assert [item.id for item in got] == [old.id]
    else:
        assert _brief(got) == _brief([old])
