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
    (key,) = [name for name in (b"a", b"b", b"c", b"d") if homes[name] == 1][:1]
    records = [Sent(b"%d" % index, key, timestamp=LONG_AGO + index) for index in range(10)]
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
            for index in range(2):
                kafka.send(bootstrap, "witness", [Sent(timestamp=LONG_AGO)])
                wait_for(lambda deleted=index + 1: _log_start(bootstrap, "witness", 0) == deleted, str)  # type: ignore[misc]
            start = _log_start(bootstrap, lanes.forward, 1)
            name, app_id, accepted = lanes.name, lanes.app_id, lanes.accepted
        config = configure(tmp_path, bootstrap, app_id, [{"name": name, "partitions": 2}])
        with worker(config, "w"):
            got = kafka.wait_count(bootstrap, accepted, len(records), 2)

    assert start == 0
    assert [(item.id, item.timestamp) for item in got] == [
        (record.id, record.timestamp) for record in records
    ]
    assert [item.headers for item in got] == [
        [("_AMQ_DUPL_ID", record.id), ("_RF_SOURCE", f"{name}/0/{offset}".encode())]
        for offset, record in enumerate(records)
    ]


def _log_start(bootstrap: str, topic: str, partition: int) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(topic, partition), kafka.WAIT_S)[0])
    finally:
        consumer.close()
