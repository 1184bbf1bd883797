"""Retention on outputs counts from the acceptance, not from the time that a producer wrote on a record."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from app.embedded.broker import EmbeddedBroker
from ringfence_kafka.process import failpoints
from tests.support import kafka
from tests.support.kafka import Got, Sent
from tests.support.lanes import Bench, bench
from tests.support.worker import wait_for

DAY_MS = 24 * 3600 * 1000
OFTEN = {"log.retention.check.interval.ms": "100", "log.initial.task.delay.ms": "100"}
SMALL = {"segment.bytes": str(2**20)}


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """A broker with Kafka's own retention of seven days, which it looks after ten times a second."""
    with EmbeddedBroker(tmp_path_factory.mktemp("hasty"), properties=OFTEN) as broker:
        kafka.settle(broker.bootstrap_servers)
        yield broker


def _old(count: int, bytes_each: int = 10) -> list[Sent]:
    then = int(time.time() * 1000) - 8 * DAY_MS
    return [
        Sent(b"%d" % index, b"group", b"x" * bytes_each, timestamp=then + index) for index in range(count)
    ]


def _log_start(bootstrap: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), kafka.WAIT_S)[0])
    finally:
        consumer.close()


def _let_retention_look(bootstrap: str) -> None:
    """Whichever log is looked at first: the second record is deleted in a later round than the first."""
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

    In a topic of Kafka's own settings, over segments, and over a restart of the broker.
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


@pytest.mark.parametrize("output", ["accepted", "duplicates", "quarantine"])
async def test_retention_within_a_transaction(hasty: EmbeddedBroker, tmp_path: Path, output: str) -> None:
    """Also while its transaction is open, when no marker stands behind it yet, and nothing ever stood before it."""
    bootstrap = hasty.bootstrap_servers
    old = _old(1)[0]
    sent = {
        "accepted": [old],
        "duplicates": [Sent(old.id, old.key), old],
        "quarantine": [old._replace(value=b"x" * 900_000)],
    }[output]

    async def look(point: str, lane: str) -> None:
        await asyncio.to_thread(_let_retention_look, bootstrap)

    async with bench(bootstrap, tmp_path, {"max.message.bytes": "500000"}, duplicates="divert") as lanes:
        _keep_input(lanes)
        lanes.send(*sent)
        remove = failpoints.install("before-commit", f"{lanes.name}-0", look)
        try:
            await lanes.feed(await lanes.opened(), 0, len(sent))
        finally:
            remove()
        got = kafka.read_all(bootstrap, f"{lanes.name}.{output}", 1)

    assert _brief(got) == _brief([old])


async def test_fresh_traffic_is_not_primed(hasty: EmbeddedBroker, tmp_path: Path) -> None:
    """What is about as old as it is when it is written needs nothing before it; of old records the first transaction does."""
    bootstrap = hasty.bootstrap_servers
    async with bench(bootstrap, tmp_path) as lanes:
        _keep_input(lanes)
        lanes.send(Sent(b"a", b"group"), *_old(3))
        lane = await lanes.opened()
        for offset in range(4):
            await lanes.feed(lane, offset, offset + 1)
        again = await lanes.opened("two")
        lanes.send(_old(9)[8])
        await lanes.feed(again, 4, 5)
        offsets = [item.offset for item in lanes.output()]

    # A record, and the marker of its transaction. Only the second opening knows of none of its own before: a record and a marker.
    assert offsets == [0, 2, 4, 6, 10]
