"""Markers of transactions that the broker's cleaner has emptied: every reader of a compacted log continues behind them."""

import asyncio
import contextlib
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.consumer import fetcher
from aiokafka.errors import KafkaError

import native
from app.embedded.broker import EmbeddedBroker
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.aiokafka_patches import batch_parts, lenient_records
from ringfence_kafka.config.settings import KafkaSettings
from ringfence_kafka.producer import transaction_v2_requests
from ringfence_kafka.producer.transactional import Outgoing, TransactionalProducer
from ringfence_kafka.readers.log_reader import LogReader, Take
from tables import native_changelog
from tests.support import kafka
from tests.support.brokers import features
from tests.support.records.stored_batches import CONTROL, HEADER_BYTES

BUSY_CLEANER = {"log.cleaner.backoff.ms": "100"}
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "delete.retention.ms": "100",
    "min.cleanable.dirty.ratio": "0.0",
}
LIMIT_S = 120.0


@pytest.fixture(scope="module")
def cleaning(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """Yield a broker whose cleaner does not rest."""
    with EmbeddedBroker(tmp_path_factory.mktemp("cleaning"), properties=BUSY_CLEANER) as running:
        yield running


@pytest.mark.long
async def test_read_over(cleaning: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers continue behind a marker whose transaction has no records left.

    The cleaner keeps the last marker of a producer that is gone.
    """
    features.require(cleaning.bootstrap_servers, transaction_v2_requests.FEATURE)
    topic = kafka.unique("emptied")
    kafka.create_topics(cleaning.bootstrap_servers, {topic: (1, COMPACTED)})
    settings = KafkaSettings(bootstrap_servers=cleaning.bootstrap_servers)
    first, second = (TransactionalProducer(settings, name, name) for name in ("first", "second"))
    await first.fence()
    await _write(first, topic, "superseded")
    await first.discard()
    await second.fence()
    written, log = 0, cleaning.directory / "data" / f"{topic}-0"
    async with asyncio.timeout(LIMIT_S):
        while not _emptied(log):
            written += 1
            await _write(second, topic, str(written))
            await asyncio.sleep(0.15)
    await _write(second, topic, "last")
    await second.discard()

    assert _emptied(log)
    assert (await _by_reader(settings, topic))[-1:] == ["last"]
    assert (await _by_consumer(cleaning.bootstrap_servers, topic))[-1:] == ["last"]
    monkeypatch.setattr(fetcher, "MemoryRecords", batch_parts.PartedRecords)
    monkeypatch.setattr(fetcher, "PartitionRecords", lenient_records.LenientRecords)
    assert (await _by_reader(settings, topic))[-1:] == ["last"]
    if native.core is not None:
        left: list[TopicPartition] = []

        def take(fetcher: Any, tp: TopicPartition) -> Any:
            there = bool(fetcher._records)
            taken = native_changelog.take(fetcher, tp)
            if there and taken is None:
                left.append(tp)
            return taken

        assert (await _by_reader(settings, topic, take))[-1:] == ["last"]
        assert left == [], "the core has left them to Python"


async def _write(producer: TransactionalProducer, topic: str, value: str) -> None:
    builder = producer.builder()
    builder.append(timestamp=None, key=b"k", value=value.encode(), headers=[])
    await producer.transact([Outgoing(topic, 0, builder)], {}, "")


def _emptied(log: Path) -> bool:
    """Whether a control batch without records is there. The broker's cleaner may replace a file meanwhile: then all are read again."""
    while True:
        with contextlib.suppress(FileNotFoundError):
            return any(_has_emptied(path.read_bytes()) for path in sorted(log.glob("*.log")))


def _has_emptied(data: bytes) -> bool:
    at = 0
    while len(data) - at >= HEADER_BYTES:
        length, attributes, count = (
            struct.unpack_from(form, data, at + place)[0]
            for form, place in ((">i", 8), (">h", 21), (">i", 57))
        )
        if length <= 0:
            break
        if attributes & CONTROL and count == 0:
            return True
        at += 12 + length
    return False


async def _by_reader(settings: KafkaSettings, topic: str, take: Take | None = None) -> list[str]:
    found: list[str] = []

    async def consume(some: Any) -> None:
        found.extend(item.value.decode() for item in some)

    cluster = Cluster(settings, "")
    await cluster.start()
    try:
        end = await cluster.offsets.high_watermark(topic, 0)
    finally:
        await cluster.stop()
    with contextlib.suppress(KafkaError):  # what it stops at is seen by what is missing
        await LogReader(settings).read_range(topic, 0, 0, end, consume, take)
    return found


async def _by_consumer(bootstrap: str, topic: str) -> list[str]:
    found: list[str] = []
    consumer = AIOKafkaConsumer(
        topic, bootstrap_servers=bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
    )
    async with consumer, asyncio.timeout(LIMIT_S):
        while found[-1:] != ["last"]:
            found.append((await consumer.getone()).value.decode())
    return found
