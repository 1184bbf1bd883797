"""Retention on the forward topic counts from the forwarding, not from the time that a producer wrote on a record."""

from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from agents.decision.partitioner import Partitioner
from app.embedded.broker import EmbeddedBroker
from tests.support import kafka
from tests.support.kafka import Sent
from tests.support.lanes import bench
from tests.support.worker import configure, wait_for, worker

LONG_AGO = 1_600_000_000_000
OFTEN = {"log.retention.check.interval.ms": "100", "log.initial.task.delay.ms": "100"}


async def test_backlog_from_long_ago(tmp_path: Path) -> None:
    """A backlog far older than retention is forwarded while its home lane is away: nothing of it is lost."""
    homes = Partitioner(2)
    (key,) = [each for each in (b"a", b"b", b"c", b"d") if homes[each] == 1][:1]
    records = [Sent(b"%d" % each, key, timestamp=LONG_AGO + each) for each in range(10)]
    (tmp_path / "broker").mkdir()
    with EmbeddedBroker(tmp_path / "broker", properties=OFTEN) as broker:
        bootstrap = broker.bootstrap_servers
        kafka.settle(bootstrap)
        kafka.create_topics(bootstrap, {"witness": (1, {})})
        async with bench(bootstrap, tmp_path, partitions=2) as lanes:
            for topic in (lanes.name, lanes.accepted):
                kafka.alter_topic(bootstrap, topic, "retention.ms", "-1")
            lanes.send(*records)
            await lanes.feed(await lanes.opened(), 0, 10)
            # Whichever log is looked at first: the second is deleted in a later round than the first.
            for each in range(2):
                kafka.send(bootstrap, "witness", [Sent(timestamp=LONG_AGO)])
                wait_for(lambda deleted=each + 1: _log_start(bootstrap, "witness", 0) == deleted, str)  # type: ignore[misc]
            start = _log_start(bootstrap, lanes.forward, 1)
            name, app_id, accepted = lanes.name, lanes.app_id, lanes.accepted
        config = configure(tmp_path, bootstrap, app_id, [{"name": name, "partitions": 2}])
        with worker(config, "w"):
            got = kafka.wait_count(bootstrap, accepted, len(records), 2)

    assert start == 0
    assert [(each.id, each.timestamp) for each in got] == [(each.id, each.timestamp) for each in records]
    assert [each.headers for each in got] == [
        [("_AMQ_DUPL_ID", each.id), ("_RF_SOURCE", f"{name}/0/{offset}".encode())]
        for offset, each in enumerate(records)
    ]


def _log_start(bootstrap: str, topic: str, partition: int) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(topic, partition), kafka.WAIT_S)[0])
    finally:
        consumer.close()
