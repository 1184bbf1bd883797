"""Rows of ``GET /groups``, with the reasons why first messages wait; and groups of messages that are not fetched yet, from the log."""

import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from ringfence_client.dispatch.dispatcher import Dispatcher
from ringfence_client.handlers import group_names
from ringfence_client.partition.partition import HeldPartition
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.config.settings import KafkaSettings
from ringfence_kafka.protocol import offset_ranges
from ringfence_kafka.readers.log_reader import LogReader

RUNNING: Final = "running"
"""A handler has the message."""
RETRY: Final = "retry"
"""A handler failed, and the message waits for a retry."""
PARKED: Final = "parked"
"""Its dead letter is written, and its group waits until an operator redrives or drops it."""
WAITING: Final = "waiting"
"""It waits for a handler."""
LEASE: Final = "lease"
"""Its partition starts no messages: it goes to another consumer, or no consumer holds it."""


def group_rows(
    dispatcher: Dispatcher, partitions: Iterable[HeldPartition], most: int
) -> list[dict[str, Any]]:
    """Return the first groups of each partition as JSON rows, by the offset of their first message."""
    now_ms = time.time() * 1000
    runs = {(message.held.log, message.offset): seconds for message, seconds in dispatcher.runs.running()}
    rests = dispatcher.resting.ends_ms()
    rows = []
    for held in partitions:
        log, attempts = held.fence.log, held.window.attempts
        for group in held.window.ledger.groups()[:most]:
            head, seconds, retry_ms = group.head, runs.get((log, group.head)), rests.get((held, group.head))
            reason = _reason(held, head, runs=seconds is not None)
            rows.append(
                {
                    "partition": held.partition,
                    "group": None if group.group is None else group_names.shown(group.group),
                    "group_hex": None if group.group is None else group.group.hex(),
                    "depth": group.depth,
                    "acquired": group.acquired,
                    "owner": None if group.owner is None else str(group.owner),
                    "head_offset": head,
                    "head_age_seconds": round(max(0.0, now_ms - group.head_timestamp) / 1000, 3),
                    "reason": reason,
                    "running_seconds": None if seconds is None else round(seconds, 3),
                    "retry_at": None if retry_ms is None or reason != RETRY else iso(retry_ms),
                    "attempts": attempts.counts.get(head, 0),
                }
            )
    return rows


def _reason(held: HeldPartition, head: int, *, runs: bool) -> str:
    if head in held.window.redrives.blocked:
        return PARKED
    if runs:
        return RUNNING
    if held.draining:
        return LEASE
    return RETRY if head in held.window.attempts.failures else WAITING


def iso(ms: float) -> str:
    """Return a time as ISO 8601 in UTC."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


APART_MAX: Final = 2_000
"""Largest distance, in offsets, of messages that are read together."""


async def find_groups(
    kafka: KafkaSettings, topic: str, partition: int, offsets: Sequence[int]
) -> dict[int, bytes | None]:
    """Return the groups of messages that the log still has, given in ascending order; None = no group."""
    groups: dict[int, bytes | None] = {}
    those = frozenset(offsets)

    async def consume(records: Sequence[Any]) -> None:
        groups.update((record.offset, record.key) for record in records if record.offset in those)

    for first, last in offset_ranges.near(offsets, APART_MAX):
        await LogReader(kafka).read_range(topic, partition, first, last + 1, consume)
    return groups


async def named_groups(cluster: Cluster, held: HeldPartition, below: int) -> dict[int, bytes | None]:
    """Find the groups of unfetched messages that a partition's progress names. Raises as :func:`find_groups`."""
    if not held.window.unfetched(below):
        return {}
    start = await cluster.offsets.log_start(held.lease.topic, held.partition)
    offsets = [number for number in held.window.unfetched(below) if number >= start]
    return await find_groups(cluster.kafka, held.lease.topic, held.partition, offsets)
