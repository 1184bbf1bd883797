"""Reads the records of a quarantine or dead-letter topic that a command works on."""

import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from itertools import groupby
from typing import Any

from aiokafka.errors import KafkaError

from app.commands.repair.records import Place, Refused, Wanted, parse
from app.commands.repair.redrive_log import RedriveLog, RedrivePartition
from ringfence_client.web.group_rows import APART_MAX
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.config.settings import KafkaSettings
from ringfence_kafka.errors import BrokerUnavailableError, named
from ringfence_kafka.protocol import offset_ranges, wire_names
from ringfence_kafka.readers.log_reader import LogReader, LogStalledError

Act = Callable[[RedrivePartition, Sequence[Refused]], Awaitable[None]]
"""Action for the wanted records of a partition."""


@asynccontextmanager
async def opened(
    kafka: KafkaSettings, app_id: str, name: str, *, writes: int | None = None
) -> AsyncIterator[RedriveLog]:
    """Open a quarantine or dead-letter topic.

    ``writes``: records will be settled. It is the replication factor of the progress topic, if that must be
    created.

    Raises:
        BrokerUnavailableError: The cluster does not answer, or denies access.
    """
    async with Cluster(kafka, wire_names.repair_group(app_id)) as cluster:
        log = RedriveLog(kafka, app_id, cluster, name)
        try:
            await log.open(writes)
            yield log
        except (KafkaError, LogStalledError, TimeoutError) as error:
            raise BrokerUnavailableError(
                f"{name}: {named(error)}: look at the brokers and at this user's rights, and run it again"
            ) from error
        finally:
            await log.close()


async def scan(log: RedriveLog, wanted: Wanted, act: Act, *, writes: bool = False) -> None:
    """Read each partition to its present end, and act on the wanted records in order.

    Later records are not read, so a redriven record that is refused again does not circulate. ``writes``:
    fence each partition before reading it.
    """
    now_ms, left = time.time() * 1000, wanted.limit
    at = {number for number, _ in wanted.selection.at}
    ends = await log.cluster.offsets.stable_ends([(log.topic, index) for index in range(log.partitions)])
    for number in range(log.partitions):
        if (at and number not in at) or left == 0:
            continue
        partition = RedrivePartition(log, number)
        try:
            if writes:
                await partition.fence()
            await partition.load()
            start, end = partition.begin, ends[log.topic, number]
            if wanted.settled_too:
                start = await log.cluster.offsets.log_start(log.topic, number)
            if at and not writes:  # settling a record needs all records before it
                offsets = [offset for place, offset in wanted.selection.at if place == number]
                start, end = max(start, min(offsets)), min(end, max(offsets) + 1)
            left = await _scan_range(partition, (start, end), wanted, act, now_ms, left)
        finally:
            await partition.close()


class _EnoughError(Exception):
    """Enough records were found."""


async def _scan_range(
    partition: RedrivePartition,
    span: tuple[int, int],
    wanted: Wanted,
    act: Act,
    now_ms: float,
    left: int | None,
) -> int | None:
    """Return how many more records are wanted; None = all."""
    log, (start, end) = partition.log, span

    async def consume(records: Sequence[Any]) -> None:
        nonlocal left
        found = []
        for record in records:
            if record.offset >= end or left == 0:
                break
            is_open = record.offset >= partition.begin and partition.delivered(record.offset)
            if not is_open and not wanted.settled_too:
                continue
            refused = parse(log.topic, record)
            if wanted.takes(refused, record, now_ms, is_open=is_open):
                found.append(refused)
                left = None if left is None else left - 1
        if found:
            await act(partition, found)
        if left == 0:
            raise _EnoughError

    with contextlib.suppress(_EnoughError):
        await LogReader(log.kafka).read_range(log.topic, partition.number, start, end, consume)
    return left


async def records_at(cluster: Cluster, kafka: KafkaSettings, places: Collection[Place]) -> dict[Place, Any]:
    """Return the records at places in any topics, if they still exist."""
    wanted, found = set(places), dict[Place, Any]()

    async def consume(records: Sequence[Any]) -> None:
        for record in records:
            place = Place(record.topic, record.partition, record.offset)
            if place in wanted:
                found[place] = record

    topics = sorted({place.topic for place in places})
    counts = await cluster.topics.partition_counts(topics) if topics else {}
    for (topic, number), items in groupby(sorted(wanted), lambda place: place[:2]):
        if number < counts.get(topic, 0):
            start = await cluster.offsets.log_start(topic, number)
            end = await cluster.offsets.stable_end(topic, number)
            offsets = [item.offset for item in items if start <= item.offset < end]
            for first, last in offset_ranges.near(offsets, APART_MAX):
                await LogReader(kafka).read_range(topic, number, first, last + 1, consume)
    return found
