"""Measure the records of an hour of leases in the progress topic, and the part that an opening reads.

The consumer's own writer writes, as fast as it goes, as many records and transactions as four partitions in an hour at the default
interval. An opening is measured first with compaction held back, then after the broker's cleaner ran.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from bench.errors import BenchError
from ringfence_client import ConsumerOptions
from ringfence_client.consumer.foreign_members import watch_of
from ringfence_client.partition.dead_letters import DeadLetters, DeadLetterTopic
from ringfence_client.partition.lease_acquisition import LeaseAcquisition
from ringfence_client.partition.progress_writer import ProgressWriter
from ringfence_client.progress import progress_record
from ringfence_client.progress.progress_topic import PARTITIONS, TOPIC_CONFIG, ProgressTopic
from ringfence_client.sends.destinations import Destinations
from ringfence_client.sends.state_reader import StateReader
from ringfence_client.window.memory_budget import MemoryBudget
from ringfence_client.window.window import Window
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.config.load import validate
from ringfence_kafka.config.settings import KafkaSettings
from ringfence_kafka.readers.log_reader import LogReader

HOUR_S: Final = 3_600
WRITES: Final = 4 * 10 * HOUR_S
"""Writes of four partitions, each ten a second: the default interval is 0.1 s."""
HOLDERS: Final = 16
"""Holders that share these writes here: a transaction is mostly waiting."""
GROUP: Final = "bench-lease"
APP_ID: Final = "bench-lease"
TOPIC: Final = "bench-lease.accepted"
RUNNING: Final = 10
"""Messages that handlers have: each record names their attempts."""
FINISHED: Final = 20
"""Runs that are finished above the first of those."""
OPENINGS: Final = 5
APPEAR_LIMIT_S: Final = 30.0
HOLD_BACK: Final = {"min.compaction.lag.ms": str(24 * HOUR_S * 1000)}
SETTLED_S: Final = 40.0
"""The cleaner looks each 15 s: when nothing has shrunk for so long, it has done what the settings let it do."""
MORE: Final = 10
"""Then one write more for so many: the cleaner comes again and removes the markers of what it removed before."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Opening:
    """Cost of reading one partition of the progress topic to its end."""

    records: int
    """Committed ones that were there."""
    bytes: int
    """Bytes of the partition on the broker's disk, which are all transferred."""
    seconds: float


@dataclass(frozen=True, slots=True)
class Load:
    """An hour's writes."""

    holders: int
    written: int
    """Records; each had a transaction."""
    written_s: float
    record_bytes: int
    """The largest value that was written."""
    config: dict[str, str]
    without: list[Opening]
    """Openings of the fullest partition, with compaction held back."""
    cleaned: list[Opening]
    """Openings of the same partition, after the cleaner ran."""
    cleaned_s: float
    """From the moment at which it was let run."""


def run(bootstrap: str, data: Path, writes: int, say: Say) -> Load:
    """Fill the topic and read it; ``data`` is the broker's folder of logs, ``writes`` those of all holders together."""
    # Brokers of today ask again for each transaction's first record, of clients like aiokafka.
    logging.getLogger("aiokafka.producer.sender").setLevel(logging.ERROR)
    return asyncio.run(_run(KafkaSettings(bootstrap_servers=bootstrap), data, writes, say))


async def _run(kafka: KafkaSettings, data: Path, writes: int, say: Say) -> Load:
    async with Cluster(kafka, GROUP) as cluster:
        await cluster.topics.create(TOPIC, HOLDERS, 1, {})
        progress = ProgressTopic(cluster, APP_ID)
        await cluster.topics.create(progress.name, PARTITIONS, 1, {**TOPIC_CONFIG, **HOLD_BACK})
        await cluster.groups.await_coordinator()
        await cluster.topics.await_created([TOPIC, progress.name], APPEAR_LIMIT_S)
        await progress.start()
        letters = DeadLetters(DeadLetterTopic(TOPIC, HOLDERS, 2**20), GROUP)
        options = ConsumerOptions()
        opening = LeaseAcquisition(
            progress,
            letters,
            options,
            MemoryBudget(options.memory_max),
            watch_of(cluster, TOPIC),
            StateReader(cluster, _destinations(cluster)),
        )
        began = time.monotonic()
        sizes = await asyncio.gather(*(_write(opening, index, writes // HOLDERS) for index in range(HOLDERS)))
        written_s = time.monotonic() - began
        say(f"  {writes:,} records and transactions in {written_s:.0f} s")
        fullest = max(range(PARTITIONS), key=lambda each: _bytes(data, progress.name, each))
        without = [await _read(kafka, cluster, data, progress.name, fullest) for _ in range(OPENINGS)]
        say(f"  an opening without compaction: {without[0]}")
        await _let_clean(kafka, progress.name)
        began = time.monotonic()
        await _cleaned(data, progress.name, fullest, say)
        await asyncio.sleep(int(TOPIC_CONFIG["delete.retention.ms"]) / 1000)
        await _fill(opening, writes // MORE)
        await _cleaned(data, progress.name, fullest, say)
        cleaned_s = time.monotonic() - began
        cleaned = [await _read(kafka, cluster, data, progress.name, fullest) for _ in range(OPENINGS)]
        say(f"  an opening after the cleaner: {cleaned[0]}")
        if cleaned[0].bytes >= without[0].bytes:
            raise BenchError(f"the broker's cleaner did nothing to {progress.name}/{fullest}")
        await opening.stop()
        await progress.stop()
    return Load(
        HOLDERS,
        writes,
        written_s,
        max(sizes),
        dict(TOPIC_CONFIG),
        without,
        cleaned,
        cleaned_s,
    )


def _destinations(cluster: Cluster) -> Destinations:
    settings = validate({"app": {"id": APP_ID}, "addresses": [{"name": "bench-lease"}]})
    return Destinations(settings, settings.addresses[0], GROUP, cluster)


async def _fill(opening: LeaseAcquisition, writes: int) -> list[int]:
    return await asyncio.gather(*(_write(opening, index, writes // HOLDERS) for index in range(HOLDERS)))


async def _write(opening: LeaseAcquisition, partition: int, writes: int) -> int:
    """One holder's records, one after the other; the size of the last one."""

    async def confirm() -> bool:
        return True

    lease, window, writer = await opening.open(TOPIC, partition, confirm)
    opening.ended(lease)
    _occupy(window)
    writer.start(lambda: None)
    for _ in range(writes):
        await writer.persisted()
    size = len(
        progress_record.encode(
            replace(window.progress(), holder=lease.holder, web=lease.web, token=lease.token)
        )
    )
    await _end(writer)
    return size


async def _end(writer: ProgressWriter) -> None:
    # Not released: an opening is to find it as a crash leaves it.
    await writer.abandon()


def _occupy(window: Window) -> None:
    """As with handlers that run, and others that finished out of order."""
    for offset in range(3 * max(RUNNING, FINISHED)):
        window.watermark.delivered(offset)
    for number in range(RUNNING):
        window.attempts.running.add(number * 3)
        window.attempts.counts[number * 3] = 1
    for number in range(FINISHED):
        if not window.watermark.is_finished(number * 3 + 1):
            window.watermark.finish(number * 3 + 1)


async def _read(kafka: KafkaSettings, cluster: Cluster, data: Path, topic: str, partition: int) -> Opening:
    count = 0

    async def consume(records: Any) -> None:
        nonlocal count
        count += len(records)

    began = time.monotonic()
    start = await cluster.offsets.log_start(topic, partition)
    end = await cluster.offsets.high_watermark(topic, partition)
    await LogReader(kafka).read_range(topic, partition, start, end, consume)
    return Opening(count, _bytes(data, topic, partition), time.monotonic() - began)


def _bytes(data: Path, topic: str, partition: int) -> int:
    return sum(path.stat().st_size for path in (data / f"{topic}-{partition}").glob("*.log"))


async def _let_clean(kafka: KafkaSettings, topic: str) -> None:
    """Take back what held compaction up; the topic is as consumers make it."""
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers)
    await admin.start()
    try:
        await admin.alter_configs(
            [ConfigResource(ConfigResourceType.TOPIC, topic, configs=dict(TOPIC_CONFIG))]
        )
    finally:
        await admin.close()


async def _cleaned(data: Path, topic: str, partition: int, say: Say) -> None:
    """Until nothing shrinks any more."""
    smallest = _bytes(data, topic, partition)
    began = changed = time.monotonic()
    while time.monotonic() - changed < SETTLED_S:
        await asyncio.sleep(1)
        size = _bytes(data, topic, partition)
        if size < smallest:
            smallest, changed = size, time.monotonic()
            say(f"    {size:,} bytes after {changed - began:.0f} s")
